"""The compiled loop that writes records: from the buffers of Arrow columns into the batches of partitions.

A row goes to the partition that it names, else to the partition of its key's hash as in the Java client, else
to its topic's current partition for rows without a key. Each partition has a buffer, known by its address.
The loop stops at a row that does not fit; its caller closes the batch or provides a larger buffer, and
continues.

**Invariant:** the size of a record is known before its first byte is written, and fits its buffer.
"""

# mypy: disable-error-code="no-any-return"
# numpy's numbers are of type Any here; numba infers their types.

from __future__ import annotations

from typing import Any, NamedTuple, cast, get_type_hints

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tidelog.base.compiled import (
    INT64S,
    TABLE,
    Bytes,
    Int32s,
    Int64s,
    compiled,
    int64,
    part,
    read_only,
    uint64,
)

# One row per partition of each topic: its buffer, its capacity, and its content.
SLOT_ADDRESS, SLOT_ROOM, SLOT_FILL, SLOT_RECORDS, SLOT_FIELDS = range(5)

# One row per topic: its first slot, its partition count, and the partition of rows without a key.
TOPIC_SLOT, TOPIC_PARTITIONS, TOPIC_STICKY, TOPIC_FIELDS = range(4)

# The state of the loop: the row; and where it stopped, the slot and the size of the record.
AT_ROW, AT_SLOT, AT_SIZE, AT_FIELDS = range(4)

# The status of a call.
DONE, NO_ROOM, BAD_PARTITION, NO_HEADER_KEY, TOO_LARGE = range(5)

RECORD_SIZE_MAX = 2**31 - 1024  # a batch has 31 bits for its length
_MASK = 0xFFFFFFFF
_MURMUR_SEED = 0x9747B28C
_MURMUR_FACTOR = 0x5BD1E995


class Blobs(NamedTuple):
    """A column of binaries or strings; if no entry is null, `valid` is empty."""

    ends: Int64s
    data: Bytes
    valid: Bytes


class Inputs(NamedTuple):
    """The columns of one Arrow record batch."""

    keys: Blobs
    values: Blobs
    header_ends: Int64s
    header_valid: Bytes
    header_keys: Blobs
    header_values: Blobs
    topics: Int32s  # index of each row's topic; empty if all rows have the first
    partitions: Int32s
    partition_valid: Bytes


_BLOBS = cast(Any, types.NamedTuple)([read_only(kind) for kind in get_type_hints(Blobs).values()], Blobs)
INPUTS = cast(Any, types.NamedTuple)(
    [_BLOBS if kind is Blobs else read_only(kind) for kind in get_type_hints(Inputs).values()], Inputs
)


def _generate_put_byte(_context: Any, address: Any, byte: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        builder.store(builder.trunc(arguments[1], cgutils.int8_t), pointer)
        return _context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _generate_put_bytes(_context: Any, address: Any, data: Any, position: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        source = context.make_array(data)(context, builder, arguments[1]).data
        cast(Any, cgutils.raw_memcpy)(builder, pointer, builder.gep(source, [arguments[2]]), arguments[3], 1)
        return context.get_dummy_value()

    return types.void(types.int64, data, types.int64, types.int64), generate


_put_byte = cast(Any, intrinsic)(_generate_put_byte)
_put_bytes = cast(Any, intrinsic)(_generate_put_bytes)


@part
def murmur2(data: Bytes, start: int, end: int) -> int:
    """The hash by which the Java client chooses a partition."""
    size = end - start
    mixed = uint64(_MURMUR_SEED ^ size)
    position = start
    while position + 4 <= end:
        word = (
            uint64(data[position])
            | uint64(data[position + 1]) << uint64(8)
            | uint64(data[position + 2]) << uint64(16)
            | uint64(data[position + 3]) << uint64(24)
        )
        word = word * uint64(_MURMUR_FACTOR) & uint64(_MASK)
        word = (word ^ word >> uint64(24)) * uint64(_MURMUR_FACTOR) & uint64(_MASK)
        mixed = (mixed * uint64(_MURMUR_FACTOR) & uint64(_MASK)) ^ word
        position += 4
    if position < end:
        shift = uint64(0)
        while position < end:
            mixed ^= uint64(data[position]) << shift
            shift += uint64(8)
            position += 1
        mixed = mixed * uint64(_MURMUR_FACTOR) & uint64(_MASK)
    mixed = (mixed ^ mixed >> uint64(13)) * uint64(_MURMUR_FACTOR) & uint64(_MASK)
    total: int = int64(mixed ^ mixed >> uint64(15))
    return total


@part
def _is_valid(valid: Bytes, row: int) -> bool:
    return valid.shape[0] == 0 or valid[row] != 0


@part
def _varint_size(value: int) -> int:
    """The encoded size of a number in [-1, 2^31)."""
    zigzag = value << 1 if value >= 0 else 1
    size = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        size += 1
    return size


@part
def _field_size(ends: Int64s, valid: Bytes, entry: int) -> int:
    """The size of a key or value with its length prefix."""
    if not _is_valid(valid, entry):
        return 1
    size = ends[entry + 1] - ends[entry]
    return _varint_size(size) + size


@part
def _headers_size(
    first: int, end: int, key_ends: Int64s, key_valid: Bytes, value_ends: Int64s, value_valid: Bytes
) -> int:
    """The size of a row's headers with their count; -1 if a header has no key."""
    size = _varint_size(end - first)
    for header in range(first, end):
        if not _is_valid(key_valid, header):
            return -1
        size += _field_size(key_ends, key_valid, header) + _field_size(value_ends, value_valid, header)
    return size


@part
def _put_varint(address: int, value: int) -> int:
    """Write a number in [-1, 2^31); the address after it."""
    zigzag = value << 1 if value >= 0 else 1
    while zigzag >= 0x80:
        _put_byte(address, zigzag & 0x7F | 0x80)
        address += 1
        zigzag >>= 7
    _put_byte(address, zigzag)
    return address + 1


@part
def _put_field(address: int, ends: Int64s, data: Bytes, valid: Bytes, entry: int) -> int:
    if not _is_valid(valid, entry):
        return _put_varint(address, -1)
    start, size = ends[entry], ends[entry + 1] - ends[entry]
    address = _put_varint(address, size)
    _put_bytes(address, data, start, size)
    return address + size


@compiled(types.int64(INPUTS, types.int64, types.int64, TABLE, TABLE, INT64S))
def scatter(rows: Inputs, count: int, size_max: int, topics: Int64s, slots: Int64s, at: Int64s) -> int:
    """Write the rows from the cursor on into the buffers of their partitions, no batch above `size_max`."""
    # Unpacked once: numba counts references for each use of a tuple.
    keys, values, header_ends, header_valid, header_keys, header_values, topic_of, named, named_valid = rows
    key_ends, key_data, key_valid = keys
    value_ends, value_data, value_valid = values
    header_key_ends, header_key_data, header_key_valid = header_keys
    header_value_ends, header_value_data, header_value_valid = header_values
    for row in range(at[AT_ROW], count):
        at[AT_ROW] = row
        topic = int64(topic_of[row]) if topic_of.shape[0] > 0 else 0
        partitions = topics[topic, TOPIC_PARTITIONS]
        if _is_valid(named_valid, row):
            partition = int64(named[row])
        elif _is_valid(key_valid, row):
            partition = (murmur2(key_data, key_ends[row], key_ends[row + 1]) & 0x7FFFFFFF) % partitions
        else:
            partition = topics[topic, TOPIC_STICKY]
        if partition < 0 or partition >= partitions:
            return BAD_PARTITION
        slot = topics[topic, TOPIC_SLOT] + partition
        delta = slots[slot, SLOT_RECORDS]
        has_headers = _is_valid(header_valid, row)
        headers_size = 1
        if has_headers:
            first, end = header_ends[row], header_ends[row + 1]
            headers_size = _headers_size(
                first, end, header_key_ends, header_key_valid, header_value_ends, header_value_valid
            )
            if headers_size < 0:
                return NO_HEADER_KEY
        body_size = 2 + _varint_size(delta) + headers_size
        body_size += _field_size(key_ends, key_valid, row) + _field_size(value_ends, value_valid, row)
        if body_size > RECORD_SIZE_MAX:
            return TOO_LARGE
        size = _varint_size(body_size) + body_size
        fill = slots[slot, SLOT_FILL]
        if fill + size > slots[slot, SLOT_ROOM] or (delta > 0 and fill + size > size_max):
            at[AT_SLOT] = slot
            at[AT_SIZE] = size
            return NO_ROOM
        address = _put_varint(slots[slot, SLOT_ADDRESS] + fill, body_size)
        _put_byte(address, int64(0))  # attributes
        _put_byte(address + 1, int64(0))  # timestamp delta: a batch has one time
        address = _put_varint(address + 2, delta)
        address = _put_field(address, key_ends, key_data, key_valid, row)
        address = _put_field(address, value_ends, value_data, value_valid, row)
        if has_headers:
            address = _put_varint(address, end - first)
            for header in range(first, end):
                address = _put_field(address, header_key_ends, header_key_data, header_key_valid, header)
                address = _put_field(
                    address, header_value_ends, header_value_data, header_value_valid, header
                )
        else:
            _put_byte(address, int64(0))
        slots[slot, SLOT_FILL] = fill + size
        slots[slot, SLOT_RECORDS] = delta + 1
    return DONE
