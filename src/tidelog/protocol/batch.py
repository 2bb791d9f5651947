"""The record batch, magic 2: a 61-byte header that the broker checks in full, and a body that it does not
read.

The CRC covers everything from `attributes` to the end, so base offset and leader epoch can be stamped
without changing it (L3).

**Invariant:** nothing here reads a record.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tidelog.base.files import Buffer
from tidelog.base.limits import BATCH_HEADER_SIZE
from tidelog.protocol.errors import CorruptBatch

MAGIC = 2
OFFSET_MAX = 2**63 - 1  # of eight bytes
HEADER = Struct(">qiibIhiqqqhii")
assert HEADER.size == BATCH_HEADER_SIZE
OFFSET_AND_LENGTH = Struct(">qi")
LAST_DELTA_AND_TIMESTAMP = Struct(">23xi8xq")
PLACE = Struct(">qi4xb6xi")  # what a walk needs: base offset, length, magic, last offset delta
PLACE_AND_TIMESTAMP = Struct(">qi4xb6xi8xq")  # and the max timestamp
LENGTH_OVERHEAD = 12  # base offset and length itself: not counted in `length`
LENGTH_MIN = BATCH_HEADER_SIZE - LENGTH_OVERHEAD  # a batch is its header at least
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
LAST_DELTA_POSITION = 23
MAX_TIMESTAMP_POSITION = 35
PRODUCER_ID_POSITION = 43
RECORD_COUNT_POSITION = 57

CODEC_MASK = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40  # set by compaction: the base timestamp says when a tombstone may be deleted
KNOWN_ATTRIBUTES = 0x7F

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_OFFSET = Struct(">q")


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def uses_append_time(self) -> bool:
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def last_sequence(self) -> int:
        """The last sequence; sequences wrap from 2^31 - 1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; the caller must ensure that 61 bytes are available."""
    return BatchHeader._make(HEADER.unpack_from(data, position))


def compute_crc(view: memoryview, start: int, end: int) -> int:
    return crc32c(view[start + ATTRIBUTES_POSITION : end])


def check_whole(view: memoryview, start: int, end: int) -> BatchHeader:
    """The header of the batch that must fill `view[start:end]` exactly; CorruptBatch if it does not.

    Recovery checks these properties of a batch: length, magic, CRC. The stricter rules for producers are
    checked by the log before an append.
    """
    if end - start < BATCH_HEADER_SIZE:
        raise CorruptBatch(f"a batch of {end - start} bytes is shorter than its header")
    header = read_header(view, start)
    if header.length + LENGTH_OVERHEAD != end - start:
        raise CorruptBatch(f"batch length {header.length} does not match its {end - start} bytes")
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic} is not {MAGIC}")
    if crc32c(view[start + ATTRIBUTES_POSITION : end]) != header.crc:
        raise CorruptBatch("checksum does not match")
    if header.last_offset_delta < 0 or not 0 <= header.base_offset <= OFFSET_MAX - header.last_offset_delta:
        raise CorruptBatch(f"offsets {header.base_offset}+{header.last_offset_delta} cannot be")
    return header


def stamp(buffer: memoryview, start: int, base_offset: int, leader_epoch: int) -> None:
    """Write the broker's two fields, both outside the checksum."""
    _OFFSET.pack_into(buffer, start, base_offset)
    _EPOCH.pack_into(buffer, start + 12, leader_epoch)


def stamp_append_time(buffer: memoryview, start: int, end: int, attributes: int, now_ms: int) -> None:
    """LogAppendTime: set attribute and max timestamp in the header to the broker's, and recompute the CRC."""
    _ATTRIBUTES.pack_into(buffer, start + ATTRIBUTES_POSITION, attributes | APPEND_TIME_BIT)
    _TIMESTAMP.pack_into(buffer, start + MAX_TIMESTAMP_POSITION, now_ms)
    _CRC.pack_into(buffer, start + CRC_POSITION, compute_crc(buffer, start, end))
