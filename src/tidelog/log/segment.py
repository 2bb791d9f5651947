"""One segment: a stretch of the log in a file, with its two sparse indexes.

A batch is appended with one write; an index entry follows each `index.interval.bytes` of log. Look-ups
go through the index to within that distance and then walk batch headers.

**Invariant:** positions handed out lie on batch boundaries. No look-up walks further than the loop has time
for.
"""

from __future__ import annotations

from errno import EIO
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from tidelog.base.config import TopicSettings
from tidelog.base.files import Buffer, Cold, Directory, File
from tidelog.base.limits import (
    BATCH_HEADER_SIZE,
    DENSE_BATCHES_MAX,
    INDEX_ENTRIES_TRIED,
    RELATIVE_OFFSET_MAX,
)
from tidelog.log.format.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_name
from tidelog.log.index import OffsetIndex, TimeIndex
from tidelog.log.pages import PageRead, Unready
from tidelog.log.rebuild import IndexRebuild
from tidelog.log.scan import NO_OFFSET, Damage, Misindexed, Place, find_batch, is_dense, walk_headers
from tidelog.protocol.batch import NO_TIMESTAMP

_JITTER_FACTOR = 2_654_435_761


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class Segment:
    __slots__ = (
        "_bytes_since_entry",
        "_damage",
        "_directory",
        "_file",
        "_first_timestamp",
        "_largest",
        "_rebuilt_end",
        "base_offset",
        "created_ms",
        "is_damaged",
        "is_index_full",
        "offset_index",
        "rebuild",
        "size",
        "time_index",
    )

    def __init__(self, directory: Directory, base_offset: int, size: int, now_ms: int) -> None:
        self._directory = directory
        self.base_offset = base_offset
        self.size = size
        self.created_ms = now_ms
        self._file: File | None = None
        self.offset_index = OffsetIndex(directory, file_name(base_offset, INDEX_SUFFIX))
        self.time_index = TimeIndex(directory, file_name(base_offset, TIME_INDEX_SUFFIX))
        self.is_index_full = False
        self._bytes_since_entry = 0
        self._first_timestamp: int | None = None
        self._largest: TimestampOffset | None = None
        self.rebuild: IndexRebuild | None = None  # of the offset index, under way
        self._rebuilt_end = 0  # the position as far as the last one has come
        self._damage: Damage | None = None  # that it met there
        self.is_damaged = False  # a read met damage: a follower replaces the segment (`log.replica`)

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._directory.open(file_name(self.base_offset, LOG_SUFFIX))
            self.size = self._file.size
        return self._file

    def open(self) -> None:
        """Open the log file, and make it if it is not there."""
        self.file  # noqa: B018  the property opens it

    @property
    def largest_timestamp(self) -> TimestampOffset:
        """The largest timestamp and the offset it was first seen at, as far as the time index knows."""
        if self._largest is None:
            last = self.time_index.last()
            self._largest = (
                TimestampOffset(last[0], self.base_offset + last[1])
                if last
                else TimestampOffset(NO_TIMESTAMP, self.base_offset)
            )
        return self._largest

    def newest(self) -> int:
        """The largest timestamp; Unready if it is not in memory."""
        if self._largest is None:
            try:
                self.time_index.probe_last()
            except Cold as cold:
                raise Unready(PageRead(cold)) from None
        return self.largest_timestamp.timestamp

    def append(self, data: Buffer, last_offset: int, max_timestamp: int, settings: TopicSettings) -> None:
        """Write one batch. Raises OSError if it could not be written whole; once it is in the file, nothing
        that goes wrong may pass for less than a failed disk: its offset would be given a second time."""
        if self._bytes_since_entry > settings.index_interval_bytes or self._largest is None:
            self._open_indexes()  # what is short of descriptors says so before anything is written
        position = (self._file or self.file).append(data)
        size = len(data)
        try:
            self.note_batch(position, size, last_offset, max_timestamp, settings)
        except OSError as failure:
            raise OSError(EIO, f"a batch was written and could not be indexed: {failure}") from failure
        self.size = position + size

    def append_markers(
        self, batches: list[bytearray], base_offset: int, timestamp: int, settings: TopicSettings
    ) -> None:
        """Write batches of one record each, from `base_offset` on, at once. Raises as `append` does."""
        self._open_indexes()
        position = self.file.append(b"".join(batches))
        try:
            for offset, batch in enumerate(batches, base_offset):
                self.note_batch(position, len(batch), offset, timestamp, settings)
                position += len(batch)
        except OSError as failure:
            raise OSError(EIO, f"markers were written and could not be indexed: {failure}") from failure
        self.size = position

    def _open_indexes(self) -> None:
        self.file.fileno()
        self.offset_index.open().fileno()
        self.time_index.open().fileno()
        self.largest_timestamp  # noqa: B018  reads the time index, once

    def note_batch(
        self, position: int, size: int, last_offset: int, max_timestamp: int, settings: TopicSettings
    ) -> None:
        """Index a batch that is in the file: from `append`, and again when recovery rebuilds."""
        largest = self._largest or self.largest_timestamp
        if max_timestamp > largest[0]:
            largest = self._largest = TimestampOffset(max_timestamp, last_offset)
        if position == 0:
            self._first_timestamp = max_timestamp
        if self._bytes_since_entry > settings.index_interval_bytes:
            self.offset_index.append(last_offset - self.base_offset, position)
            self.time_index.maybe_append(largest.timestamp, largest.offset - self.base_offset)
            self._bytes_since_entry = 0
            self.is_index_full = self._is_index_full(settings.segment_index_bytes)
        self._bytes_since_entry += size

    def _is_index_full(self, size_max: int) -> bool:
        """The time index counts as full one entry early: sealing adds one."""
        offset_index, time_index = self.offset_index, self.time_index
        return (offset_index.count + 1) * offset_index.entry.size > size_max or (
            time_index.count + 2
        ) * time_index.entry.size > size_max

    def first_timestamp(self) -> int | None:
        """The first batch's timestamp, which `segment.ms` counts from; None if there is no batch."""
        if self._first_timestamp is None and self.size >= BATCH_HEADER_SIZE:
            for batch in walk_headers(self.file, 0, self.size):
                self._first_timestamp = batch.header.max_timestamp
                break
        return self._first_timestamp

    def locate(self, offset: int) -> Place | None:
        """The first batch whose last offset is not below `offset`; None if all end below it. Unready while
        the index that it takes is being rebuilt, or is not in memory; Damage where no batch can be read."""
        file = self._file or self.file
        try:
            entry = self.offset_index.floor(offset - self.base_offset)
            if entry is None:
                return find_batch(file, 0, self.size, offset)
            expected = self.base_offset + entry[0] if entry[0] >= 0 else NO_OFFSET
            return find_batch(file, entry[1], self.size, offset, expected)
        except Cold as cold:
            raise Unready(PageRead(cold)) from None
        except Misindexed as lead:
            self._doubt(lead.position)
        except StructError:
            self._forget_rebuilt()
            self.offset_index.reset()
            self._doubt(0)
        return self.locate(offset)

    def _doubt(self, position: int) -> None:
        """The index is no help as far as there. A small segment's is rebuilt at once, a larger one's in
        pieces; if it has been, the index is right and the log is not."""
        if self._damage is not None:
            raise self._damage
        if max(position, 0) < self._rebuilt_end:
            raise Damage(file_name(self.base_offset, LOG_SUFFIX), position, "not the batch that was there")
        if self.rebuild is None:
            self.rebuild = self._begin_rebuild()
        rebuild = self.rebuild
        if not rebuild.step():
            raise Unready(rebuild)

    def _begin_rebuild(self) -> IndexRebuild:
        """From where the last one has come to: its entries are right."""
        index, end = self.offset_index, self._rebuilt_end
        count = index.place_behind(end - 1) if end else 0
        kept = index.packed_from(0)[: count * index.entry.size] if count else b""
        return IndexRebuild(self, end, kept, index.at(count - 1)[0] if count else -1)

    def use_index(self, entries: bytearray, last_key: int, end: int, damage: Damage | None) -> None:
        """The index as far as a walk has come, and what the old one has to say of what lies behind."""
        index = self.offset_index
        kept = b""
        if damage is not None:
            place, count = index.place_behind(end), index.count
            while place < count and index.at(place)[0] <= last_key:
                place += 1
            kept = index.packed_from(place)
        index.replace(entries + kept)
        self.rebuild, self._rebuilt_end, self._damage = None, end, damage

    def position_below(self, offset: int) -> int:
        """Where a batch begins that ends below `offset`, as near to it as the index can tell, or 0."""
        index = self.offset_index
        count = index.place_after(offset - 1 - self.base_offset)
        for place in range(count - 1, max(count - 1 - INDEX_ENTRIES_TRIED, -1), -1):
            key, position = index.at(place)
            batch = next(walk_headers(self.file, position, self.size), None) if position >= 0 else None
            if batch is not None and batch.header.last_offset == self.base_offset + key:
                return position
        return 0

    def position_at(self, timestamp: int, start_offset: int) -> int:
        """Where to begin to look for the first timestamp that is not below `timestamp`, in batches from
        `start_offset` on. Unready and Damage as in `locate`."""
        try:
            entry = self.time_index.floor(timestamp - 1)
        except Cold as cold:
            raise Unready(PageRead(cold)) from None
        except StructError:
            entry = None
        found = self.locate(max(start_offset, self.base_offset + (entry[1] if entry else 0)))
        return found.position if found is not None else self.size

    def is_full(self, size: int, last_offset: int, segment_bytes: int) -> bool:
        """Whether a batch of `size` bytes must go to a new segment."""
        return (
            self.size + size > segment_bytes
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or self.is_index_full
        )

    def is_old(self, timestamp: int, now_ms: int, settings: TopicSettings) -> bool:
        """Whether a batch of that time must go to a new segment."""
        first = self.first_timestamp()
        waited = timestamp - first if first is not None and first >= 0 else now_ms - self.created_ms
        jitter = settings.segment_jitter_ms
        if jitter:
            waited += self.base_offset * _JITTER_FACTOR % jitter
        return waited > settings.segment_ms

    def check_offset(self, found: Place, end_offset: int) -> None:
        """No checksum covers a base offset: one that the segment cannot have is none."""
        if found.base_offset >= end_offset:
            raise Damage(self.file.name, found.position, f"a batch with offset {found.base_offset}")

    def seal(self) -> None:
        """The segment takes no more: its last timestamp goes to the index, all entries to the files."""
        largest = self.largest_timestamp
        if largest.timestamp != NO_TIMESTAMP:
            self.time_index.maybe_append(largest.timestamp, largest.offset - self.base_offset)
        self.offset_index.write_tail()
        self.time_index.write_tail()

    def trim(self) -> None:
        """It is sealed and durable: the disk need not keep room for more of it."""
        if self._file is not None:
            self._file.trim()

    def truncate(self, size: int) -> None:
        """Cut the log file; the indexes are the caller's to rebuild."""
        self._forget_rebuilt()
        self.file.truncate(size)
        self.size = size

    def reset_indexes(self) -> None:
        self._forget_rebuilt()
        self.offset_index.reset()
        self.time_index.reset()
        self.is_index_full = False
        self._bytes_since_entry = 0
        self._first_timestamp = None
        self._largest = TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def open_files(self) -> list[File]:
        files = [self._file] if self._file is not None else []
        return files + self.offset_index.files() + self.time_index.files()

    def abandon(self) -> None:
        """Close without writing what the indexes still have in memory."""
        self.offset_index.abandon()
        self.time_index.abandon()
        self.close()

    def _forget_rebuilt(self) -> None:
        self.rebuild, self._rebuilt_end, self._damage = None, 0, None

    def close(self) -> None:
        self._forget_rebuilt()
        self.offset_index.close()
        self.time_index.close()
        if self._file is not None:
            self._file.close()
            self._file = None


def check_gap(before: Segment, segment: Segment) -> None:
    """Records are missing between two segments: by compaction, or their file is gone, which is Damage. A log
    that Kafka has compacted may come to us, and is known by the gaps within its segments."""
    for each in (before, segment):
        if not is_dense(each.file, each.size, each.base_offset, DENSE_BATCHES_MAX):
            return
    problem = f"records are missing up to offset {segment.base_offset}"
    raise Damage(before.file.name, before.size, problem)
