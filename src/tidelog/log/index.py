"""The sparse indexes of a segment: offset to position, and timestamp to offset, as
`format.index` has their entries.

Entries are kept in memory until there are some hundred of them, then written in one call; a crash may
lose them and recovery rebuilds them from the log. Look-ups are a binary search over the file and what
is still in memory.

**Invariant:** keys grow strictly; an index that says otherwise is thrown away and rebuilt. One whose file is
shorter than it was raises `struct.error`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from struct import Struct

from tidelog.base.files import Buffer, Directory, File
from tidelog.base.limits import INDEX_TAIL_ENTRIES_MAX
from tidelog.log.format.index import OFFSET_ENTRY, TIME_ENTRY
from tidelog.protocol.batch import NO_TIMESTAMP

_BLOCK_ENTRIES = INDEX_TAIL_ENTRIES_MAX


class SparseIndex:
    """Pairs of growing numbers in a file; the base of both indexes."""

    entry: Struct

    def __init__(self, directory: Directory, name: str) -> None:
        self._directory = directory
        self.name = name
        self._file: File | None = None
        self._written_count = 0
        self._tail: list[tuple[int, int]] = []
        self._summary: list[int] | None = None  # the first key of each block in the file

    def open(self) -> File:
        """The file, opened at first use: a sealed segment that nobody reads costs no descriptor."""
        if self._file is None:
            self._file = self._directory.open(self.name)
            self._written_count = self._file.size // self.entry.size
        return self._file

    @property
    def count(self) -> int:
        self.open()
        return self._written_count + len(self._tail)

    def append(self, key: int, value: int) -> None:
        self._tail.append((key, value))
        if len(self._tail) >= INDEX_TAIL_ENTRIES_MAX:
            self.write_tail()

    def write_tail(self) -> None:
        if not self._tail:
            return
        file = self.open()
        pack = self.entry.pack
        file.append(b"".join([pack(key, value) for key, value in self._tail]))
        self._summary = None if self._written_count % _BLOCK_ENTRIES else self._summary
        if self._summary is not None:
            self._summary.append(self._tail[0][0])
        self._written_count += len(self._tail)
        self._tail.clear()

    def at(self, place: int) -> tuple[int, int]:
        file = self.open()
        if place >= self._written_count:
            return self._tail[place - self._written_count]
        key, value = self.entry.unpack(file.read(place * self.entry.size, self.entry.size))
        return key, value

    def last(self) -> tuple[int, int] | None:
        count = self.count
        return self.at(count - 1) if count else None

    def floor(self, key: int) -> tuple[int, int] | None:
        """The last entry whose key is not above `key`; Cold if the disk would have to be waited for."""
        self.open()
        if self._tail and self._tail[0][0] <= key:
            return self._tail[bisect_right(self._tail, key, key=_first) - 1]
        place, first, block = self._search_file(key, self.open().read_now)
        if place == first:  # before all entries, or the keys do not grow
            return self.at(place - 1) if place else None
        key, value = self.entry.unpack_from(block, (place - 1 - first) * self.entry.size)
        return key, value

    def place_after(self, key: int) -> int:
        """How many entries have a key that is not above `key`."""
        self.open()
        if self._tail and self._tail[0][0] <= key:
            return self._written_count + bisect_right(self._tail, key, key=_first)
        return self._search_file(key, self.open().read)[0]

    def probe_last(self) -> None:
        """Cold if the last entry is not in memory."""
        place = self.count - 1
        if 0 <= place < self._written_count:
            self.open().read_now(place * self.entry.size, self.entry.size)

    def _search_file(self, key: int, read: Callable[[int, int], Buffer]) -> tuple[int, int, Buffer]:
        """One search in memory for the block, one read of the block, one search inside it: how many entries
        have a key that is not above `key`, the place of the block's first, and the block."""
        if self._summary is None:
            self._summary = [
                self.entry.unpack(read(place * self.entry.size, self.entry.size))[0]
                for place in range(0, self._written_count, _BLOCK_ENTRIES)
            ]
        first = max(bisect_right(self._summary, key) - 1, 0) * _BLOCK_ENTRIES
        size, unpack = self.entry.size, self.entry.unpack_from
        low, high = first, min(first + _BLOCK_ENTRIES, self._written_count)
        block = read(low * size, (high - low) * size)
        while low < high:
            middle = (low + high) // 2
            if unpack(block, (middle - first) * size)[0] <= key:
                low = middle + 1
            else:
                high = middle
        return low, first, block

    def is_whole(self) -> bool:
        return self.open().size % self.entry.size == 0

    def reset(self) -> None:
        self._tail.clear()
        self._summary = None
        self.open().truncate(0)
        self._written_count = 0

    def replace(self, entries: Buffer) -> None:
        """Have these packed entries and no others."""
        self.reset()
        self._written_count = len(entries) // self.entry.size
        if entries:
            self.open().append(entries)

    def packed_from(self, place: int) -> bytes:
        """The entries from `place` on, as a file has them."""
        size, file = self.entry.size, self.open()
        written = file.read(place * size, max(self._written_count - place, 0) * size)
        return written + b"".join(
            [self.entry.pack(*each) for each in self._tail[max(place - self._written_count, 0) :]]
        )

    def files(self) -> list[File]:
        return [self._file] if self._file is not None else []

    def abandon(self) -> None:
        self._tail.clear()

    def close(self) -> None:
        if self._file is not None:
            self.write_tail()
            self._file.close()
            self._file = None


class OffsetIndex(SparseIndex):
    """Last offset of a batch, relative to the segment's base, to the batch's position."""

    entry = OFFSET_ENTRY

    def is_sane(self, segment_size: int, interval: int) -> bool:
        """Whether it can be believed without reading the log: the first batch never has an entry."""
        last = self.last()
        if last is None:
            return self.is_whole() and segment_size <= 2 * interval
        return self.is_whole() and last[0] >= 0 and 0 < last[1] < segment_size

    def place_behind(self, position: int) -> int:
        """How many entries do not point behind `position`."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.at(middle)[1] <= position else (low, middle)
        return low


class TimeIndex(SparseIndex):
    """The largest timestamp so far to the relative offset it was seen at."""

    entry = TIME_ENTRY

    def is_sane(self, segment_size: int, first_timestamp: Callable[[], int | None]) -> bool:
        """Whether a sealed segment's can be believed: sealing wrote the segment's largest timestamp. Where
        that is 0, or there was none, a damaged index could look the same: the first batch is asked."""
        last = self.last()
        if not self.is_whole() or (last is not None and min(last) < 0):
            return False
        largest = last[0] if last is not None else NO_TIMESTAMP
        if largest > 0 or not segment_size:
            return largest != 0
        first = first_timestamp()
        return self.count <= 1 and first is not None and first <= largest

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        last = self.last()
        if timestamp > (last[0] if last is not None else NO_TIMESTAMP):
            self.append(timestamp, relative_offset)


def _first(entry: tuple[int, int]) -> int:
    return entry[0]
