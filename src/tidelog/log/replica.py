"""The write path of a follower: batches as its leader has them, and an end that is cut to the leader's.

A batch keeps its offset, its epoch and every byte. A cut is durable after the next flush, and until then
nothing is appended: nothing that left may come back behind, or instead of, what is written next (R8).

**Invariant:** whatever moment a crash comes at, the log that is found is one that was there: segments leave
from the top, and only when that is durable the one that holds the place is cut.
"""

from __future__ import annotations

from bisect import bisect_right

from tidelog.base.limits import BATCH_HEADER_SIZE, RELATIVE_OFFSET_MAX
from tidelog.log.log import Log
from tidelog.log.replay import (
    apply_batch,
    drop_snapshots_above,
    index_batch,
    load_snapshot,
    snapshot_offsets,
)
from tidelog.log.scan import BatchAt, walk_headers
from tidelog.log.segment import Segment
from tidelog.protocol.batch import LENGTH_MIN, LENGTH_OVERHEAD, OFFSET_AND_LENGTH, BatchHeader, check_whole
from tidelog.protocol.errors import CorruptBatch


def append_replica(log: Log, view: memoryview, now_ms: int, may_have_gaps: bool) -> int:
    """Append the whole batches in `view`, which a leader has sent; how many there were.

    Compaction leaves gaps: `may_have_gaps` says that the topic is, or was, compacted. In any other topic the
    leader has lost the records of a gap, and they are not passed over. The last batch may be cut off and is
    left. CorruptBatch if one is not what may follow: those before it are in the log. OSError if the disk
    failed.
    """
    position = count = 0
    is_dense = True
    problem: CorruptBatch | None = None
    while position + BATCH_HEADER_SIZE <= len(view):
        try:
            header = _check_next(log, view, position, may_have_gaps)
        except CorruptBatch as error:
            problem = error
            break
        if header is None:
            break
        is_dense = is_dense and header.base_offset == log.end_offset
        _append(log, header, view[position : position + header.size], now_ms)
        position += header.size
        count += 1
    if not is_dense:
        close_off_gaps(log, now_ms)
    if problem is not None:
        raise problem
    return count


def _check_next(log: Log, view: memoryview, position: int, may_have_gaps: bool) -> BatchHeader | None:
    """The header of the batch at `position`, which may be appended; None if its end is missing."""
    base_offset, length = OFFSET_AND_LENGTH.unpack_from(view, position)
    end = position + length + LENGTH_OVERHEAD
    if length >= LENGTH_MIN and end > len(view):
        return None
    try:
        header = check_whole(view, position, max(end, position))
        if base_offset < log.end_offset:
            raise CorruptBatch(f"the log ends at {log.end_offset} already")
        if base_offset > log.end_offset and not may_have_gaps:
            raise CorruptBatch("the records between are missing; only a compacted topic may lack some")
        if header.leader_epoch < log.epochs.latest:
            raise CorruptBatch(f"leader epoch {header.leader_epoch} follows {log.epochs.latest}")
    except CorruptBatch as error:
        raise CorruptBatch(f"a batch with offset {base_offset}, at {log.end_offset}: {error}") from error
    return header


def _append(log: Log, header: BatchHeader, data: memoryview, now_ms: int) -> None:
    if header.last_offset - max(log.bases[-1], log.end_offset) > RELATIVE_OFFSET_MAX:
        log.end_at(header.base_offset)  # no index could name it from where the log ends
        log.roll(now_ms)
    last_offset, timestamp = header.last_offset, header.max_timestamp
    log.write_batch(data, header.leader_epoch, header.base_offset, last_offset, timestamp, now_ms)
    apply_batch(log, header, data, log.bases[-1])


def close_off_gaps(log: Log, now_ms: int) -> None:
    """A segment that lacks records takes no more, unless the topic is compacted: behind a gap in the last
    segment, recovery would believe nothing that is written from now on."""
    if not log.settings.is_compacted and log.active.size:
        log.roll(now_ms)


def end_below(log: Log, offset: int) -> int:
    """Where the log will end if it is cut at `offset`: the recovery point to write down before."""
    return log.end_offset if offset >= log.end_offset else _find_cut(log, offset)[2]


def note_damage(log: Log, offset: int) -> None:
    """A read met damage in the segment that holds the offset."""
    if offset >= log.bases[0]:
        log.segments[bisect_right(log.bases, offset) - 1].is_damaged = True


def first_damaged(log: Log) -> int | None:
    """Where the first segment begins in which a read met damage."""
    return next((each.base_offset for each in log.segments if each.is_damaged), None)


def truncate(log: Log, offset: int, now_ms: int) -> list[str]:
    """Cut off batches that hold `offset` or are above it; the renamed files, for removal.

    Whole segments leave first. If there are any, and the one before them is to be cut too, that is another
    call's, after the flush: `end_below` goes on to be below where the log ends.

    The recovery point, and the log start if it is above the end, are on the disk already as they will be:
    `end_below` says where the log will end.
    """
    if offset >= log.end_offset:
        return []
    place, position, end_offset = _find_cut(log, offset)
    if position == 0:
        return restart(log, end_offset, now_ms)
    if position < log.segments[place].size and any(later.size for later in log.segments[place + 1 :]):
        position, end_offset = log.segments[place].size, log.bases[place + 1]
    snapshots = snapshot_offsets(log.directory.names())
    drop_snapshots_above(log, snapshots, end_offset)
    renamed = log.drop_segments(place + 1)
    segment = log.active
    if position < segment.size:
        segment.truncate(position)
    log.cut_to(end_offset)
    if not _rebuild(log, segment, snapshots):
        close_off_gaps(log, now_ms)
    return renamed


def restart(log: Log, offset: int, now_ms: int) -> list[str]:
    """Empty the log and begin at `offset`; the renamed files, for removal. The recovery point does not rise
    before a flush has made the new names durable: the old log might come back with it."""
    drop_snapshots_above(log, snapshot_offsets(log.directory.names()), -1)
    return log.restart_at(offset, now_ms)


def _find_cut(log: Log, offset: int) -> tuple[int, int, int]:
    """The segment and the position that the last batch below `offset` ends at, and the offset it ends at;
    position 0 of the first segment if there is no such batch."""
    for place in range(bisect_right(log.bases, offset) - 1, -1, -1):
        last = _last_below(log.segments[place], offset)
        if last is not None:
            return place, last.position + last.header.size, last.header.last_offset + 1
    return 0, 0, min(offset, log.bases[0])


def _last_below(segment: Segment, offset: int) -> BatchAt | None:
    last = None
    for batch in walk_headers(segment.file, segment.position_below(offset), segment.size):
        if batch.header.last_offset >= offset:
            break
        last = batch
    return last


def _rebuild(log: Log, segment: Segment, snapshots: list[int]) -> bool:
    """Indexes of the segment that is the last one now, and the producers at its end; False if it has gaps."""
    log.forget_producers()
    replay_from = load_snapshot(log, snapshots, segment.base_offset, [])
    for earlier in log.segments[max(bisect_right(log.bases, replay_from) - 1, 0) : -1]:
        for batch in walk_headers(earlier.file, 0, earlier.size):
            _replay(log, earlier, batch, replay_from)
    segment.reset_indexes()
    expected, is_dense = segment.base_offset, True
    for batch in walk_headers(segment.file, 0, segment.size):
        is_dense = is_dense and batch.header.base_offset == expected
        expected = batch.header.last_offset + 1
        index_batch(log, segment, batch)
        _replay(log, segment, batch, replay_from)
    return is_dense


def _replay(log: Log, segment: Segment, batch: BatchAt, replay_from: int) -> None:
    """Only the batch that ends a transaction is read whole. Aborts below the cut are in the indexes."""
    header = batch.header
    if header.last_offset >= replay_from and header.producer_id >= 0:
        data = segment.file.read(batch.position, header.size) if header.is_control else b""
        apply_batch(log, header, memoryview(data), segment.base_offset, note_aborts=False)
