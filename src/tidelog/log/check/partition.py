"""One partition's folder: its topic id, its segments in order, snapshots and leader epochs."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.reading import ReadOnlyFolder
from tidelog.log.check.findings import Findings, NextStart
from tidelog.log.check.segment import SegmentCheck, Walk
from tidelog.log.format.checkpoint import decode_epochs
from tidelog.log.format.metadata import decode_topic_id
from tidelog.log.format.names import (
    INDEX_SUFFIXES,
    LEADER_EPOCHS,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    file_name,
    offset_in_name,
)
from tidelog.log.format.snapshot import decode_snapshot
from tidelog.protocol.errors import CorruptBatch


@dataclass(frozen=True, slots=True)
class Known:
    """What the checkpoints of the log directory say of the partition; None where they say nothing."""

    was_clean: bool = False
    recovery_point: int | None = None
    high_watermark: int | None = None
    log_start_offset: int | None = None
    cleaned_offset: int = 0


@dataclass(frozen=True, slots=True)
class Extent:
    """What was found: the topic's id, and the offsets that the segments hold."""

    topic_id: str | None
    start_offset: int
    end_offset: int


class PartitionCheck:
    """Of everything in one folder."""

    def __init__(self, findings: Findings, folder: ReadOnlyFolder, known: Known) -> None:
        self._findings = findings
        self._folder = folder
        self._known = known
        self._names = folder.names()

    def run(self) -> Extent:
        self._findings.partitions += 1
        topic_id = self._check_topic_id()
        bases = self._offsets_of(LOG_SUFFIX)
        self._check_orphans(bases)
        if not bases:
            return Extent(topic_id, 0, 0)
        start = NextStart(self._known.was_clean, self._known.recovery_point or 0, bases)
        walk = Walk(end_offset=bases[0])
        for base_offset in bases:
            if base_offset > walk.end_offset:
                self._note_gap(start, walk, base_offset)
            walk.end_offset = base_offset  # what reaches beyond it was reported already
            SegmentCheck(self._findings, self._folder, base_offset, start, walk).run()
        walk.end_offset = max(walk.end_offset, bases[-1])
        self._check_epochs(walk)
        self._check_snapshots(walk)
        if walk.is_end_known:
            self._check_known(walk.end_offset)
        return Extent(topic_id, bases[0], walk.end_offset)

    def _note_gap(self, start: NextStart, walk: Walk, base_offset: int) -> None:
        """Compaction leaves gaps, but not in a log that has every record before and after."""
        whole_from = max(start.recovery_point, self._known.cleaned_offset)
        if not (start.is_scanned(base_offset) and walk.is_dense and walk.end_offset >= whole_from):
            self._findings.gaps += 1
            return
        problem = f"offsets {walk.end_offset} to {base_offset - 1} before it are missing"
        fate = "dropped, with all later segments, unless compaction took them"
        self._note(file_name(base_offset, LOG_SUFFIX), problem, fate)

    def _offsets_of(self, suffix: str) -> list[int]:
        """Ascending, as names of a width do."""
        found = (offset_in_name(name, suffix) for name in self._names)
        return [offset for offset in found if offset is not None]

    def _check_topic_id(self) -> str | None:
        topic_id = decode_topic_id(self._folder.read_whole(PARTITION_METADATA))
        if topic_id is None:
            is_there = PARTITION_METADATA in self._names
            problem = "not two lines with a version and a topic id" if is_there else "missing"
            self._note(PARTITION_METADATA, problem, "written again, with the id of the topic of that name")
        return topic_id

    def _check_orphans(self, bases: list[int]) -> None:
        known = frozenset(bases)
        for suffix in INDEX_SUFFIXES:
            for offset in self._offsets_of(suffix):
                if offset in known:
                    continue
                self._note(file_name(offset, suffix), "has no .log beside it", "removed")
        for name in self._names:
            if name.endswith(LOG_SUFFIX) and offset_in_name(name, LOG_SUFFIX) is None:
                self._note(name, "a segment is named by 20 digits", "left alone, its records are not served")

    def _check_snapshots(self, walk: Walk) -> None:
        for offset in self._offsets_of(SNAPSHOT_SUFFIX):
            name = file_name(offset, SNAPSHOT_SUFFIX)
            try:
                entries = decode_snapshot(self._folder.read_whole(name) or b"")
            except CorruptBatch as error:
                self._note(name, str(error), "removed; an older one and the log after it are read")
                continue
            if offset > walk.end_offset and walk.is_end_known:
                self._note(name, f"the log ends at {walk.end_offset}, before it", "removed")
            for entry in entries:
                if entry.last_offset >= offset:
                    problem = (
                        f"producer {entry.producer_id} has offset {entry.last_offset}, not below {offset}"
                    )
                    self._note(name, problem, "believed; remove it and the log is read instead")

    def _check_epochs(self, walk: Walk) -> None:
        has_epochs = any(epoch >= 0 for epoch, _ in walk.epochs)
        lines = decode_epochs(self._folder.read_whole(LEADER_EPOCHS))
        if lines is None:
            if has_epochs:
                problem = "not a checkpoint" if LEADER_EPOCHS in self._names else "missing"
                self._note(LEADER_EPOCHS, problem, "rebuilt from the batches")
            return
        if lines.stray is not None:
            self._note(LEADER_EPOCHS, f"the line {lines.stray!r} does not follow", "ignored from there on")
            return
        entries = lines.entries
        if entries and entries[-1][1] > walk.end_offset and walk.is_end_known:
            problem = f"epoch {entries[-1][0]} begins at {entries[-1][1]}, the log ends at {walk.end_offset}"
            self._note(LEADER_EPOCHS, problem, "such epochs are forgotten")
        self._compare_epochs(entries, walk)

    def _compare_epochs(self, entries: list[tuple[int, int]], walk: Walk) -> None:
        """Every leadership that wrote a batch has its line, at the offset of that batch."""
        first_known = entries[0][1] if entries else 0
        lines = dict(entries)
        for epoch, offset in walk.epochs:
            if epoch < 0 or offset < first_known or lines.get(epoch, offset + 1) <= offset:
                continue
            problem = f"no line for epoch {epoch}, whose first batch has offset {offset}"
            self._note(LEADER_EPOCHS, problem, "kept; a follower may be told a wrong end of an epoch")
            return

    def _check_known(self, end_offset: int) -> None:
        """The checkpoints were written after what they speak of: nothing may end below them."""
        known = self._known
        fate = f"the log ends at {end_offset}, records above are gone"
        for what, offset in (("flushed", known.recovery_point), ("replicated", known.high_watermark)):
            if offset is not None and offset > end_offset:
                problem = f"the log was {what} up to offset {offset}, and ends at {end_offset}"
                self._findings.add(self._folder.name, problem, fate, offset=end_offset)
        if known.log_start_offset is not None and known.log_start_offset > end_offset:
            problem = f"must begin at {known.log_start_offset}, and ends at {end_offset}"
            self._findings.add(self._folder.name, problem, f"emptied; begins at {known.log_start_offset}")

    def _note(self, name: str, problem: str, fate: str) -> None:
        self._findings.add(f"{self._folder.name}/{name}", problem, fate)
