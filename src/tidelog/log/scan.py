"""Walking a segment file: header by header, or whole batch by whole batch with the checksum.

**Invariant:** reads bounded pieces and never past the end it was given.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tidelog.base.files import File
from tidelog.base.limits import BATCH_HEADER_SIZE, RELATIVE_OFFSET_MAX, SCAN_CHUNK_SIZE
from tidelog.protocol.batch import (
    LENGTH_MIN,
    LENGTH_OVERHEAD,
    OFFSET_AND_LENGTH,
    BatchHeader,
    check_whole,
    read_header,
)
from tidelog.protocol.errors import CorruptBatch

_HEADERS_CHUNK_SIZE = 8 * 1024
_PLACES_CHUNK_SIZE = 4 * 1024
_unpack_place = Struct(">qi11xi").unpack_from


class BatchAt(NamedTuple):
    position: int
    header: BatchHeader


def walk_headers(file: File, position: int, end: int) -> Iterator[BatchAt]:
    """The batches from `position` on, by header alone; ends at the first that is not whole."""
    chunk = b""
    chunk_position = position
    while position + BATCH_HEADER_SIZE <= end:
        inside = position - chunk_position
        if inside + BATCH_HEADER_SIZE > len(chunk):
            chunk = file.read(position, min(_HEADERS_CHUNK_SIZE, end - position))
            chunk_position, inside = position, 0
            if len(chunk) < BATCH_HEADER_SIZE:
                return
        header = read_header(chunk, inside)
        if header.length < LENGTH_MIN or position + header.size > end:
            return
        yield BatchAt(position, header)
        position += header.size


class Place(NamedTuple):
    """A batch as a reader needs it: where it is, what it begins with, how long it is."""

    position: int
    base_offset: int
    size: int


def find_batch(file: File, position: int, end: int, offset: int, expected: int = -1) -> Place | None:
    """The first batch from `position` on whose last offset is not below `offset`.

    On the way of every fetch, so it reads three fields of each header and no more. `expected` is the last
    offset that the batch at `position` must have, if that is known; LookupError if it has another.
    """
    while 0 <= position <= end - BATCH_HEADER_SIZE:
        chunk = file.read(position, min(_PLACES_CHUNK_SIZE, end - position))
        inside, last_inside = 0, len(chunk) - BATCH_HEADER_SIZE
        while inside <= last_inside:
            base_offset, length, last_delta = _unpack_place(chunk, inside)
            if expected >= 0 and (base_offset + last_delta != expected or chunk[inside + 16] != 2):
                raise LookupError(f"no batch that ends with {expected} at {position}")
            expected = -1
            size = length + LENGTH_OVERHEAD
            if length < LENGTH_MIN or position + inside + size > end:
                return None
            if base_offset + last_delta >= offset:
                return Place(position + inside, base_offset, size)
            inside += size
        if inside == 0:
            break
        position += inside
    if expected >= 0:
        raise LookupError(f"no batch at {position}")
    return None


class Scan:
    """Whole batches from `position` on, each with its checksum checked; stops at the first bad one.

    `position` is where the good part ends, `problem` says why the scan stopped there, if not at the end.
    """

    def __init__(self, file: File, position: int, end: int, segment_offset: int = 0) -> None:
        self._file = file
        self._end = end
        self._segment_offset = segment_offset
        self.position = position
        self.problem: str | None = None

    def batches(self) -> Iterator[tuple[BatchAt, memoryview]]:
        chunk = memoryview(b"")
        chunk_position = self.position
        while self.position < self._end:
            inside = self.position - chunk_position
            size = self._batch_size(chunk, inside)
            if size is None or inside + size > len(chunk):
                wanted = max(SCAN_CHUNK_SIZE, size or 0)
                chunk = memoryview(self._file.read(self.position, min(wanted, self._end - self.position)))
                chunk_position, inside = self.position, 0
                size = self._batch_size(chunk, 0)
            if size is None or size > self._end - self.position:
                self.problem = f"a batch at {self.position} is cut off at {self._end}"
                return
            if size > len(chunk):
                chunk = memoryview(self._file.read(self.position, size))
            if (header := self._checked(chunk, inside, size)) is None:
                return
            yield BatchAt(self.position, header), chunk[inside : inside + size]
            self.position += size

    def _batch_size(self, chunk: memoryview, inside: int) -> int | None:
        """The size the batch announces, or None if that cannot be read from the chunk."""
        if inside + BATCH_HEADER_SIZE > len(chunk):
            return None
        length: int = OFFSET_AND_LENGTH.unpack_from(chunk, inside)[1]
        return length + OFFSET_AND_LENGTH.size if length >= LENGTH_MIN else BATCH_HEADER_SIZE

    def _checked(self, chunk: memoryview, inside: int, size: int) -> BatchHeader | None:
        try:
            header = check_whole(chunk, inside, inside + size)
        except CorruptBatch as error:
            self.problem = f"a batch at {self.position} is corrupt: {error}"
            return None
        # No checksum covers the base offset, and an index has 31 bits for what is above its segment's.
        if not 0 <= header.last_offset - self._segment_offset <= RELATIVE_OFFSET_MAX:
            self.problem = f"a batch at {self.position} has offset {header.base_offset}"
            return None
        return header
