"""A search of a log by time, in pieces: the first record that is not older, or the newest one.

A segment whose largest timestamp is older is left out. In another one the walk begins where the time index
says, and may be long: a record of a clock that was ahead keeps that index from growing.

**Invariant:** a piece reads a bounded number of headers, and one batch at most.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import TYPE_CHECKING

from tidelog.base.files import File
from tidelog.base.limits import BATCH_HEADER_SIZE, SEARCH_CHUNKS
from tidelog.log.rebuild import IndexRebuild
from tidelog.log.scan import Damage, damage_at
from tidelog.log.segment import Segment, TimestampOffset, Unready
from tidelog.protocol.batch import LENGTH_MIN, LENGTH_OVERHEAD, MAGIC, NO_TIMESTAMP
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import find_timestamp

if TYPE_CHECKING:
    from tidelog.log.log import Log

_CHUNK_SIZE = 8 * 1024
_unpack = Struct(">qi4xb6xi8xq").unpack_from


class TimeSearch:
    def __init__(self, log: Log, timestamp: int | None, bound_offset: int) -> None:
        """For a record below `bound_offset`; of all timestamps the largest, if none is given."""
        self._log = log
        self._timestamp = NO_TIMESTAMP if timestamp is None else timestamp
        self._is_weighing = timestamp is None  # the segments, for the largest timestamp
        self._bound_offset = bound_offset
        self._base_offset = 0  # segments from this one on are still to be searched
        self._walked: Segment | None = (
            None  # the one that is walked, and its file, as it was, from a position on
        )
        self._generation = 0
        self._position = 0  # and where the walk goes on
        self._rebuild: IndexRebuild | None = None  # that a look-up waits for
        self.piece_count = 0
        self.found: TimestampOffset | None = None

    def step(self) -> bool:
        """Go on for a while; whether the search has ended. OSError, Damage, or Unready if the disk would have
        to be waited for."""
        if self._rebuild is not None:
            self.piece_count += SEARCH_CHUNKS
            self._rebuild = None if self._rebuild.step() else self._rebuild
            return False
        for _ in range(SEARCH_CHUNKS):
            self.piece_count += 1
            if self._has_ended():
                return True
            if self._rebuild is not None:
                return False
        return False

    def _has_ended(self) -> bool:
        """One piece."""
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
        chunk = file.read(start, min(_CHUNK_SIZE, end - start))
        inside, last_inside = 0, len(chunk) - BATCH_HEADER_SIZE
        if last_inside < 0:
            raise Damage(file.name, start, f"{end - start} bytes are left over")
        timestamp, start_offset = self._timestamp, self._log.start_offset
        while inside <= last_inside:
            base_offset, length, magic, last_delta, largest = _unpack(chunk, inside)
            size = length + LENGTH_OVERHEAD
            if magic != MAGIC or length < LENGTH_MIN or start + inside + size > end:
                raise damage_at(file, start + inside, magic, size, end)
            self._position = start + inside + size
            if largest >= timestamp and base_offset + last_delta >= start_offset:
                return base_offset >= self._bound_offset or self._look_into(file, start + inside, size)
            inside += size
        return False

    def _look_into(self, file: File, position: int, size: int) -> bool:
        """Whether the batch has the record. The one with its largest timestamp may be below the log start, or
        there is none: then on to the next batch."""
        data = memoryview(file.read(position, size))
        try:
            record = find_timestamp(data, self._timestamp, self._log.start_offset)
        except CorruptBatch as problem:
            raise Damage(file.name, position, str(problem)) from problem
        if record is None:
            return False
        if record[1] < self._bound_offset:
            self.found = TimestampOffset(*record)
        return True
