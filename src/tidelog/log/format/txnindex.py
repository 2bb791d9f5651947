"""The content of a `.txnindex` file: the aborted transactions whose markers lie in one segment.

**Invariant:** decoding ends at the first entry that cannot be one; markers stand in the order of the log.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

_ENTRY = Struct(">hqqqq")
_VERSION = 0
ABORTED_SIZE = _ENTRY.size  # of one transaction


class AbortedTransaction(NamedTuple):
    """`last_offset` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(aborted: AbortedTransaction) -> bytes:
    return _ENTRY.pack(_VERSION, *aborted)


def decode_aborted(content: bytes, base_offset: int = 0) -> list[AbortedTransaction]:
    """The entries of the `.txnindex` of the segment at `base_offset`; all that are good, if the last ones are
    not: those have `ABORTED_SIZE` bytes each."""
    entries: list[AbortedTransaction] = []
    least = base_offset
    whole = len(content) - len(content) % _ENTRY.size
    for version, *fields in _ENTRY.iter_unpack(memoryview(content)[:whole]):
        entry = AbortedTransaction(*fields)
        if version != _VERSION or entry.last_offset < max(least, entry.first_offset + 1):
            break
        entries.append(entry)
        least = entry.last_offset
    return entries
