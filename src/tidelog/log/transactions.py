"""Aborted transactions: the `.txnindex` of each segment, and what a read_committed reader must skip.

**Invariant:** an aborted transaction is in the index of the segment that holds its marker before the
last stable offset moves past it.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from tidelog.base.files import Directory, File
from tidelog.log.segment import TRANSACTION_INDEX_SUFFIX, file_name

_ENTRY = Struct(">hqqqq")
ENTRY_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_transaction_index(content: bytes, base_offset: int = 0) -> list[AbortedTransaction]:
    """The entries of the `.txnindex` of the segment at `base_offset`, up to the first that cannot be one."""
    entries = []
    whole = len(content) - len(content) % _ENTRY.size
    for version, *fields in _ENTRY.iter_unpack(memoryview(content)[:whole]):
        entry = AbortedTransaction(*fields)
        if version != ENTRY_VERSION or entry.last_offset < max(base_offset, entry.first_offset + 1):
            break
        entries.append(entry)
    return entries


class AbortedIndex:
    """The aborted transactions whose markers lie in one segment; the file exists only if there are any."""

    def __init__(self, directory: Directory, base_offset: int) -> None:
        self._directory = directory
        self.name = file_name(base_offset, TRANSACTION_INDEX_SUFFIX)
        content = directory.read_whole(self.name) or b""
        self.entries = read_transaction_index(content, base_offset)
        self.is_damaged = len(self.entries) * _ENTRY.size != len(content)
        self._file: File | None = None

    def append(self, aborted: AbortedTransaction) -> None:
        self._open().append(_ENTRY.pack(ENTRY_VERSION, *aborted))
        self.entries.append(aborted)

    def _open(self) -> File:
        if self._file is None:
            self._file = self._directory.open(self.name)
            self._file.truncate(len(self.entries) * _ENTRY.size)
        return self._file

    def cut_end(self, end_offset: int) -> None:
        """Forget transactions whose marker is at or above `end_offset`."""
        kept = [entry for entry in self.entries if entry.last_offset < end_offset]
        if not kept:
            self.reset()
        elif len(kept) < len(self.entries):
            self.entries = kept
            self._open().truncate(len(kept) * _ENTRY.size)

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
