"""Walking a segment file: header by header, or whole batch by whole batch with the checksum.

**Invariant:** reads bounded pieces and never past the end it was given. A walk never passes over a batch that
is damaged: what lies behind it cannot be told from its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from tidelog.base.files import File
from tidelog.base.limits import (
    BATCH_HEADER_SIZE,
    HEADERS_CHUNK_SIZE,
    LOOKUP_CHUNKS_MAX,
    PAGE_SIZE,
    RELATIVE_OFFSET_MAX,
    SCAN_CHUNK_SIZE,
)
from tidelog.base.reading import Readable
from tidelog.protocol.batch import (
    LENGTH_MIN,
    LENGTH_OVERHEAD,
    MAGIC,
    OFFSET_AND_LENGTH,
    PLACE,
    BatchHeader,
    check_whole,
    read_header,
)
from tidelog.protocol.errors import CorruptBatch

_PLACES_CHUNK_SIZE = PAGE_SIZE
_unpack_place = PLACE.unpack_from


class Damage(CorruptBatch):
    """Stored bytes are not the batch that must be there: in which file, where, and why."""

    def __init__(self, file: str, position: int, problem: str) -> None:
        super().__init__(f"{file} is damaged at {position}: {problem}")
        self.file = file
        self.position = position
        self.problem = problem


class Misindexed(Exception):
    """An index led to no batch, to another one, or to one that is far from the one looked for: a walk from
    there ended at `position`."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class BatchAt(NamedTuple):
    position: int
    header: BatchHeader


def walk_headers(file: File, position: int, end: int) -> Iterator[BatchAt]:
    """The batches from `position` on, by header alone; ends at the first that is not whole, or is none."""
    chunk = b""
    chunk_position = position
    while position + BATCH_HEADER_SIZE <= end:
        inside = position - chunk_position
        if inside + BATCH_HEADER_SIZE > len(chunk):
            chunk = file.read(position, min(HEADERS_CHUNK_SIZE, end - position))
            chunk_position, inside = position, 0
            if len(chunk) < BATCH_HEADER_SIZE:
                return
        header = read_header(chunk, inside)
        if header.magic != MAGIC or header.length < LENGTH_MIN or position + header.size > end:
            return
        yield BatchAt(position, header)
        position += header.size


class Place(NamedTuple):
    """A batch as a reader needs it: where it is, what it begins with, how long it is."""

    position: int
    base_offset: int
    size: int


def is_dense(file: File, end: int, base_offset: int, count_max: int | None = None) -> bool:
    """Whether no record is missing from `base_offset` on, within so many batches, as far as headers tell."""
    expected = base_offset
    for _, header in islice(walk_headers(file, 0, end), count_max):
        if header.base_offset != expected or header.record_count != header.last_offset_delta + 1:
            return False
        expected = header.last_offset + 1
    return True


NO_ENTRY = -1
NO_OFFSET = -2  # what an entry that cannot be says: no batch ends with it


def find_batch(file: File, position: int, end: int, offset: int, expected: int = NO_ENTRY) -> Place | None:
    """The first batch from `position` on whose last offset is not below `offset`; None if the batches end,
    where the file does, before there is one.

    On the way of every fetch, so it reads four fields of each header and no more. `expected` is the last
    offset that an index gives the batch at `position`. Misindexed if that batch has another one, or if the
    walk is longer than the loop has time for; Damage if it meets bytes that are no batch; Cold if it would
    have to wait for the disk.
    """
    for _ in range(LOOKUP_CHUNKS_MAX):
        if not 0 <= position <= end - BATCH_HEADER_SIZE:
            break
        chunk = file.read_now(position, min(_PLACES_CHUNK_SIZE, end - position))
        inside, last_inside = 0, len(chunk) - BATCH_HEADER_SIZE
        while inside <= last_inside:
            base_offset, length, magic, last_delta = _unpack_place(chunk, inside)
            if expected != NO_ENTRY:
                if base_offset + last_delta != expected:
                    raise Misindexed(position)
                expected = NO_ENTRY
            size = length + LENGTH_OVERHEAD
            if magic != MAGIC or length < LENGTH_MIN or position + inside + size > end:
                raise damage_at(file, position + inside, magic, size, end)
            if base_offset + last_delta >= offset:
                return Place(position + inside, base_offset, size)
            inside += size
        if inside == 0:
            raise Damage(file.name, position, f"the file ends before {end}")
        position += inside
    else:
        raise Misindexed(position)
    if expected != NO_ENTRY:
        raise Misindexed(position)
    if position != end:
        raise Damage(file.name, position, f"{end - position} bytes are left over")
    return None


def damage_at(file: File, position: int, magic: int, size: int, end: int) -> Damage:
    """What is wrong with bytes that cannot be a batch."""
    if magic != MAGIC:
        return Damage(file.name, position, f"magic {magic} is not {MAGIC}")
    return Damage(file.name, position, f"a batch of {size} bytes where {end - position} are left")


class Scan:
    """Whole batches from `position` on, each with its checksum checked; stops at the first bad one.

    `position` is where the good part ends, `problem` says why the scan stopped there, if not at the end.
    """

    def __init__(self, file: Readable, position: int, end: int, segment_offset: int = 0) -> None:
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
