"""What a log knows of its producers and transactions, rebuilt from its batches.

The newest snapshot is taken, the batches behind it are replayed. Recovery goes this way when a log is
opened, a follower when its end is cut or when it is given batches.

**Invariant:** a batch changes the same here as when it was appended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from tidelog.base.limits import INDEX_ENTRIES_REFILLED
from tidelog.log.format.names import SNAPSHOT_SUFFIX, file_name, offset_in_name
from tidelog.log.log import Log
from tidelog.log.producers import EndedTransaction, Producers
from tidelog.log.scan import BatchAt, walk_headers
from tidelog.log.segment import Segment
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import read_marker


def index_batch(log: Log, segment: Segment, batch: BatchAt) -> None:
    header = batch.header
    segment.note_batch(batch.position, header.size, header.last_offset, header.max_timestamp, log.settings)


def apply_batch(
    log: Log, header: BatchHeader, data: memoryview, base: int, note_aborts: bool = True
) -> str | None:
    """A batch of the segment at `base` changes what is known of its producer; what is wrong with it, if it
    says that it ends a transaction and does not."""
    if header.producer_id < 0:
        return None
    if not header.is_control:
        log.producers.update(header, header.base_offset, header.max_timestamp)
        return None
    if not header.record_count:
        log.producers.take_epoch(header)
        return None
    try:
        marker = read_marker(data)
    except CorruptBatch as error:
        return f"the control batch at {header.base_offset}: {error}"
    if marker is not None:
        ended = log.producers.end_transaction(header, header.base_offset, *marker)
        if ended is not None:
            log.note_ended(ended, base, is_indexed=not note_aborts)
    return None


def note_undecided(log: Log, snapshots: Iterable[int], start_offset: int, end_offset: int) -> None:
    """Markers in [start, end) may be lost, and the snapshot that is taken hides them: their transactions are
    undecided. Headers are read only if there may be one, and from an earlier snapshot on only if there is."""
    may_be = start_offset < end_offset and log.producers.has_markers
    if not may_be or not has_marker(log, start_offset, end_offset):
        return
    producers, replay_from = _producers_before(log, snapshots, start_offset)
    for segment in log.segments[max(bisect_right(log.bases, replay_from) - 1, 0) :]:
        for batch in walk_headers(segment.file, 0, segment.size):
            header = batch.header
            if header.base_offset >= end_offset:
                return
            if header.producer_id < 0 or header.last_offset < replay_from:
                continue
            ended = _apply_to(producers, segment, batch)
            if ended is not None and ended.last_offset >= start_offset:
                log.note_ended(ended, segment.base_offset, is_indexed=True)


def _producers_before(log: Log, snapshots: Iterable[int], offset_max: int) -> tuple[Producers, int]:
    """The producers of the newest good snapshot not above `offset_max`, and its offset."""
    producers = Producers()
    for offset in sorted((o for o in snapshots if o <= offset_max), reverse=True):
        try:
            producers.load(log.directory.read_whole(file_name(offset, SNAPSHOT_SUFFIX)) or b"", offset)
            return producers, offset
        except CorruptBatch:
            continue
    return producers, log.bases[0]


def _apply_to(producers: Producers, segment: Segment, batch: BatchAt) -> EndedTransaction | None:
    header = batch.header
    if not header.is_control:
        producers.update(header, header.base_offset, header.max_timestamp)
        return None
    if not header.record_count:
        producers.take_epoch(header)
        return None
    try:
        marker = read_marker(segment.file.read(batch.position, header.size))
    except CorruptBatch:
        return None
    return producers.end_transaction(header, header.base_offset, *marker) if marker is not None else None


def has_marker(log: Log, start_offset: int, end_offset: int) -> bool:
    """Whether a control batch is in [start, end), by the headers that are there."""
    for place in range(max(bisect_right(log.bases, start_offset) - 1, 0), len(log.bases)):
        segment = log.segments[place]
        if segment.base_offset >= end_offset:
            break
        for batch in walk_headers(segment.file, segment.position_below(start_offset), segment.size):
            if batch.header.base_offset >= end_offset:
                return False
            if batch.header.is_control and batch.header.last_offset >= start_offset:
                return True
    return False


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    found = (offset_in_name(name, SNAPSHOT_SUFFIX) for name in names)
    return [offset for offset in found if offset is not None]


def drop_snapshots_above(log: Log, offsets: Iterable[int], offset_max: int) -> None:
    for offset in offsets:
        if offset > offset_max:
            log.directory.remove(file_name(offset, SNAPSHOT_SUFFIX))


def load_snapshot(log: Log, offsets: Iterable[int], offset_max: int, problems: list[str]) -> int:
    """Take the newest good snapshot not above `offset_max`; the offset from which to replay."""
    for offset in sorted((o for o in offsets if o <= offset_max), reverse=True):
        name = file_name(offset, SNAPSHOT_SUFFIX)
        try:
            log.producers.load(log.directory.read_whole(name) or b"", offset)
            _refill_recent(log, offset)
            return offset
        except CorruptBatch as error:
            problems.append(f"{name}: {error}")
            log.directory.remove(name)
    return log.bases[0]


def _refill_recent(log: Log, offset: int) -> None:
    """A snapshot has each producer's last batch only. A client that repeats all it had in flight
    begins with the oldest, so the few batches before it are looked up in the log."""
    place = bisect_right(log.bases, offset - 1) - 1
    if place < 0 or not len(log.producers):
        return
    segment = log.segments[place]
    first_entry = segment.offset_index.count - INDEX_ENTRIES_REFILLED
    position = segment.offset_index.at(first_entry)[1] if first_entry >= 0 else 0
    for batch in walk_headers(segment.file, position, segment.size):
        if batch.header.last_offset >= offset:
            break
        log.producers.recall(batch.header)
