"""Transactions that have ended: those that a read_committed reader must skip, by the `.txnindex` of each
segment, and those whose marker may not be committed yet.

**Invariant:** an aborted transaction is in the index of the segment that holds its marker before the
last stable offset moves past it; that never moves past a transaction whose marker may be lost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from tidelog.base.files import Directory, File
from tidelog.log.format.names import TRANSACTION_INDEX_SUFFIX, file_name
from tidelog.log.format.txnindex import ABORTED_SIZE, AbortedTransaction, decode_aborted, encode_aborted


class Undecided:
    """Transactions whose marker is in the log and perhaps not committed: where the marker is and where the
    transaction began.

    Kept are those that began before all that ended behind them: no other can be the first. Should what
    stands for them be cut off, its transaction is open again, and began before theirs.
    """

    __slots__ = ("ends",)

    def __init__(self) -> None:
        self.ends: deque[tuple[int, int]] = deque()  # both rise

    def note(self, marker_offset: int, first_offset: int) -> None:
        """A marker follows those that are known; a replay may come by one of them again."""
        ends = self.ends
        if ends and marker_offset <= ends[-1][0]:
            return
        while ends and ends[-1][1] >= first_offset:
            ends.pop()
        ends.append((marker_offset, first_offset))

    def least(self, stable: int, high_watermark: int) -> int:
        """`stable`, or where the first transaction began whose marker is not below the high watermark."""
        ends = self.ends
        while ends and ends[0][0] < high_watermark:
            ends.popleft()
        return min(stable, ends[0][1]) if ends else stable

    def cut_end(self, end_offset: int) -> None:
        """Forget markers at or above `end_offset`."""
        ends = self.ends
        while ends and ends[-1][0] >= end_offset:
            ends.pop()


class AbortedIndex:
    """The aborted transactions whose markers lie in one segment; the file exists only if there are any."""

    def __init__(self, directory: Directory, base_offset: int) -> None:
        self._directory = directory
        self.name = file_name(base_offset, TRANSACTION_INDEX_SUFFIX)
        content = directory.read_whole(self.name) or b""
        self.entries = decode_aborted(content, base_offset)
        self.is_damaged = len(self.entries) * ABORTED_SIZE != len(content)
        self._file: File | None = None

    def collect(self, start_offset: int, end_offset: int, found: list[AbortedTransaction]) -> bool:
        """Add those that reach into [start, end). True if none behind these can: where one ended, all that
        began below its last stable offset had ended (KIP-98)."""
        entries = self.entries
        for place in range(bisect_left(entries, start_offset, key=_last_offset), len(entries)):
            entry = entries[place]
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return True
        return False

    def append(self, aborted: AbortedTransaction) -> None:
        self._open().append(encode_aborted(aborted))
        self.entries.append(aborted)

    def _open(self) -> File:
        if self._file is None:
            self._file = self._directory.open(self.name)
            self._file.truncate(len(self.entries) * ABORTED_SIZE)
        return self._file

    def cut_end(self, end_offset: int) -> None:
        """Forget transactions whose marker is at or above `end_offset`."""
        kept = [entry for entry in self.entries if entry.last_offset < end_offset]
        if not kept:
            self.reset()
        elif len(kept) < len(self.entries):
            self.entries = kept
            self._open().truncate(len(kept) * ABORTED_SIZE)

    def reset(self) -> None:
        self.close()
        self.entries = []
        self.is_damaged = False
        self._directory.remove(self.name)

    def files(self) -> list[File]:
        return [self._file] if self._file is not None else []

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _last_offset(entry: AbortedTransaction) -> int:
    return entry.last_offset
