"""What a log knows of its producers and transactions, made anew from its batches; and segments that leave.

The newest snapshot is taken, the batches behind it are replayed. Recovery goes this way when a log is
opened, a follower when its end is cut or when it is given batches.

**Invariant:** segments leave from the top, so that a crash in between leaves a log without a hole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from tidelog.log.leftovers import offset_in_name
from tidelog.log.log import Log
from tidelog.log.scan import BatchAt, walk_headers
from tidelog.log.segment import SNAPSHOT_SUFFIX, Segment, file_name
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import read_marker

_REFILL_INDEX_ENTRIES = 64


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
    try:
        marker = read_marker(data)
    except CorruptBatch as error:
        return f"the control batch at {header.base_offset}: {error}"
    if marker is not None:
        ended = log.producers.end_transaction(header, header.base_offset, *marker)
        if ended is not None and note_aborts:
            log.note_ended(ended, base)
    return None


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
    first_entry = segment.offset_index.count - _REFILL_INDEX_ENTRIES
    position = segment.offset_index.at(first_entry)[1] if first_entry >= 0 else 0
    for batch in walk_headers(segment.file, position, segment.size):
        if batch.header.last_offset >= offset:
            break
        log.producers.recall(batch.header)


def drop_segments(log: Log, place: int) -> list[str]:
    """Segments from `place` on are not part of the log any more, durably after the next flush; the names that
    their files now have."""
    renamed: list[str] = []
    for segment in reversed(log.segments[place:]):
        segment.abandon()
        index = log.aborted.pop(segment.base_offset, None)
        if index is not None:
            index.close()
        renamed += log.rename_deleted(segment.base_offset)
    del log.segments[place:], log.bases[place:]
    log.is_folder_unsynced = True
    return renamed
