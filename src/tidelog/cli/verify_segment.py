"""One segment, read whole: every batch's header and checksum, offsets, epochs, and its indexes.

**Invariant:** reads only; goes on behind a bad batch as long as the next one can be found.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import cast

from tidelog.base.files import File
from tidelog.base.limits import BATCH_HEADER_SIZE
from tidelog.cli.findings import PROGRESS_STEP_SIZE, Findings, NextStart, ReadOnlyFile
from tidelog.cli.verify_indexes import OffsetEntries, TimeEntries
from tidelog.log.scan import BatchAt, Scan
from tidelog.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from tidelog.log.transactions import read_transaction_index
from tidelog.protocol.batch import KNOWN_ATTRIBUTES, LENGTH_MIN, BatchHeader, read_header
from tidelog.protocol.compression import CODEC_NAMES
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import Marker, read_marker

BAD_BATCHES_MAX = 20  # of one segment; then the rest of it is not looked at
_TRANSACTION_ENTRY_SIZE = 34


@dataclass(slots=True)
class Walk:
    """What is carried from segment to segment of a partition."""

    end_offset: int
    leader_epoch: int = -1
    epochs: list[tuple[int, int]] = field(default_factory=list)  # each epoch's first batch: epoch, offset
    is_dense: bool = True  # no record has gone missing in the batches so far
    is_end_known: bool = True  # not if a broker would believe an end that could not be read here
    open_transactions: dict[int, int] = field(default_factory=dict)  # producer id to first offset


class SegmentCheck:
    """`folder` is where it lies, `label` how the folder is called in what is reported."""

    def __init__(
        self, findings: Findings, folder: str, label: str, base_offset: int, start: NextStart, walk: Walk
    ) -> None:
        self._findings = findings
        self._folder = folder
        self._label = label
        self._base_offset = base_offset
        self._start = start
        self._walk = walk
        place = start.bases.index(base_offset)
        self._next_base = start.bases[place + 1] if place + 1 < len(start.bases) else None
        self._offsets = OffsetEntries(self._path(INDEX_SUFFIX), base_offset)
        self._times = TimeEntries(self._path(TIME_INDEX_SUFFIX), base_offset)
        self._aborts: dict[int, int] = {}  # offset of an abort marker to its producer
        self._owed: set[int] = set()  # the markers among them that must have an index entry

    def run(self) -> None:
        file = ReadOnlyFile(self._path(LOG_SUFFIX))
        try:
            is_complete = self._walk_batches(file)
        finally:
            file.close()
        self._findings.segments += 1
        self._findings.size += file.size
        if is_complete:
            self._offsets.on_end(file.size)
            self._times.on_end(is_sealed=self._next_base is not None)
        self._report_indexes(file.size)
        self._check_transactions(is_complete)

    def _walk_batches(self, file: ReadOnlyFile) -> bool:
        """Whether every byte could be told to be a batch."""
        position = shown = 0
        for _ in range(BAD_BATCHES_MAX):
            scan = Scan(cast(File, file), position, file.size, self._base_offset)
            for batch, data in scan.batches():
                self._on_batch(batch, data, file.size)
                if batch.position - shown >= PROGRESS_STEP_SIZE:
                    self._findings.on_progress(batch.position - shown)
                    shown = batch.position
            if scan.problem is None:
                self._findings.on_progress(file.size - shown)
                return True
            next_position = self._next_batch(file, scan.position)
            self._report_bad(file, scan, next_position)
            if next_position is None:
                break
            position = next_position
        else:
            fate = "as with the ones before"
            self._note(LOG_SUFFIX, "so many bad batches that the rest is not looked at", fate, position)
        self._findings.on_progress(file.size - shown)
        return False

    def _next_batch(self, file: ReadOnlyFile, position: int) -> int | None:
        """Where the batch behind a bad one begins, if its length can be believed."""
        head = file.read(position, BATCH_HEADER_SIZE)
        if len(head) < BATCH_HEADER_SIZE:
            return None
        bad = read_header(head)
        following = file.read(position + bad.size, BATCH_HEADER_SIZE) if bad.length >= LENGTH_MIN else b""
        if len(following) < BATCH_HEADER_SIZE:
            return None
        header = read_header(following)
        if header.magic != 2 or header.length < LENGTH_MIN or header.base_offset <= bad.base_offset:
            return None
        self._offsets.skip(position)
        self._times.give_up()
        self._walk.end_offset = header.base_offset
        return position + bad.size

    def _report_bad(self, file: ReadOnlyFile, scan: Scan, next_position: int | None) -> None:
        assert scan.problem is not None
        problem = scan.problem.split(": ", 1)[-1].removeprefix(f"a batch at {scan.position} ")
        head = file.read(scan.position, BATCH_HEADER_SIZE)
        is_last = len(head) < BATCH_HEADER_SIZE or scan.position + read_header(head).size >= file.size
        if next_position is None and not is_last:
            problem = f"{problem}, and what follows is no batch"
        last_entry = self._offsets.final
        is_in_tail = self._next_base is None and (last_entry is None or scan.position >= last_entry[1])
        fate = self._start.of_bad_batch(self._base_offset, file.size - scan.position, is_in_tail)
        offset = int.from_bytes(head[:8], "big", signed=True) if len(head) >= 8 else None
        is_cut = is_in_tail or self._start.is_scanned(self._base_offset)
        if self._next_base is None and next_position is None and not is_cut:
            self._walk.is_end_known = False
        self._note(LOG_SUFFIX, problem, fate, scan.position, offset)

    def _on_batch(self, batch: BatchAt, data: memoryview, segment_size: int) -> None:
        header = batch.header
        self._findings.batches += 1
        self._findings.records += header.record_count
        self._check_place(batch, segment_size)
        if header.leader_epoch != self._walk.leader_epoch:
            self._check_epoch(batch)
        impossible = _impossible(header)
        if impossible is not None:
            self._note(
                LOG_SUFFIX, impossible, "nothing, it is not looked at", batch.position, header.base_offset
            )
        if header.is_transactional:
            self._follow_transaction(header, data)
        self._offsets.on_batch(batch)
        self._times.on_batch(batch)

    def _check_place(self, batch: BatchAt, segment_size: int) -> None:
        """Whether its offsets follow, and belong to this segment."""
        header, walk = batch.header, self._walk
        if header.base_offset != walk.end_offset:
            self._check_offset(batch, segment_size)
            walk.is_dense = False
        elif header.record_count != header.last_offset_delta + 1:
            walk.is_dense = False
        if self._next_base is not None and header.last_offset >= self._next_base:
            problem = f"offset {header.last_offset} belongs to the next segment"
            is_scanned = self._start.is_scanned(self._base_offset)
            fate = "kept, and what follows is cut off or dropped" if is_scanned else "left as it is"
            self._note(LOG_SUFFIX, problem, fate, batch.position, header.base_offset)
        walk.end_offset = max(walk.end_offset, header.last_offset + 1)

    def _check_offset(self, batch: BatchAt, segment_size: int) -> None:
        offset, expected = batch.header.base_offset, self._walk.end_offset
        if offset < self._base_offset:
            self._note_batch(
                batch, f"offset {offset} is below the segment's {self._base_offset}", segment_size
            )
        elif offset < expected:
            self._note_batch(batch, f"offset {offset} comes after {expected - 1}", segment_size)
        elif self._next_base is None:
            missing = f"offsets {expected} to {offset - 1} are missing"
            self._note_batch(batch, missing, segment_size)
        else:
            self._findings.gaps += 1

    def _check_epoch(self, batch: BatchAt) -> None:
        epoch = batch.header.leader_epoch
        if epoch < self._walk.leader_epoch:
            problem = f"leader epoch {epoch} comes after {self._walk.leader_epoch}"
            fate = "nothing, but a follower might not agree where leaderships began"
            self._note(LOG_SUFFIX, problem, fate, batch.position, batch.header.base_offset)
            return
        self._walk.leader_epoch = epoch
        self._walk.epochs.append((epoch, batch.header.base_offset))

    def _note_batch(self, batch: BatchAt, problem: str, segment_size: int) -> None:
        fate = self._start.of_bad_batch(self._base_offset, segment_size - batch.position, is_in_tail=False)
        self._note(LOG_SUFFIX, problem, fate, batch.position, batch.header.base_offset)

    def _follow_transaction(self, header: BatchHeader, data: memoryview) -> None:
        opened = self._walk.open_transactions
        if not header.is_control:
            if header.record_count > 0:
                opened.setdefault(header.producer_id, header.base_offset)
            return
        try:
            marker = read_marker(data)
        except CorruptBatch as error:
            self._note(LOG_SUFFIX, str(error), "passed over", offset=header.base_offset)
            return
        was_open = opened.pop(header.producer_id, None) is not None
        if marker is not None and marker[0] is Marker.ABORT:
            self._aborts[header.base_offset] = header.producer_id
            if was_open:
                self._owed.add(header.base_offset)

    def _check_transactions(self, is_complete: bool) -> None:
        content = self._content(TRANSACTION_INDEX_SUFFIX)
        entries = read_transaction_index(content or b"", self._base_offset)
        read_size = len(entries) * _TRANSACTION_ENTRY_SIZE
        if content is not None and read_size != len(content):
            self._note(TRANSACTION_INDEX_SUFFIX, "torn or corrupt", "made anew from the log", read_size)
            return
        if not is_complete:
            return
        fate = self._start.of_index(
            self._base_offset, True, "believed; read_committed consumers would see aborted records"
        )
        for place, entry in enumerate(entries):
            if self._aborts.get(entry.last_offset) != entry.producer_id:
                problem = f"no abort marker of producer {entry.producer_id} at offset {entry.last_offset}"
                self._note(
                    TRANSACTION_INDEX_SUFFIX,
                    problem,
                    fate,
                    place * _TRANSACTION_ENTRY_SIZE,
                    entry.last_offset,
                )
        for offset in sorted(self._owed - {entry.last_offset for entry in entries}):
            problem = f"lacks the transaction that producer {self._aborts[offset]} aborted"
            self._note(TRANSACTION_INDEX_SUFFIX, problem, fate, offset=offset)

    def _report_indexes(self, segment_size: int) -> None:
        checks: tuple[tuple[str, OffsetEntries | TimeEntries, str], ...] = (
            (INDEX_SUFFIX, self._offsets, "believed, and made anew by the first read that finds it wrong"),
            (TIME_INDEX_SUFFIX, self._times, "believed: retention and look-ups by time go by it; remove it"),
        )
        for suffix, entries, believed in checks:
            is_sane = entries.is_sane(segment_size)
            if not os.path.exists(self._path(suffix)) and segment_size:
                self._note(suffix, "missing", "made anew from the log")
            elif entries.wrong is not None:
                fate = self._start.of_index(self._base_offset, is_sane, believed)
                self._note(suffix, entries.wrong.problem, fate, entries.wrong.position)

    def _note(
        self, suffix: str, problem: str, fate: str, position: int | None = None, offset: int | None = None
    ) -> None:
        name = f"{self._label}/{file_name(self._base_offset, suffix)}"
        self._findings.add(name, problem, fate, position, offset)

    def _content(self, suffix: str) -> bytes | None:
        try:
            with open(self._path(suffix), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def _path(self, suffix: str) -> str:
        return os.path.join(self._folder, file_name(self._base_offset, suffix))


def _impossible(header: BatchHeader) -> str | None:
    """What no producer could have got past a broker, though the checksum is right."""
    if header.attributes & ~KNOWN_ATTRIBUTES:
        return f"attributes {header.attributes:#06x} have unknown bits"
    if header.codec >= len(CODEC_NAMES):
        return f"codec {header.codec} is unknown"
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        return f"{header.record_count} records in {header.last_offset_delta + 1} offsets"
    return None
