"""Batches written once more, with fewer records: the same offsets, producer, leader epoch and codec.

**Invariant:** a batch is made only of one whose checksum was right; each record keeps its offset and its
timestamp.
"""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from tidelog.base.files import Buffer
from tidelog.base.limits import BATCH_HEADER_SIZE, DECOMPRESSED_SIZE_MAX
from tidelog.log.compaction.keys import Kept, KeyMap
from tidelog.protocol.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    HEADER,
    LENGTH_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
)
from tidelog.protocol.compression import compress, decompress

_CRC = Struct(">I")
TIMESTAMP_MAX = 2**63 - 1  # beyond it a batch says nothing that a reader takes


def has_horizon(header: BatchHeader) -> bool:
    return bool(header.attributes & DELETE_HORIZON_BIT)


def read_body(header: BatchHeader, batch: memoryview) -> Buffer:
    """The decompressed records."""
    body = batch[BATCH_HEADER_SIZE:]
    return decompress(header.codec, body, DECOMPRESSED_SIZE_MAX) if header.codec else body


def empty_batch(header: BatchHeader) -> bytearray:
    """The bare header: base and last offset, producer, leader epoch, and the largest timestamp there was."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    bare = header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)
    return _assemble(bare, b"")


def partial_batch(header: BatchHeader, kept: Kept) -> bytearray:
    """The batch with the records that were kept; its base timestamp is what their deltas count from."""
    return _assemble(_with_kept(header, kept), _compressed(header, kept.body))


def expiring_batch(header: BatchHeader, kept: Kept, keys: KeyMap, horizon_ms: int) -> bytearray | None:
    """The same with a delete horizon; None if a timestamp is too far from that."""
    fewer = _with_kept(header, kept)
    difference = header.base_timestamp - horizon_ms
    if difference < -TIMESTAMP_MAX:
        return None
    body = keys.move_times(kept.body, fewer, difference)
    if body is None:
        return None
    attributes = header.attributes | DELETE_HORIZON_BIT
    marked = fewer._replace(attributes=attributes, base_timestamp=horizon_ms)
    return _assemble(marked, _compressed(header, body))


def _compressed(header: BatchHeader, body: Buffer) -> Buffer:
    return compress(header.codec, body) if header.codec else body


def _with_kept(header: BatchHeader, kept: Kept) -> BatchHeader:
    largest = header.max_timestamp
    if not header.uses_append_time:
        largest = min(header.base_timestamp + kept.last_time_delta, TIMESTAMP_MAX)
        largest = max(largest, -TIMESTAMP_MAX)
    return header._replace(max_timestamp=largest, record_count=kept.record_count)


def _assemble(header: BatchHeader, body: Buffer) -> bytearray:
    batch = bytearray(BATCH_HEADER_SIZE)
    batch += body
    HEADER.pack_into(batch, 0, *header._replace(length=len(batch) - LENGTH_OVERHEAD))
    _CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return batch
