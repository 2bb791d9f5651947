"""Compiled loops that go from the header of one record batch to the next, in a part of a segment file.

What lies between two headers need not be in the part: `left` says how much of the file there is from the
part's first byte on, and a batch that ends within that is whole. The state goes in and comes out: where the
next header is, counted from the part's first byte, and what was passed.

**Invariant:** numba checks no bounds, so every read is preceded by a comparison with the size of the part and
every write by one with the rows of its table.
"""

from __future__ import annotations

import numpy as np
from numba import types

from tidelog.base.compiled import INT64S, TABLE, Bytes, Int64s, compiled, int8, int64, part, read_only
from tidelog.base.limits import BATCH_HEADER_SIZE
from tidelog.protocol.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    LAST_DELTA_POSITION,
    LENGTH_MIN,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    OFFSET_MAX,
    PRODUCER_ID_POSITION,
    RECORD_COUNT_POSITION,
    TRANSACTIONAL_BIT,
)
from tidelog.protocol.records import Marker

# The state: where the next header is, the least offset it may have, where the last batch passed begins (-1:
# none was), whether one of them belongs to a transaction, and how many rows of the two tables are used.
POSITION, NEXT_OFFSET, LAST_POSITION, HAS_TRANSACTIONS, OPEN_COUNT, ABORTED_COUNT, STATE_FIELDS = range(7)

# Why a loop stopped at the position of its state.
MORE = -1  # the next header is not in this part
TORN = -2  # the file ends before the batch does
IMPOSSIBLE = -3  # no batch begins here
PAST_END = -4  # its first offset is not below `end_offset`
HIT = -5  # it is the batch looked for
FULL = -6  # a table has no room

OPEN_FIELDS = 2  # producer id, first offset
ABORTED_FIELDS = 3  # producer id, first offset, offset of the marker

_ABORT = int(Marker.ABORT)
_COMMIT = int(Marker.COMMIT)
_NO_MARKER = -1
_MARKED = TRANSACTIONAL_BIT | CONTROL_BIT


def new_state(next_offset: int) -> Int64s:
    state = np.zeros(STATE_FIELDS, np.int64)
    state[NEXT_OFFSET] = next_offset
    state[LAST_POSITION] = -1
    return state


@part
def _big_endian(data: Bytes, position: int, size: int) -> int:
    """The signed number in `size` bytes; the caller has made sure that they are there."""
    value: int = int64(int8(data[position]))
    for place in range(position + 1, position + size):
        value = value << 8 | int64(data[place])
    return value


@part
def _size_at(data: Bytes, position: int, left: int, next_offset: int) -> int:
    """The size of the whole batch whose header is at `position`, or why there is none."""
    if position + BATCH_HEADER_SIZE > left:
        return TORN
    if position + BATCH_HEADER_SIZE > data.shape[0]:
        return MORE
    base_offset = _big_endian(data, position, 8)
    length = _big_endian(data, position + 8, 4)
    last_delta = _big_endian(data, position + LAST_DELTA_POSITION, 4)
    if data[position + MAGIC_POSITION] != MAGIC or length < LENGTH_MIN or last_delta < 0:
        return IMPOSSIBLE
    if base_offset < next_offset or base_offset > int64(OFFSET_MAX) - last_delta:
        return IMPOSSIBLE
    size: int = LENGTH_OVERHEAD + length
    return TORN if position + size > left else size


@compiled(types.int64(read_only(Bytes), types.int64, types.int64, types.int64, types.int64, INT64S))
def follow(data: Bytes, left: int, end_offset: int, offset: int, timestamp: int, state: Int64s) -> int:
    """Pass batches up to one with a last offset from `offset` on and a timestamp from `timestamp` on."""
    position = state[POSITION]
    while True:
        size = _size_at(data, position, left, state[NEXT_OFFSET])
        state[POSITION] = position
        if size < 0:
            return size
        base_offset = _big_endian(data, position, 8)
        if base_offset >= end_offset:
            return PAST_END
        last_offset = base_offset + _big_endian(data, position + LAST_DELTA_POSITION, 4)
        if last_offset >= offset and _big_endian(data, position + MAX_TIMESTAMP_POSITION, 8) >= timestamp:
            return HIT
        if _big_endian(data, position + ATTRIBUTES_POSITION, 2) & _MARKED:
            state[HAS_TRANSACTIONS] = 1
        state[NEXT_OFFSET] = last_offset + 1
        state[LAST_POSITION] = position
        position += size


@part
def _skip_varint(data: Bytes, position: int) -> int:
    while position < data.shape[0] and data[position] & 0x80:
        position += 1
    return position + 1


@part
def _marker_at(data: Bytes, position: int) -> int:
    """How the control batch ends a transaction; compaction may have left its header alone."""
    if _big_endian(data, position + RECORD_COUNT_POSITION, 4) < 1:
        return _NO_MARKER
    place = _skip_varint(data, position + BATCH_HEADER_SIZE) + 1  # length, attributes
    for _ in range(3):  # the deltas of timestamp and offset, the length of the key
        place = _skip_varint(data, place)
    if place + 4 > data.shape[0]:
        return _NO_MARKER
    marker: int = _big_endian(data, place + 2, 2)
    return marker


@part
def _close(place: int, marker: int, offset: int, state: Int64s, opened: Int64s, aborted: Int64s) -> None:
    """End the transaction in that row of `opened`; the last row takes its place."""
    if marker == _ABORT:
        row = state[ABORTED_COUNT]
        aborted[row, 0] = opened[place, 0]
        aborted[row, 1] = opened[place, 1]
        aborted[row, 2] = offset
        state[ABORTED_COUNT] += 1
    state[OPEN_COUNT] -= 1
    opened[place, 0] = opened[state[OPEN_COUNT], 0]
    opened[place, 1] = opened[state[OPEN_COUNT], 1]


@compiled(types.int64(read_only(Bytes), types.int64, types.int64, INT64S, TABLE, TABLE))
def settle(data: Bytes, left: int, end_offset: int, state: Int64s, opened: Int64s, aborted: Int64s) -> int:
    """Pass batches and keep the books of transactions: which are open, which were aborted."""
    position = state[POSITION]
    while True:
        size = _size_at(data, position, left, state[NEXT_OFFSET])
        state[POSITION] = position
        if size < 0:
            return size
        base_offset = _big_endian(data, position, 8)
        if base_offset >= end_offset:
            return PAST_END
        attributes = _big_endian(data, position + ATTRIBUTES_POSITION, 2)
        producer_id = _big_endian(data, position + PRODUCER_ID_POSITION, 8)
        if attributes & _MARKED and producer_id >= 0:
            if state[OPEN_COUNT] >= opened.shape[0] or state[ABORTED_COUNT] >= aborted.shape[0]:
                return FULL
            place = 0
            while place < state[OPEN_COUNT] and opened[place, 0] != producer_id:
                place += 1
            if attributes & CONTROL_BIT:
                if position > 0 and position + size > data.shape[0]:
                    return MORE  # a marker is read whole
                marker = _marker_at(data, position)
                if place < state[OPEN_COUNT] and _ABORT <= marker <= _COMMIT:
                    _close(place, marker, base_offset, state, opened, aborted)
            elif place == state[OPEN_COUNT]:
                opened[place, 0] = producer_id
                opened[place, 1] = base_offset
                state[OPEN_COUNT] += 1
        state[NEXT_OFFSET] = base_offset + _big_endian(data, position + LAST_DELTA_POSITION, 4) + 1
        state[LAST_POSITION] = position
        position += size
