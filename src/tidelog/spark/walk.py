"""The compiled loop over records: from the bodies of record batches into the buffers of Arrow columns.

A walk stops when an output is full and continues later: the cursor is the position in the input, the counts
are the fill levels of the outputs. Values may be moved together within the input itself: the space before
each value is larger than everything written so far, and walked input is not read again.

**Invariant:** numba checks no bounds, so every read is preceded by a comparison with the end of its input and
every write by one with the remaining room; nothing in the bytes is trusted before that.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast, get_type_hints

from numba import types

from tidelog.base.compiled import (
    INT64S,
    TABLE,
    Bytes,
    Int32s,
    Int64s,
    compiled,
    copy,
    int32,
    int64,
    part,
    read_only,
    uint8,
    uint64,
    writable,
)
from tidelog.protocol.batch import APPEND_TIME_BIT
from tidelog.spark.scan import (
    BAD_COUNT,
    BAD_DELTA,
    BAD_FIELD_SIZE,
    BAD_HEADERS,
    BAD_RECORD_SIZE,
    BAD_TIMESTAMP,
    BAD_VARINT,
    BATCH_ATTRIBUTES,
    BATCH_BODY,
    BATCH_END,
    BATCH_LAST_DELTA,
    BATCH_OFFSET,
    BATCH_RECORDS,
    BATCH_TIMESTAMP,
    BATCH_TIMESTAMP_MAX,
    DONE,
    FULL,
    LEFT_OVER,
    NO_ROOM,
)

# The position of a walk: row of the table, byte, record, previous offset delta; and the first offset not
# walked yet.
CURSOR_BATCH, CURSOR_POSITION, CURSOR_RECORD, CURSOR_DELTA, CURSOR_OFFSET, CURSOR_FIELDS = range(6)

# The fill levels of the outputs; for the first six the walk may request more room.
(
    ROWS,
    KEY_BYTES,
    VALUE_BYTES,
    HEADERS,
    HEADER_KEY_BYTES,
    HEADER_VALUE_BYTES,
    KEYS_NULL,
    VALUES_NULL,
    ROWS_WITHOUT_HEADERS,
    HEADER_VALUES_NULL,
    HEADER_KEYS_NOT_ASCII,
    COUNT_FIELDS,
) = range(12)
ROOMS = 6


class Outputs(NamedTuple):
    """The buffers of one Arrow record batch; offset buffers have one entry more than rows or headers."""

    key_ends: Int32s
    key_bits: Bytes
    keys: Bytes
    value_ends: Int32s
    value_bits: Bytes
    values: Bytes
    offsets: Int64s
    timestamps: Int64s
    timestamp_types: Int32s
    header_ends: Int32s
    header_bits: Bytes
    header_key_ends: Int32s
    header_keys: Bytes
    header_value_ends: Int32s
    header_value_bits: Bytes
    header_values: Bytes


_TIMESTAMP_MAX = (2**63 - 1) // 1000  # in milliseconds, so that it fits as microseconds
_UINT32_MAX = 2**32 - 1  # of a varint of 32 bits
_OUTPUTS = cast(Any, types.NamedTuple)([writable(kind) for kind in get_type_hints(Outputs).values()], Outputs)


@part
def _varint(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """A zigzag int32 and the position after it, or -1 if it is not complete before `end`."""
    if position < end and data[position] < 0x80:
        value = int64(data[position])
        return value >> 1 ^ -(value & 1), position + 1
    value = int64(0)
    shift = 0
    for place in range(position, min(end, position + 5)):
        byte = int64(data[place])
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1 ^ -(value & 1), place + 1) if value <= _UINT32_MAX else (0, -1)
        shift += 7
    return 0, -1


@part
def _varlong(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """A zigzag int64 and the position after it, or -1 if it is not complete before `end`."""
    value = uint64(0)
    shift = uint64(0)
    for place in range(position, min(end, position + 10)):
        byte = uint64(data[place])
        value |= (byte & uint64(0x7F)) << shift
        if byte < uint64(0x80):
            if shift == uint64(63) and byte > uint64(1):
                return 0, -1
            return int64(value >> uint64(1)) ^ -int64(value & uint64(1)), place + 1
        shift += uint64(7)
    return 0, -1


@part
def _bad(status: int) -> tuple[int, ...]:
    return status, 0, 0, 0, 0, 0, 0, 0, 0, 0


@part
def _read_record(data: Bytes, position: int, end: int) -> tuple[int, ...]:
    """Status, end, timestamp delta, offset delta, then size and position of key, value and headers."""
    size, at = _varint(data, position, end)
    if at < 0:
        return _bad(BAD_VARINT)
    if size < 1 or size > end - at:
        return _bad(BAD_RECORD_SIZE)
    stop = at + size
    timestamp_delta, at = _varlong(data, at + 1, stop)
    if at < 0:
        return _bad(BAD_VARINT)
    delta, at = _varint(data, at, stop)
    if at < 0:
        return _bad(BAD_VARINT)
    key_size, key = _varint(data, at, stop)
    if key < 0 or key_size < -1 or key_size > stop - key:
        return _bad(BAD_FIELD_SIZE)
    value_size, value = _varint(data, key + max(key_size, 0), stop)
    if value < 0 or value_size < -1 or value_size > stop - value:
        return _bad(BAD_FIELD_SIZE)
    header_count, headers = _varint(data, value + max(value_size, 0), stop)
    if headers < 0 or header_count < 0 or header_count > stop - headers:
        return _bad(BAD_HEADERS)
    if header_count == 0 and headers != stop:
        return _bad(BAD_HEADERS)
    return DONE, stop, timestamp_delta, delta, key_size, key, value_size, value, header_count, headers


@part
def _measure_headers(data: Bytes, position: int, end: int, count: int) -> tuple[int, int, int]:
    """Check the headers that must fill `data[position:end]`; their status and the bytes of keys and
    values."""
    keys = values = int64(0)
    for _ in range(count):
        size, position = _varint(data, position, end)
        if position < 0 or size < 0 or size > end - position:
            return BAD_HEADERS, 0, 0
        position += size
        keys += size
        size, position = _varint(data, position, end)
        if position < 0 or size < -1 or size > end - position:
            return BAD_HEADERS, 0, 0
        position += max(size, 0)
        values += max(size, 0)
    return (DONE, keys, values) if position == end else (BAD_HEADERS, 0, 0)


@part
def _take_headers(data: Bytes, position: int, end: int, number: int, out: Outputs, count: Int64s) -> None:
    """Copy the headers of a record; they were measured and fit."""
    entry = count[HEADERS]
    key_end = count[HEADER_KEY_BYTES]
    value_end = count[HEADER_VALUE_BYTES]
    for _ in range(number):
        size, position = _varint(data, position, end)
        copy(out.header_keys, key_end, data, position, size)
        for place in range(position, position + size):
            count[HEADER_KEYS_NOT_ASCII] |= int64(data[place] >> 7)
        position += size
        key_end += size
        size, position = _varint(data, position, end)
        if size < 0:
            count[HEADER_VALUES_NULL] += 1
        else:
            out.header_value_bits[entry >> 3] |= uint8(1 << (entry & 7))
            copy(out.header_values, value_end, data, position, size)
            position += size
            value_end += size
        entry += 1
        out.header_key_ends[entry] = int32(key_end)
        out.header_value_ends[entry] = int32(value_end)
    count[HEADERS] = entry
    count[HEADER_KEY_BYTES] = key_end
    count[HEADER_VALUE_BYTES] = value_end


@part
def _timestamp(attributes: int, base: int, maximum: int, delta: int) -> int:
    """The timestamp of a record in milliseconds; limited to Spark's range."""
    if attributes & APPEND_TIME_BIT:
        return maximum
    total = int64(uint64(base) + uint64(delta))
    has_wrapped = ((base ^ total) & (delta ^ total)) < 0
    return _TIMESTAMP_MAX + 1 if has_wrapped else total


@part
def _has_header_room(out: Outputs, headers: int, key_bytes: int, value_bytes: int) -> bool:
    """Whether the buffers have room for that many headers in total."""
    return bool(
        headers < out.header_key_ends.shape[0]
        and headers < out.header_value_ends.shape[0]
        and headers < 8 * out.header_value_bits.shape[0]
        and key_bytes <= out.header_keys.shape[0]
        and value_bytes <= out.header_values.shape[0]
    )


@part
def _walk_batch(
    data: Bytes,
    batch: Int64s,
    end_offset: int,
    with_headers: bool,
    cursor: Int64s,
    count: Int64s,
    out: Outputs,
    wanted: Int64s,
) -> int:
    """Walk one batch from the cursor on; write rows of its records in the range."""
    base_offset, last_delta, end = batch[BATCH_OFFSET], batch[BATCH_LAST_DELTA], batch[BATCH_END]
    attributes = batch[BATCH_ATTRIBUTES]
    timestamp_type = int32((attributes & APPEND_TIME_BIT) != 0)
    base_timestamp, timestamp_max = batch[BATCH_TIMESTAMP], batch[BATCH_TIMESTAMP_MAX]
    first_offset = cursor[CURSOR_OFFSET]
    position, delta = cursor[CURSOR_POSITION], cursor[CURSOR_DELTA]
    row, key_end, value_end = count[ROWS], count[KEY_BYTES], count[VALUE_BYTES]
    record, records, status = cursor[CURSOR_RECORD], batch[BATCH_RECORDS], DONE
    while record < records:
        if row == out.offsets.shape[0]:
            status = FULL
            break
        status, stop, timestamp_delta, next_delta, key_size, key, value_size, value, headers, header = (
            _read_record(data, position, end)
        )
        if status != DONE:
            break
        if next_delta <= delta or next_delta > last_delta:
            status = BAD_DELTA
            break
        timestamp = _timestamp(attributes, base_timestamp, timestamp_max, timestamp_delta)
        if timestamp > _TIMESTAMP_MAX or timestamp < -_TIMESTAMP_MAX:
            status = BAD_TIMESTAMP
            break
        header_keys = header_values = int64(0)
        if headers > 0:
            status, header_keys, header_values = _measure_headers(data, header, stop, headers)
            if status != DONE:
                break
        if first_offset <= base_offset + next_delta < end_offset:
            next_key, next_value = key_end + max(key_size, 0), value_end + max(value_size, 0)
            has_room = next_key <= out.keys.shape[0] and next_value <= out.values.shape[0]
            if with_headers and headers > 0:
                all_headers = count[HEADERS] + headers
                all_keys = count[HEADER_KEY_BYTES] + header_keys
                all_values = count[HEADER_VALUE_BYTES] + header_values
                has_room = has_room and _has_header_room(out, all_headers, all_keys, all_values)
            if not has_room:
                status = NO_ROOM
                wanted[KEY_BYTES] = next_key
                wanted[VALUE_BYTES] = next_value
                wanted[HEADERS] = count[HEADERS] + headers
                wanted[HEADER_KEY_BYTES] = count[HEADER_KEY_BYTES] + header_keys
                wanted[HEADER_VALUE_BYTES] = count[HEADER_VALUE_BYTES] + header_values
                break
            if key_size < 0:
                count[KEYS_NULL] += 1
            else:
                out.key_bits[row >> 3] |= uint8(1 << (row & 7))
                copy(out.keys, key_end, data, key, key_size)
            if value_size < 0:
                count[VALUES_NULL] += 1
            else:
                out.value_bits[row >> 3] |= uint8(1 << (row & 7))
                copy(out.values, value_end, data, value, value_size)
            key_end, value_end = next_key, next_value
            out.key_ends[row + 1] = int32(key_end)
            out.value_ends[row + 1] = int32(value_end)
            out.offsets[row] = base_offset + next_delta
            out.timestamps[row] = timestamp * 1000
            out.timestamp_types[row] = timestamp_type
            if with_headers:
                if headers == 0:
                    count[ROWS_WITHOUT_HEADERS] += 1
                else:
                    out.header_bits[row >> 3] |= uint8(1 << (row & 7))
                    _take_headers(data, header, stop, headers, out, count)
                out.header_ends[row + 1] = int32(count[HEADERS])
            row += 1
        record += 1
        delta = next_delta
        position = stop
    cursor[CURSOR_RECORD], cursor[CURSOR_POSITION], cursor[CURSOR_DELTA] = record, position, delta
    cursor[CURSOR_OFFSET] = max(first_offset, base_offset + delta + 1)
    count[ROWS], count[KEY_BYTES], count[VALUE_BYTES] = row, key_end, value_end
    return status


@compiled(types.int64(read_only(Bytes), TABLE, types.int64, types.boolean, INT64S, INT64S, _OUTPUTS, INT64S))
def walk(
    data: Bytes,
    table: Int64s,
    end_offset: int,
    with_headers: bool,
    cursor: Int64s,
    count: Int64s,
    out: Outputs,
    wanted: Int64s,
) -> int:
    """Walk the batches of the table from the cursor on; all their bodies are in `data`."""
    while cursor[CURSOR_BATCH] < table.shape[0]:
        batch = table[cursor[CURSOR_BATCH]]
        if cursor[CURSOR_RECORD] == 0:
            cursor[CURSOR_POSITION] = batch[BATCH_BODY]
            cursor[CURSOR_DELTA] = -1
            if batch[BATCH_RECORDS] < 0:
                return BAD_COUNT
        status = _walk_batch(data, batch, end_offset, with_headers, cursor, count, out, wanted)
        if status != DONE:
            return status
        if cursor[CURSOR_POSITION] != batch[BATCH_END]:
            return LEFT_OVER
        cursor[CURSOR_OFFSET] = max(cursor[CURSOR_OFFSET], batch[BATCH_OFFSET] + batch[BATCH_LAST_DELTA] + 1)
        cursor[CURSOR_RECORD] = 0
        cursor[CURSOR_BATCH] += 1
    return DONE
