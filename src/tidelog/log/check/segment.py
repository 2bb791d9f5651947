"""One segment, read whole: every batch's header and checksum, offsets, epochs, and its indexes.

**Invariant:** reads only; goes on behind a bad batch as long as the next one can be found.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from tidelog.base.limits import BAD_BATCHES_MAX, BATCH_HEADER_SIZE
from tidelog.base.reading import Readable, ReadOnlyFolder
from tidelog.log.check.findings import PROGRESS_STEP_SIZE, Findings, NextStart
from tidelog.log.check.indexes import OffsetEntries, TimeEntries
from tidelog.log.format.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from tidelog.log.format.txnindex import ABORTED_SIZE, decode_aborted
from tidelog.log.scan import BatchAt, Scan
from tidelog.protocol.batch import KNOWN_ATTRIBUTES, LENGTH_MIN, MAGIC, BatchHeader, read_header
from tidelog.protocol.compression import CODEC_NAMES
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import Marker, read_marker


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
    """Of the segment at `base_offset` of a partition's folder."""

    def __init__(
        self, findings: Findings, folder: ReadOnlyFolder, base_offset: int, start: NextStart, walk: Walk
    ) -> None:
        self._findings = findings
        self._folder = folder
        self._base_offset = base_offset
        self._start = start
        self._walk = walk
        place = start.bases.index(base_offset)
        self._next_base = start.bases[place + 1] if place + 1 < len(start.bases) else None
        with _opened(folder, self._name(INDEX_SUFFIX)) as file:
            self._offsets = OffsetEntries(file, base_offset)
        with _opened(folder, self._name(TIME_INDEX_SUFFIX)) as file:
            self._times = TimeEntries(file, base_offset)
        self._aborts: dict[int, int] = {}  # offset of an abort marker to its producer
        self._owed: set[int] = set()  # the markers among them that must have an index entry

    def run(self) -> None:
        with self._folder.open(self._name(LOG_SUFFIX)) as file:
            is_complete = self._walk_batches(file)
        self._findings.segments += 1
        self._findings.size += file.size
        if is_complete:
            self._offsets.on_end(file.size)
            self._times.on_end(is_sealed=self._next_base is not None)
        self._report_indexes(file.size)
        self._check_transactions(is_complete)

    def _walk_batches(self, file: Readable) -> bool:
        """Whether every byte could be told to be a batch."""
        position = shown = 0
        for _ in range(BAD_BATCHES_MAX):
            scan = Scan(file, position, file.size, self._base_offset)
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
            self._note(LOG_SUFFIX, "so many bad batches that the rest is not read", fate, position)
        self._findings.on_progress(file.size - shown)
        return False

    def _next_batch(self, file: Readable, position: int) -> int | None:
        """Where the batch behind a bad one begins, if its length can be believed."""
        head = file.read(position, BATCH_HEADER_SIZE)
        if len(head) < BATCH_HEADER_SIZE:
            return None
        bad = read_header(head)
        following = file.read(position + bad.size, BATCH_HEADER_SIZE) if bad.length >= LENGTH_MIN else b""
        if len(following) < BATCH_HEADER_SIZE:
            return None
        header = read_header(following)
        if header.magic != MAGIC or header.length < LENGTH_MIN or header.base_offset <= bad.base_offset:
            return None
        self._offsets.skip(position)
        self._times.give_up()
        self._walk.end_offset = header.base_offset
        return position + bad.size

    def _report_bad(self, file: Readable, scan: Scan, next_position: int | None) -> None:
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
            self._note(LOG_SUFFIX, impossible, "nothing, it is not read", batch.position, header.base_offset)
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
        content = self._folder.read_whole(self._name(TRANSACTION_INDEX_SUFFIX))
        entries = decode_aborted(content or b"", self._base_offset)
        read_size = len(entries) * ABORTED_SIZE
        if content is not None and read_size != len(content):
            self._note(TRANSACTION_INDEX_SUFFIX, "torn or corrupt", "rebuilt from the log", read_size)
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
                    place * ABORTED_SIZE,
                    entry.last_offset,
                )
        for offset in sorted(self._owed - {entry.last_offset for entry in entries}):
            problem = f"lacks the transaction that producer {self._aborts[offset]} aborted"
            self._note(TRANSACTION_INDEX_SUFFIX, problem, fate, offset=offset)

    def _report_indexes(self, segment_size: int) -> None:
        checks: tuple[tuple[str, OffsetEntries | TimeEntries, str], ...] = (
            (INDEX_SUFFIX, self._offsets, "believed, and rebuilt by the first read that finds it wrong"),
            (TIME_INDEX_SUFFIX, self._times, "believed: retention and look-ups by time go by it; remove it"),
        )
        for suffix, entries, believed in checks:
            is_sane = entries.is_sane(segment_size)
            if not self._folder.exists(self._name(suffix)) and segment_size:
                self._note(suffix, "missing", "rebuilt from the log")
            elif entries.wrong is not None:
                fate = self._start.of_index(self._base_offset, is_sane, believed)
                self._note(suffix, entries.wrong.problem, fate, entries.wrong.position)

    def _note(
        self, suffix: str, problem: str, fate: str, position: int | None = None, offset: int | None = None
    ) -> None:
        label = f"{self._folder.name}/{self._name(suffix)}"
        self._findings.add(label, problem, fate, position, offset)

    def _name(self, suffix: str) -> str:
        return file_name(self._base_offset, suffix)


def _opened(folder: ReadOnlyFolder, name: str) -> AbstractContextManager[Readable | None]:
    try:
        return folder.open(name)
    except FileNotFoundError:
        return nullcontext()


def _impossible(header: BatchHeader) -> str | None:
    """What no producer could have got past a broker, though the checksum is right."""
    if header.attributes & ~KNOWN_ATTRIBUTES:
        return f"attributes {header.attributes:#06x} have unknown bits"
    if header.codec >= len(CODEC_NAMES):
        return f"codec {header.codec} is unknown"
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        return f"{header.record_count} records in {header.last_offset_delta + 1} offsets"
    return None
