"""One partition's folder as a log: where it begins and ends, what was at a time, its batches.

The broker may append, roll, compact, delete and cut while we read. Segments are listed anew for each one that
is read, and a file that went away is looked for under another name before its records count as gone.

**Invariant:** batches come in the order of their offsets, none twice, none left out that the folder has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from os import listdir
from pathlib import Path
from typing import TypeVar

from tidelog.client.errors import DamagedBatch, OffsetOutOfRange, TopicGone, TopicPartition
from tidelog.client.reader import RawBatches
from tidelog.log.format.names import LOG_SUFFIX, SWAP_SUFFIX, offset_in_name
from tidelog.protocol.errors import CorruptBatch
from tidelog.spark.segment_file import FoundTime, Piece, SegmentFile
from tidelog.spark.transaction_books import TransactionBooks, names_from, offset_of

_ATTEMPTS = 10  # to open a file that is listed and gone when it is opened

Answer = TypeVar("Answer")


class PartitionLog:
    def __init__(
        self,
        partition: TopicPartition,
        folder: Path,
        start_min: int = 0,
        high_watermark: int | None = None,
        books: dict[TopicPartition, TransactionBooks] | None = None,
    ) -> None:
        """`books` are kept there from one look at a log to the next."""
        self._partition = partition
        self._folder = folder
        self._start_min = start_min  # what was deleted before it is not there, even if a segment has it
        self._high_watermark = high_watermark
        self._books = books if books is not None else {}

    def start(self) -> int:
        names = self._names()
        return max(self._start_min, offset_of(names[0]) if names else 0)

    def end(self, *, committed_only: bool = False) -> int:
        """The high watermark, or with `committed_only` the last stable offset."""
        return self._steadily(lambda: self._end(committed_only))

    def find_time(self, timestamp: int, *, committed_only: bool = False) -> FoundTime | None:
        """The first record that may be read and is not older than that."""
        end = self.end(committed_only=committed_only)
        try:
            found = self._steadily(lambda: self._find_time(timestamp, end))
        except CorruptBatch as problem:
            raise DamagedBatch(f"{self._partition}: looking for a time: {problem}") from problem
        return found if found is not None and found.offset < end else None

    def read(self, start: int, end: int) -> Iterator[RawBatches]:
        """The batches that reach into [start, end)."""
        if start < end and start < self.start():
            raise self._out_of_range(start)
        offset, failures = start, 0
        books: TransactionBooks | None = None
        while offset < end:
            before, names = offset, names_from(self._names(), offset)
            if not names or offset < offset_of(names[0]):
                raise self._out_of_range(offset)
            try:
                with SegmentFile(self._folder, names[0]) as file:
                    for piece in file.pieces(offset, end):
                        if books is None and piece.has_transactions:
                            books = TransactionBooks(self._folder, self._names(), since=offset)
                        yield _raw(piece, offset, books)
                        offset, failures = piece.next_offset, 0
                    offset = self._go_on(file, names[1:], before, offset, end)
            except FileNotFoundError:
                failures += 1
                if failures == _ATTEMPTS:
                    raise

    def _go_on(self, file: SegmentFile, later: Sequence[str], before: int, offset: int, end: int) -> int:
        """Where to read on when a segment has no more: in what it has got meanwhile, or in the next one."""
        if offset >= end or file.is_past_end:
            return end
        if later and not file.rest_size:
            return max(offset, offset_of(later[0]))
        if offset > before:
            return offset
        if later:
            raise DamagedBatch(
                f"{self._partition}: {file.path} has no whole batch at offset {offset}, and there are "
                "later segments: it is damaged, or was copied while it was written"
            )
        raise self._out_of_range(offset)

    def _out_of_range(self, offset: int) -> OffsetOutOfRange:
        first, last = self.start(), self._steadily(self._log_end)
        return OffsetOutOfRange(
            f"{self._partition}: offset {offset} is not in {self._folder}, which has {first} to {last}",
            offset,
            first,
            last,
        )

    def _log_end(self) -> int:
        names = self._names()
        if not names:
            return self.start()
        with SegmentFile(self._folder, names[-1]) as file:
            return max(self.start(), file.end())

    def _end(self, committed_only: bool) -> int:
        end = self._log_end()
        if self._high_watermark is not None:
            end = min(end, self._high_watermark)
        if committed_only:
            first_open = self._books_until(end).first_open_offset
            end = end if first_open is None else min(end, first_open)
        return max(self.start(), end)

    def _books_until(self, end: int) -> TransactionBooks:
        names = self._names()
        books = self._books.pop(self._partition, None)  # half updated, they are of no use
        if books is None or not books.updated(self._folder, names, end):
            books = TransactionBooks(self._folder, names, end=end)
        self._books[self._partition] = books
        return books

    def _find_time(self, timestamp: int, end: int) -> FoundTime | None:
        start = self.start()
        names = names_from(self._names(), start)
        for name in names:
            with SegmentFile(self._folder, name) as file:
                if name != names[-1] and file.is_older_than(timestamp):
                    continue
                found = file.find_time(timestamp, start, end)
                if found is not None:
                    return found
        return None

    def _names(self) -> list[str]:
        """The segments, in order; what compaction has made and not yet renamed fills the holes it leaves."""
        names = self._list()
        while (again := self._list()) != names:  # a folder that changes may be listed with a file missing
            names = again
        return names

    def _list(self) -> list[str]:
        found: dict[int, str] = {}
        try:
            for name in listdir(self._folder):
                if (base := offset_in_name(name, LOG_SUFFIX)) is not None:
                    found[base] = name
                elif (base := offset_in_name(name, LOG_SUFFIX + SWAP_SUFFIX)) is not None:
                    found.setdefault(base, name)
        except (FileNotFoundError, NotADirectoryError) as problem:
            raise TopicGone(f"{self._partition}: {self._folder} is not there any more") from problem
        return [found[base] for base in sorted(found)]

    def _steadily(self, look: Callable[[], Answer]) -> Answer:
        """Look again when a file went away between its listing and its opening."""
        for _ in range(_ATTEMPTS):
            try:
                return look()
            except FileNotFoundError:
                continue
        return look()


def _raw(piece: Piece, offset: int, books: TransactionBooks | None) -> RawBatches:
    aborted = books.aborted_between(offset, piece.next_offset) if books and piece.has_transactions else None
    return RawBatches(memoryview(piece.data), 0, piece.end, aborted, piece.next_offset)
