"""The content of a `.snapshot` file: what a log knows of each producer at the offset that names the file.

**Invariant:** a snapshot is decoded whole or not at all; its checksum covers every entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tidelog.protocol.errors import CorruptBatch

_VERSION = 1
_PREFIX = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
pack_entry = _ENTRY.pack  # of the fields of a `ProducerEntry`


class ProducerEntry(NamedTuple):
    """`last_offset` and `open_transaction_offset` are -1 where there is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    open_transaction_offset: int


def encode_snapshot(entries: Sequence[bytes]) -> bytes:
    """Of entries that `pack_entry` has made."""
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(content: bytes) -> list[ProducerEntry]:
    """CorruptBatch if the content is not a whole snapshot."""
    if len(content) < _PREFIX.size + _COUNT.size:
        raise CorruptBatch("producer snapshot is too short")
    version, crc = _PREFIX.unpack_from(content)
    body = memoryview(content)[_PREFIX.size :]
    if version != _VERSION:
        raise CorruptBatch(f"producer snapshot has version {version}")
    if crc32c(body) != crc:
        raise CorruptBatch("producer snapshot has a wrong checksum")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptBatch(f"producer snapshot of {count} entries has {len(body)} bytes")
    return list(map(ProducerEntry._make, _ENTRY.iter_unpack(body[_COUNT.size :])))
