"""The indexes of a segment held against its batches, one walk over both.

An entry of `.index` names a batch by its position and the last offset of it, or of one that was appended
with it; an entry of `.timeindex` says that up to its offset no timestamp is greater. Zeros at the end are
Kafka's: it makes an index at its full size and cuts it when it is closed.

**Invariant:** the first wrong entry is the only one reported; the rest of that file means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tidelog.base.reading import Readable
from tidelog.log.format.index import OFFSET_ENTRY, TIME_ENTRY
from tidelog.log.scan import BatchAt
from tidelog.protocol.batch import NO_TIMESTAMP

_BLOCK_SIZE = 16 * 1024


class WrongEntry(NamedTuple):
    position: int
    problem: str


class _Entries:
    """Pairs of growing numbers, looked at one by one; none if there is no file."""

    entry: Struct

    def __init__(self, file: Readable | None) -> None:
        content, file_size = (_read_filled(file), file.size) if file is not None else (b"", 0)
        size = self.entry.size
        self.wrong: WrongEntry | None = None
        self.file_size = file_size
        self.is_whole = file_size % size == 0
        filled_count = -(-len(content.rstrip(b"\0")) // size)
        whole_size = min(filled_count * size, len(content) - len(content) % size)
        self._rest: Iterator[tuple[int, int]] = self.entry.iter_unpack(content[:whole_size])
        # The entry at the end of the file, all that a broker looks at before it believes the rest.
        self.final = self.entry.unpack_from(content, whole_size - size) if whole_size else None
        self._place = -1
        self._last: tuple[int, int] | None = None
        self._current: tuple[int, int] | None = None
        self._cut_off_at = None if self.is_whole else whole_size
        self._advance()

    def _advance(self) -> None:
        """Go to the next entry; `current` is None when there is none, or none that can be."""
        self._last = self._current or self._last
        self._current = None
        found = next(self._rest, None)
        self._place += 1
        if found is None:
            if self._cut_off_at is not None:
                self._place = self._cut_off_at // self.entry.size
                self._fail("the last entry is cut off")
        elif self._last is not None and (found[0] <= self._last[0] or found[1] < self._last[1]):
            self._fail(f"the entry {found} does not follow {self._last}")
        elif min(found) < 0:
            self._fail(f"the entry {found} is negative")
        else:
            self._current = found

    def _fail(self, problem: str) -> None:
        if self.wrong is None:
            self.wrong = WrongEntry(self._place * self.entry.size, problem)
        self._current = None
        self._rest = iter(())
        self._cut_off_at = None


def _read_filled(file: Readable) -> bytes:
    """The content up to the zeros that fill the rest, of which there may be 10 MiB."""
    content = b""
    while (block := file.read(len(content), _BLOCK_SIZE)).strip(b"\0"):
        content += block
    return content


class OffsetEntries(_Entries):
    entry = OFFSET_ENTRY

    def __init__(self, file: Readable | None, base_offset: int) -> None:
        self._base_offset = base_offset
        self._awaited: int | None = None  # the last offset that the batches from the entry's on must reach
        super().__init__(file)

    def is_sane(self, segment_size: int) -> bool:
        """Whether a broker believes it without reading the log."""
        return self.is_whole and (self.final is None or 0 < self.final[1] < segment_size)

    def on_batch(self, batch: BatchAt) -> None:
        if self._current is not None and self._current[1] <= batch.position:
            self._meet(batch)
        if self._awaited is not None and batch.header.last_offset >= self._awaited:
            if batch.header.last_offset > self._awaited:
                self._place -= 1
                self._fail(f"no batch from here on ends with offset {self._awaited}")
            self._awaited = None

    def skip(self, position: int) -> None:
        """There is a bad batch; an entry for it can be as right as any."""
        self._awaited = None
        if self._current is not None and self._current[1] == position:
            self._advance()

    def _meet(self, batch: BatchAt) -> None:
        assert self._current is not None
        offset, position = self._base_offset + self._current[0], self._current[1]
        if position < batch.position:
            self._fail(f"position {position} of the log is inside a batch")
        else:
            self._awaited = offset
            self._advance()

    def on_end(self, segment_size: int) -> None:
        """The whole segment was seen."""
        if self._awaited is not None and self.wrong is None:
            self._place -= 1
            self._fail(f"offset {self._awaited} is not in the log")
        elif self._current is not None:
            self._fail(f"position {self._current[1]} is behind the log's end at {segment_size}")


class TimeEntries(_Entries):
    entry = TIME_ENTRY

    def __init__(self, file: Readable | None, base_offset: int) -> None:
        self._base_offset = base_offset
        self.largest = NO_TIMESTAMP
        self._first: int | None = None  # the first batch's
        self._is_given_up = False
        super().__init__(file)

    def is_sane(self, segment_size: int) -> bool:
        """Whether a broker believes it without reading more of the log than its first batch."""
        if self.final is not None and self.final[0] != 0:
            return self.is_whole and min(self.final) >= 0
        largest = NO_TIMESTAMP if not self.file_size else 0
        is_fitting = self._first is not None and self._first <= largest
        return self.is_whole and self.file_size <= self.entry.size and (is_fitting or not segment_size)

    def on_batch(self, batch: BatchAt) -> None:
        if self._first is None:
            self._first = batch.header.max_timestamp
        self.largest = max(self.largest, batch.header.max_timestamp)
        while self._current is not None and self._base_offset + self._current[1] <= batch.header.last_offset:
            timestamp, offset = self._current[0], self._base_offset + self._current[1]
            if timestamp != self.largest:
                self._fail(
                    f"timestamp {timestamp} is not the greatest up to offset {offset}: {self.largest} is"
                )
            else:
                self._advance()

    def give_up(self) -> None:
        """A batch cannot be read, so what is the greatest timestamp from there on is not known."""
        self._rest, self._current, self._is_given_up = iter(()), None, True

    def on_end(self, is_sealed: bool) -> None:
        """The whole segment was seen."""
        if self._current is not None:
            self._fail(f"offset {self._base_offset + self._current[1]} is not in the log")
        elif (
            self.wrong is None
            and is_sealed
            and not self._is_given_up
            and self.largest
            > (self._last or (0,))[0]  # an entry for 0 may be all zeros, as if there were none
        ):
            self._fail(f"the last entry is not the segment's greatest timestamp, {self.largest}")
