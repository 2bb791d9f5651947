"""The compiled loop over the headers of record batches: their positions, and whether they are whole.

**Invariant:** numba checks no bounds, so every read is preceded by a comparison with the end of the input and
every write by one with the rows of the table.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from tidelog.base.compiled import (
    INT64S,
    TABLE,
    Bytes,
    Int64s,
    compiled,
    int8,
    int64,
    part,
    read_only,
    uint32,
)
from tidelog.base.limits import BATCH_HEADER_SIZE
from tidelog.protocol.batch import ATTRIBUTES_POSITION, LENGTH_MIN, LENGTH_OVERHEAD

# The columns of the table of batches, one row per batch. `BATCH_CRC` is -1 once it was checked.
(
    BATCH_OFFSET,
    BATCH_LAST_DELTA,
    BATCH_START,
    BATCH_BODY,
    BATCH_END,
    BATCH_ATTRIBUTES,
    BATCH_TIMESTAMP,
    BATCH_TIMESTAMP_MAX,
    BATCH_PRODUCER_ID,
    BATCH_RECORDS,
    BATCH_CRC,
    BATCH_FIELDS,
) = range(12)

# The result of a scan: batch count, final position and offset, and whether that is past the range.
FOUND_BATCHES, FOUND_POSITION, FOUND_OFFSET, FOUND_PAST_END, FOUND_FIELDS = range(5)

# The status of a call: done, table full, no room for the next record; from `BAD_LENGTH` on, errors.
(
    DONE,
    FULL,
    NO_ROOM,
    BAD_LENGTH,
    BAD_MAGIC,
    BAD_OFFSETS,
    BAD_CRC,
    BAD_COUNT,
    BAD_VARINT,
    BAD_RECORD_SIZE,
    BAD_FIELD_SIZE,
    BAD_DELTA,
    BAD_HEADERS,
    BAD_TIMESTAMP,
    LEFT_OVER,
) = range(15)


_SMALL_BATCH = 512  # up to this size this checksum is faster than a call of the package
_UINT32_MAX = 2**32 - 1  # of a checksum
_MAGIC_POSITION = 16


def _crc_tables() -> NDArray[np.uint32]:
    """The eight tables by which CRC-32C is computed eight bytes at a time."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        tables[0, byte] = crc
    for step in range(1, 8):
        tables[step] = tables[step - 1] >> uint32(8) ^ tables[0][tables[step - 1] & uint32(0xFF)]
    return tables


_CRC_TABLES = _crc_tables()


@part
def checksum(data: Bytes, position: int, end: int) -> int:
    """CRC-32C of `data[position:end]`."""
    crc = uint32(0xFFFFFFFF)
    while position + 8 <= end:
        crc = (
            _CRC_TABLES[7, data[position] ^ (crc & uint32(0xFF))]
            ^ _CRC_TABLES[6, data[position + 1] ^ (crc >> uint32(8) & uint32(0xFF))]
            ^ _CRC_TABLES[5, data[position + 2] ^ (crc >> uint32(16) & uint32(0xFF))]
            ^ _CRC_TABLES[4, data[position + 3] ^ (crc >> uint32(24))]
            ^ _CRC_TABLES[3, data[position + 4]]
            ^ _CRC_TABLES[2, data[position + 5]]
            ^ _CRC_TABLES[1, data[position + 6]]
            ^ _CRC_TABLES[0, data[position + 7]]
        )
        position += 8
    while position < end:
        crc = _CRC_TABLES[0, data[position] ^ (crc & uint32(0xFF))] ^ crc >> uint32(8)
        position += 1
    total: int = int64(crc ^ uint32(0xFFFFFFFF))
    return total


@part
def _big_endian(data: Bytes, position: int, size: int) -> int:
    """The signed number in `size` bytes; the caller must ensure that they exist."""
    value: int = int64(int8(data[position]))
    for place in range(position + 1, position + size):
        value = value << 8 | int64(data[place])
    return value


@compiled(types.int64(read_only(Bytes), types.int64, types.int64, types.int64, types.int64, TABLE, INT64S))
def scan(
    data: Bytes, position: int, end: int, offset: int, end_offset: int, table: Int64s, found: Int64s
) -> int:
    """List the whole batches of `data[position:end]` that reach into [offset, end_offset).

    Stops at a batch that is cut off, where the table is full, or at the first one past `end_offset`.
    """
    count = 0
    status = DONE
    found[FOUND_PAST_END] = 0
    while count < table.shape[0] and position + _MAGIC_POSITION < end:
        base_offset = _big_endian(data, position, 8)
        found[FOUND_OFFSET] = base_offset
        length = _big_endian(data, position + 8, 4)
        if data[position + _MAGIC_POSITION] != 2:
            status = BAD_MAGIC
            break
        if length < LENGTH_MIN:
            status = BAD_LENGTH
            break
        stop = position + LENGTH_OVERHEAD + length
        if stop > end:
            break
        last_delta = _big_endian(data, position + 23, 4)
        if last_delta < 0 or base_offset < 0 or base_offset > int64(2**63 - 1) - last_delta:
            status = BAD_OFFSETS
            break
        if base_offset >= end_offset:
            found[FOUND_PAST_END] = 1
            break
        if base_offset + last_delta >= offset:
            table[count, BATCH_OFFSET] = base_offset
            table[count, BATCH_LAST_DELTA] = last_delta
            table[count, BATCH_START] = position
            table[count, BATCH_BODY] = position + BATCH_HEADER_SIZE
            table[count, BATCH_END] = stop
            table[count, BATCH_ATTRIBUTES] = _big_endian(data, position + ATTRIBUTES_POSITION, 2)
            table[count, BATCH_TIMESTAMP] = _big_endian(data, position + 27, 8)
            table[count, BATCH_TIMESTAMP_MAX] = _big_endian(data, position + 35, 8)
            table[count, BATCH_PRODUCER_ID] = _big_endian(data, position + 43, 8)
            table[count, BATCH_RECORDS] = _big_endian(data, position + 57, 4)
            table[count, BATCH_CRC] = _big_endian(data, position + 17, 4) & _UINT32_MAX
            if length <= _SMALL_BATCH:
                if checksum(data, position + ATTRIBUTES_POSITION, stop) != table[count, BATCH_CRC]:
                    status = BAD_CRC
                    break
                table[count, BATCH_CRC] = -1
            count += 1
        position = stop
    found[FOUND_BATCHES] = count
    found[FOUND_POSITION] = position
    return status
