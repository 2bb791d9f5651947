"""Record batches (magic 2), built once and sent many times.

Sizes are those that librdkafka makes when it is busy: records up to 1,000,000 bytes before compression.

**Invariant:** the same arguments give the same bytes, but for the timestamp of the run.
"""

from __future__ import annotations

import random
import struct
import time
from dataclasses import dataclass

import cramjam
from crc32c import crc32c

BATCH_SIZE_MAX = 1_000_000
HEADER = struct.Struct(">qiibIhiqqqhii")
CODECS = {"none": 0, "lz4": 3, "zstd": 4}
TIMESTAMP_MS = time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Batch:
    content: bytes
    record_count: int

    @property
    def size(self) -> int:
        return len(self.content)


def full_batch(value_size: int, codec: str = "none") -> Batch:
    """As many records of `value_size` as a busy librdkafka puts in one batch."""
    record_size_max = value_size + 12
    return build_batch((BATCH_SIZE_MAX - HEADER.size) // record_size_max, value_size, codec)


def build_batch(record_count: int, value_size: int, codec: str = "none") -> Batch:
    values = random.Random(value_size)
    records = b"".join(_record(index, _value(values, value_size)) for index in range(record_count))
    if codec == "lz4":
        # Kafka's reader takes independent blocks only.
        compressor = cramjam.lz4.Compressor(block_linked=False)
        compressor.compress(records)
        records = bytes(compressor.finish())
    elif codec == "zstd":
        records = bytes(cramjam.zstd.compress(records))
    return Batch(_with_header(records, record_count, CODECS[codec]), record_count)


def _with_header(records: bytes, record_count: int, attributes: int) -> bytes:
    times = (TIMESTAMP_MS, TIMESTAMP_MS)
    checked = (
        struct.pack(">hiqqqhii", attributes, record_count - 1, *times, -1, -1, -1, record_count) + records
    )
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


def _record(index: int, value: bytes) -> bytes:
    body = b"\x00\x00" + varint(index) + varint(-1) + varint(len(value)) + value + b"\x00"
    return varint(len(body)) + body


def _value(values: random.Random, size: int) -> bytes:
    """Something like an event in JSON: it compresses, but not to nothing."""
    text = ""
    while len(text) < size:
        text += f'{{"user":{values.randrange(10**8)},"page":"/item/{values.randrange(10**5)}","ok":true}}'
    return text[:size].encode()


def varint(number: int) -> bytes:
    return uvarint((number << 1) ^ (number >> 63))


def uvarint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
