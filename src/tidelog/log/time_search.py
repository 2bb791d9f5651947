"""A search of a log by time, in pieces: the first record that is not older, or the newest one.

A segment whose largest timestamp is older is left out. In another one the walk begins where the time index
says, and may be long: a record of a clock that was ahead keeps that index from growing.

A batch that is large, or whose records cannot be read though its checksum holds, is taken by its header:
its first offset, with its largest timestamp.

**Invariant:** a piece reads a bounded number of headers, and of records, of one batch at most.
Damage is only what a checksum or a header contradicts.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from tidelog.base.files import Cold, File
from tidelog.base.limits import (
    BATCH_HEADER_SIZE,
    SEARCH_CHUNK_SIZE,
    SEARCH_CHUNKS,
    SEARCHED_BATCH_SIZE_MAX,
    SEARCHED_RECORDS_MAX,
)
from tidelog.log.pages import PageRead, Unready
from tidelog.log.rebuild import IndexRebuild
from tidelog.log.scan import Damage, damage_at
from tidelog.log.segment import Segment, TimestampOffset
from tidelog.protocol.batch import (
    LENGTH_MIN,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    PLACE_AND_TIMESTAMP,
    BatchHeader,
    check_whole,
    read_header,
)
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import find_timestamp_in

if TYPE_CHECKING:
    from tidelog.log.log import Log

_unpack = PLACE_AND_TIMESTAMP.unpack_from


class TimeSearch:
    def __init__(self, log: Log, timestamp: int | None, bound_offset: int) -> None:
        """For a record below `bound_offset`; of all timestamps the largest, if none is given."""
        self._log = log
        self._wanted = timestamp
        self._bound_offset = bound_offset
        self.piece_count = 0
        self.found: TimestampOffset | None = None
        self._start()

    def _start(self) -> None:
        timestamp = self._wanted
        self._timestamp = NO_TIMESTAMP if timestamp is None else timestamp
        self._is_weighing = timestamp is None  # the segments, for the largest timestamp
        self._base_offset = 0  # segments from this one on are still to be searched
        self._walked: Segment | None = (
            None  # the one that is walked, and its file, as it was, from a position on
        )
        self._generation = 0
        self._position = 0  # and where the walk goes on
        self._rebuild: IndexRebuild | None = None  # that a look-up waits for
        self._change_count = self._log.change_count

    def step(self) -> bool:
        """Go on for a while; whether the search has ended. OSError, Damage, or Unready if the disk would have
        to be waited for."""
        if self._change_count != self._log.change_count:  # what was searched is not where it was
            self._start()
        if self._rebuild is not None:
            self.piece_count += SEARCH_CHUNKS
            self._rebuild = None if self._rebuild.step() else self._rebuild
            return False
        for _ in range(SEARCH_CHUNKS):
            self.piece_count += 1
            try:
                if self._go_on():
                    return True
            except Cold as cold:
                raise Unready(PageRead(cold)) from None
            if self._rebuild is not None:
                return False
        return False

    def _go_on(self) -> bool:
        """One piece; whether it was the last."""
        log = self._log
        place = bisect_left(log.bases, self._base_offset)
        if place == len(log.bases):
            if not self._is_weighing:
                return True
            self._is_weighing, self._base_offset = False, 0
            return self._timestamp == NO_TIMESTAMP
        segment = log.segments[place]
        if self._is_weighing:
            self._timestamp = max(self._timestamp, segment.newest())
            self._base_offset = segment.base_offset + 1
            return False
        if self._walked is segment and segment.file.generation == self._generation:
            return self._walk(segment)
        if segment.newest() < self._timestamp:
            self._base_offset = segment.base_offset + 1
            return False
        self._begin(segment)
        return False

    def _begin(self, segment: Segment) -> None:
        try:
            self._position = segment.position_at(self._timestamp, self._log.start_offset)
        except Unready as lookup:
            if not isinstance(lookup.work, IndexRebuild):
                raise
            self._rebuild = lookup.work
            return
        self._walked, self._generation = segment, segment.file.generation

    def _walk(self, segment: Segment) -> bool:
        """By one chunk; whether what was looked for is found, or cannot be."""
        file, start, end = segment.file, self._position, segment.size
        if start == end:
            self._walked, self._base_offset = None, segment.base_offset + 1
            return False
        chunk = file.read_now(start, min(SEARCH_CHUNK_SIZE, end - start))
        inside, last_inside = 0, len(chunk) - BATCH_HEADER_SIZE
        if last_inside < 0:
            raise Damage(file.name, start, f"{end - start} bytes are left over")
        timestamp, start_offset = self._timestamp, self._log.start_offset
        while inside <= last_inside:
            base_offset, length, magic, last_delta, largest = _unpack(chunk, inside)
            size = length + LENGTH_OVERHEAD
            if magic != MAGIC or length < LENGTH_MIN or start + inside + size > end:
                raise damage_at(file, start + inside, magic, size, end)
            self._position = start + inside  # as far as that is not looked into, it is next
            if largest >= timestamp and base_offset + last_delta >= start_offset:
                if base_offset >= self._bound_offset or self._look_into(file, start + inside, size):
                    return True
                self._position += size
                return False
            self._position += size
            inside += size
        return False

    def _look_into(self, file: File, position: int, size: int) -> bool:
        """Whether the batch has the record. The one with its largest timestamp may be below the log start, or
        there is none: then on to the next batch."""
        is_read = size <= SEARCHED_BATCH_SIZE_MAX
        data = memoryview(file.read_now(position, size if is_read else BATCH_HEADER_SIZE))
        try:
            header = check_whole(data, 0, len(data)) if is_read else read_header(data)
        except CorruptBatch as problem:
            raise Damage(file.name, position, str(problem)) from problem
        is_read = is_read and header.record_count <= SEARCHED_RECORDS_MAX
        record = self._record_in(data, header) if is_read else self._record_by(header)
        if record is None:
            return False
        if record.offset < self._bound_offset:
            self.found = record
        return True

    def _record_in(self, data: memoryview, header: BatchHeader) -> TimestampOffset | None:
        """A body is its producer's affair: one that is no records, or too many bytes, is not damage."""
        start_offset = self._log.start_offset
        try:
            found = find_timestamp_in(data, header, self._timestamp, start_offset, SEARCHED_BATCH_SIZE_MAX)
        except CorruptBatch:
            return self._record_by(header)
        return TimestampOffset(*found) if found is not None else None

    def _record_by(self, header: BatchHeader) -> TimestampOffset:
        """What the header says of the batch as a whole: a reader from there on misses no record."""
        return TimestampOffset(header.max_timestamp, max(header.base_offset, self._log.start_offset))
