"""One segment file and the indexes beside it, read while a broker may write them.

An index is a hint: what it says is held against the batch it points at, and where that does not fit, or the
file is not there, headers are walked from the beginning of the segment.

**Invariant:** the file is read by position and never mapped, so one that shrinks ends early; nothing counts
as a batch that does not lie whole in the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from crc32c import crc32c

from tidelog.base.compiled import Bytes, Int64s
from tidelog.base.limits import BATCH_HEADER_SIZE, SPARK_PIECE_SIZE, SPARK_WALKED_SIZE
from tidelog.log.format.index import OFFSET_ENTRY, TIME_ENTRY
from tidelog.log.format.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from tidelog.log.format.txnindex import ABORTED_SIZE, decode_aborted
from tidelog.protocol.batch import (
    ATTRIBUTES_POSITION,
    LENGTH_OVERHEAD,
    MAGIC,
    OFFSET_AND_LENGTH,
    OFFSET_MAX,
    BatchHeader,
    read_header,
)
from tidelog.protocol.records import find_timestamp
from tidelog.spark import headers

_ANY_TIME = -(2**63)
_FIELDS = ("key", "value")  # of an index entry


class Stop(NamedTuple):
    """Where a walk over headers stopped, and why."""

    status: int
    position: int
    next_offset: int
    last_position: int  # of the last batch passed; -1: none


class Piece(NamedTuple):
    """Whole batches, `data[:end]`."""

    data: bytes
    end: int
    next_offset: int
    has_transactions: bool


class FoundTime(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class SegmentFile:
    def __init__(self, folder: Path, name: str) -> None:
        digits, self._suffix = name.split(LOG_SUFFIX)  # and what follows that in the name of a swap
        self.base_offset = int(digits)
        self.path = folder / name
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size
        self.rest_size = 0  # of what `pieces` left because it is no whole batch
        self.is_past_end = False  # whether `pieces` saw a batch behind its range
        self._offset_entries: Int64s | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def pieces(self, offset: int, end: int) -> Iterator[Piece]:
        """The batches that reach into [offset, end), as far as the file has them whole."""
        position, stop = self.locate(offset).position, self._position_behind(end)
        next_offset, size_needed = self.base_offset, 0
        while next_offset < end:
            size = size_needed or (
                min(SPARK_PIECE_SIZE, stop - position) if stop > position else SPARK_PIECE_SIZE
            )
            data = self.read(position, size)
            state = headers.new_state(next_offset)
            status = headers.follow(as_view(data), len(data), end, OFFSET_MAX, _ANY_TIME, state)
            if piece_end := int(state[headers.POSITION]):
                position, next_offset = position + piece_end, int(state[headers.NEXT_OFFSET])
                yield Piece(data, piece_end, next_offset, bool(state[headers.HAS_TRANSACTIONS]))
                size_needed = 0
            else:  # if it is one that is larger than a piece, it is read once more
                is_larger = status == headers.TORN and not size_needed
                size_needed = self._size_of(data, position) if is_larger else 0
            self.is_past_end = status == headers.PAST_END
            if self.is_past_end or not (piece_end or size_needed):
                break
        self.rest_size = self.size - position

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes; fewer at the end of the file."""
        data = os.pread(self._descriptor, max(0, min(size, self.size - position)), position)
        while 0 < len(data) < min(size, self.size - position):
            more = os.pread(self._descriptor, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def locate(self, offset: int) -> Stop:
        """The first batch whose last offset is not below `offset`."""
        return self.walk(self._position_before(offset), offset=offset)

    def walk(
        self, position: int, *, offset: int = OFFSET_MAX, timestamp: int = _ANY_TIME, end: int = OFFSET_MAX
    ) -> Stop:
        """From the batch at `position` to one that reaches `offset` and `timestamp`, or `end`."""
        state = headers.new_state(self.base_offset)
        last_position = -1
        while True:
            data = self.read(position, SPARK_WALKED_SIZE)
            state[headers.POSITION], state[headers.LAST_POSITION] = 0, -1
            status = headers.follow(as_view(data), self.size - position, end, offset, timestamp, state)
            if state[headers.LAST_POSITION] >= 0:
                last_position = position + int(state[headers.LAST_POSITION])
            moved = int(state[headers.POSITION])
            position += moved
            if status != headers.MORE or not moved:
                return Stop(status, position, int(state[headers.NEXT_OFFSET]), last_position)

    def end(self) -> int:
        """The offset behind the last batch that is whole and has the checksum it should have."""
        at = self.walk(self._position_before(OFFSET_MAX))
        if at.last_position < 0 or self._has_checksum(at.last_position, at.position):
            return at.next_offset
        return self._sound_end()

    def find_time(self, timestamp: int, start: int, end: int) -> FoundTime | None:
        """The first record of [start, end) that is not older than `timestamp`."""
        at = self._before_time(timestamp, start)
        while True:
            at = self.walk(at.position, offset=start, timestamp=timestamp, end=end)
            if at.status != headers.HIT:
                return None
            batch = self.read(at.position, self._size_of(self.read(at.position, BATCH_HEADER_SIZE), 0))
            found = find_timestamp(batch, timestamp, start)
            if found is not None:
                return FoundTime(*found, read_header(batch).leader_epoch)
            at = at._replace(position=at.position + len(batch))

    def is_older_than(self, timestamp: int) -> bool:
        """Whether its time index says so, and the end of a segment that takes no more does not contradict."""
        entries, is_whole = self._load(TIME_INDEX_SUFFIX, TIME_ENTRY)
        if not is_whole or not len(entries) or entries[-1, 0] >= timestamp:
            return False
        if not self._is_time_of(entries[-1]):
            return False
        behind = self.walk(self._position_before(OFFSET_MAX), offset=0, timestamp=timestamp)
        return behind.status != headers.HIT and behind.position == self.size

    def aborted(self) -> tuple[list[tuple[int, int, int]], bool]:
        """Its index of aborted transactions, each with the offset of its marker; and whether it is sound."""
        content = self._read_beside(TRANSACTION_INDEX_SUFFIX)
        entries = decode_aborted(content, self.base_offset)
        return [entry[:3] for entry in entries], len(entries) * ABORTED_SIZE == len(content)

    def _size_of(self, data: bytes, position: int) -> int:
        """Of the batch whose header `data` begins with; 0 if the file does not hold it."""
        if len(data) < LENGTH_OVERHEAD:
            return 0
        size: int = LENGTH_OVERHEAD + OFFSET_AND_LENGTH.unpack_from(data)[1]
        return size if position + size <= self.size else 0

    def _has_checksum(self, position: int, end: int) -> bool:
        header, crc = self._header_at(position), 0
        position += ATTRIBUTES_POSITION
        while position < end and (data := self.read(position, min(SPARK_PIECE_SIZE, end - position))):
            crc = crc32c(data, crc)
            position += len(data)
        return header is not None and position == end and crc == header.crc

    def _sound_end(self) -> int:
        """As recovery cuts a log: at the first batch with a wrong checksum."""
        position, next_offset = 0, self.base_offset
        while (header := self._header_at(position)) is not None:
            if header.base_offset < next_offset or position + header.size > self.size:
                break
            if not self._has_checksum(position, position + header.size):
                break
            position, next_offset = position + header.size, header.last_offset + 1
        return next_offset

    def _header_at(self, position: int) -> BatchHeader | None:
        data = self.read(position, BATCH_HEADER_SIZE)
        if len(data) < BATCH_HEADER_SIZE:
            return None
        header = read_header(data)
        return header if header.magic == MAGIC and header.size >= BATCH_HEADER_SIZE else None

    def _position_before(self, offset: int) -> int:
        """Of a batch that begins no later than the one with `offset`."""
        entries = self._entries()
        place = int(np.searchsorted(entries[:, 0], offset - self.base_offset, "right")) - 1
        if place < 0:
            return 0
        key, position = map(int, entries[place])
        header = self._header_at(position)
        # An entry of Kafka 3 has the last offset of a whole request, and the position of its first batch.
        if (
            header is None
            or not self.base_offset <= header.base_offset <= header.last_offset <= key + self.base_offset
        ):
            self._offset_entries = entries[:0]
            return 0
        return position

    def _position_behind(self, offset: int) -> int:
        """By the index, all that is below `offset` lies before it."""
        entries = self._entries()
        place = int(np.searchsorted(entries[:, 0], offset - self.base_offset)) + 1
        return int(entries[place, 1]) if place < len(entries) else self.size

    def _entries(self) -> Int64s:
        if self._offset_entries is None:
            entries, _ = self._load(INDEX_SUFFIX, OFFSET_ENTRY)
            self._offset_entries = entries[: np.searchsorted(entries[:, 1], self.size)]
        return self._offset_entries

    def _load(self, suffix: str, entry: Struct) -> tuple[Int64s, bool]:
        """The entries that grow, for Kafka fills the rest with zeros; and whether they are all there is."""
        content = self._read_beside(suffix)
        fields = [(name, f">{code}") for name, code in zip(_FIELDS, entry.format[1:], strict=True)]
        raw = np.frombuffer(content, np.dtype(fields), len(content) // entry.size)
        table = np.stack([raw[name] for name in _FIELDS], axis=1).astype(np.int64)
        grows = (np.diff(table[:, 0], prepend=-1) > 0) & (np.diff(table[:, 1], prepend=-1) > 0)
        count = len(table) if grows.all() else int(np.argmin(grows))
        return table[:count], count * entry.size == len(content)

    def _read_beside(self, suffix: str) -> bytes:
        try:
            return self.path.with_name(file_name(self.base_offset, suffix + self._suffix)).read_bytes()
        except OSError:
            return b""

    def _before_time(self, timestamp: int, start: int) -> Stop:
        """A batch before which none is at or after `timestamp`, or none is at or after `start`."""
        entries, _ = self._load(TIME_INDEX_SUFFIX, TIME_ENTRY)
        place = int(np.searchsorted(entries[:, 0], timestamp)) - 1
        if place >= 0 and self._is_time_of(entries[place]):
            start = max(start, self.base_offset + int(entries[place, 1]))
        return self.locate(start)

    def _is_time_of(self, entry: Int64s) -> bool:
        """Whether the batch that a time index points at has that time."""
        timestamp, offset = map(int, entry)
        at = self.locate(self.base_offset + offset)
        header = self._header_at(at.position) if at.status == headers.HIT else None
        return header is not None and header.max_timestamp == timestamp


def as_view(data: bytes) -> Bytes:
    view = np.frombuffer(data, np.uint8)
    view.flags.writeable = False
    return view
