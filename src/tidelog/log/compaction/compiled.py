"""The keys of the dirty records, and which of those records are dead, by compiled loops; as `keys` in effect.

The map is open addressing over slots of two halves of a hash and a record's number. The hash is keyed: every
product has a secret in each of its factors, so nobody can choose keys that collide.

**Invariant:** numba checks no bounds, so every read is preceded by a comparison with the end of its input and
every write by one with the room that is left; nothing in the bytes is trusted before that.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Any, ClassVar, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tidelog.base.compiled import (
    Bytes,
    compiled,
    copy,
    int64,
    part,
    read_only,
    uint8,
    uint64,
    writable,
)
from tidelog.base.files import Buffer
from tidelog.log.compaction.keys import Kept
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.errors import CorruptBatch

_DONE, _BAD = 0, -1
_SLOT_SIZE = 24
_KEY_SIZE = 27  # at most nine tenths of the slots are used
_TOUCHED_AHEAD = 8  # slots of the next keys: their cache misses overlap
_UINT32_MAX = 2**32 - 1  # of a varint of 32 bits
_SECRETS = Struct(">4Q")
_VARINT_SIZE_MAX = 10  # of 64 bits, seven in each byte

_IN = read_only(Bytes)
_OUT = writable(Bytes)
_SLOTS = types.Array(types.uint64, 2, "C")
_WORDS = types.Array(types.uint64, 1, "C")
_TUPLE: Any = types.UniTuple
_KEPT = _TUPLE(types.int64, 4)  # end of the output or _BAD, records, last time delta, tombstones


def _generate_load(_context: Any, data: Any, position: Any) -> Any:
    """Eight bytes, in the order of the machine."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = builder.gep(context.make_array(data)(context, builder, arguments[0]).data, [arguments[1]])
        value = builder.load(builder.bitcast(start, ir.IntType(64).as_pointer()))
        value.align = 1
        return value

    return types.uint64(data, types.int64), generate


def _generate_fold(_context: Any, first: Any, second: Any) -> Any:
    """The two halves of a product of 128 bits, one upon the other."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        high = builder.lshr(product, ir.Constant(wide, 64))
        return builder.xor(*(builder.trunc(half, ir.IntType(64)) for half in (product, high)))

    return types.uint64(types.uint64, types.uint64), generate


_load: Any = cast(Any, intrinsic)(_generate_load)
_fold: Any = cast(Any, intrinsic)(_generate_fold)


@part
def _load_tail(data: Bytes, position: int, size: int) -> Any:
    """At most eight bytes, the rest 0."""
    if size >= 8:
        return _load(data, position)
    value = uint64(0)
    for place in range(size):
        value |= uint64(data[position + place]) << uint64(8 * place)
    return value


@part
def _hash(data: Bytes, position: int, size: int, secrets: Any) -> tuple[int, int]:
    """Both halves of a key's hash; the first one is never 0."""
    first, second = secrets[0] ^ uint64(size), secrets[1]
    third, fourth = secrets[2], secrets[3]
    while size > 16:
        low, high = _load(data, position), _load(data, position + 8)
        first, second = _fold(low ^ first, high ^ third), _fold(high ^ second, low ^ fourth)
        position += 16
        size -= 16
    low = _load_tail(data, position, min(size, 8))
    high = _load_tail(data, position + 8, size - 8) if size > 8 else uint64(0)
    mixed = _fold(low ^ first ^ fourth, high ^ second ^ third)
    return mixed | uint64(1), _fold(high ^ second ^ first, low ^ mixed ^ third)


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
def _outline(data: Bytes, start: int, last_delta: int, previous_delta: int) -> tuple[int, ...]:
    """End of the record or _BAD, timestamp delta, offset delta, position and size of the key, size of the
    value."""
    bad = (_BAD, 0, 0, 0, 0, 0)
    size, position = _varint(data, start, data.shape[0])
    if position < 0 or size < 1 or size > data.shape[0] - position:
        return bad
    stop = position + size
    time_delta, position = _varlong(data, position + 1, stop)
    if position < 0:
        return bad
    delta, position = _varint(data, position, stop)
    if position < 0 or delta <= previous_delta or delta > last_delta:
        return bad
    key_size, key = _varint(data, position, stop)
    if key < 0 or key_size < -1 or max(key_size, 0) >= stop - key:
        return bad
    value_size, value = _varint(data, key + max(key_size, 0), stop)
    if value < 0 or value_size < -1 or max(value_size, 0) >= stop - value:
        return bad
    return stop, time_delta, delta, key, key_size, value_size


@compiled(_TUPLE(types.int64, 3)(_IN, types.int64, types.int64, types.int64, _WORDS, _SLOTS, _OUT))
def _hash_keys(
    data: Bytes, count: int, last_delta: int, number: int, secrets: Any, hashes: Any, dead: Bytes
) -> tuple[int, int, int]:
    """Hash and number of each key of a batch; how many or _BAD, whether there are tombstones."""
    position, delta, keys, tombstones = 0, -1, 0, 0
    for place in range(count):
        stop, _, delta, key, key_size, value_size = _outline(data, position, last_delta, delta)
        if stop < 0:
            return _BAD, 0, 0
        if value_size < 0:
            tombstones = 1
        if key_size < 0:
            dead[number + place >> 3] |= uint8(1 << (number + place & 7))
        else:
            first, second = _hash(data, key, key_size, secrets)
            hashes[keys, 0] = first
            hashes[keys, 1] = second
            hashes[keys, 2] = uint64(number + place)
            keys += 1
        position = stop
    return (keys if position == data.shape[0] else _BAD), tombstones, 0


@part
def _slot(table: Any, second: int) -> int:
    """Where the search for a hash begins."""
    place: int = int64((second >> uint64(32)) * uint64(table.shape[0]) >> uint64(32))
    return place


@compiled(_TUPLE(types.int64, 2)(_SLOTS, _SLOTS, types.int64, _OUT))
def _insert(table: Any, hashes: Any, count: int, dead: Bytes) -> tuple[int, int]:
    """Put hashes; how many are new. A record that had the key before is dead."""
    added = int64(0)
    touched = uint64(0)
    for place in range(count):
        if place + _TOUCHED_AHEAD < count:
            touched ^= table[_slot(table, hashes[place + _TOUCHED_AHEAD, 1]), 0]
        first, second = hashes[place, 0], hashes[place, 1]
        slot = _slot(table, second)
        while True:
            there = table[slot, 0]
            if there == uint64(0):
                table[slot, 0] = first
                table[slot, 1] = second
                added += 1
                break
            if there == first and table[slot, 1] == second:
                before = int64(table[slot, 2])
                dead[before >> 3] |= uint8(1 << (before & 7))
                break
            slot += 1
            if slot == table.shape[0]:
                slot = 0
        table[slot, 2] = hashes[place, 2]
    return added, int64(touched)


@part
def _is_known(table: Any, first: int, second: int) -> bool:
    slot = _slot(table, second)
    while True:
        there = table[slot, 0]
        if there == uint64(0):
            return False
        if there == first and table[slot, 1] == second:
            return True
        slot += 1
        if slot == table.shape[0]:
            slot = 0


@compiled(types.boolean(_OUT, types.int64, types.int64))
def _has_dead(dead: Bytes, number: int, count: int) -> bool:
    last = number + count - 1
    low, high = number >> 3, last >> 3
    if low == high:
        return bool((int64(dead[low]) >> (number & 7)) & ((1 << count) - 1) != 0)
    if int64(dead[low]) >> (number & 7) != 0 or int64(dead[high]) & ((2 << (last & 7)) - 1) != 0:
        return True
    place = low + 1
    while place < high and dead[place] == 0:
        place += 1
    return place < high


@compiled(_KEPT(_IN, types.int64, types.int64, types.int64, types.boolean, _WORDS, _SLOTS, _OUT, _OUT))
def _keep(
    data: Bytes,
    count: int,
    last_delta: int,
    number: int,
    keeps_tombstones: bool,
    secrets: Any,
    table: Any,
    dead: Bytes,
    out: Bytes,
) -> tuple[int, int, int, int]:
    """The records that stay, copied in runs: those that are not dead, or, without a number, not known."""
    position, delta, kept, tombstones = 0, -1, 0, 0
    run, end = 0, 0
    last_time_delta = int64(-(2**63))
    for place in range(count):
        stop, time_delta, delta, key, key_size, value_size = _outline(data, position, last_delta, delta)
        if stop < 0:
            return _BAD, 0, 0, 0
        stays = keeps_tombstones or value_size >= 0
        if number >= 0:
            mark = number + place
            stays = stays and (dead[mark >> 3] >> (mark & 7)) & 1 == 0
        elif stays:
            stays = key_size >= 0
            if stays:
                first, second = _hash(data, key, key_size, secrets)
                stays = not _is_known(table, first, second)
        if stays:
            kept += 1
            last_time_delta = max(last_time_delta, time_delta)
            if value_size < 0:
                tombstones = 1
        else:
            copy(out, end, data, run, position - run)
            end += position - run
            run = stop
        position = stop
    if position != data.shape[0]:
        return _BAD, 0, 0, 0
    copy(out, end, data, run, position - run)
    return end + position - run, kept, last_time_delta, tombstones


@part
def _write_varint(out: Bytes, position: int, value: int) -> int:
    """A zigzag int64; the position after it."""
    left = uint64(value << 1) ^ uint64(value >> 63)
    while left >= uint64(0x80):
        out[position] = uint8(left & uint64(0x7F)) | uint8(0x80)
        left >>= uint64(7)
        position += 1
    out[position] = uint8(left)
    return position + 1


@part
def _varint_size(value: int) -> int:
    left = uint64(value << 1) ^ uint64(value >> 63)
    size = 1
    while left >= uint64(0x80):
        left >>= uint64(7)
        size += 1
    return size


@compiled(types.int64(_IN, types.int64, types.int64, types.int64, _OUT))
def _move_times(data: Bytes, count: int, last_delta: int, difference: int, out: Bytes) -> int:
    """The records with other timestamp deltas; the end of the output, _BAD, or -2 if one does not fit."""
    position, delta, end = 0, -1, 0
    for _ in range(count):
        stop, time_delta, delta, _, _, _ = _outline(data, position, last_delta, delta)
        if stop < 0:
            return _BAD
        moved = int64(uint64(time_delta) + uint64(difference))
        if ((time_delta ^ moved) & (difference ^ moved)) < 0:
            return -2
        _, attributes = _varint(data, position, stop)
        _, rest = _varlong(data, attributes + 1, stop)
        size = 1 + _varint_size(moved) + stop - rest
        if end + 2 * _VARINT_SIZE_MAX + size > out.shape[0]:
            return _BAD
        end = _write_varint(out, end, size)
        out[end] = data[attributes]
        end = _write_varint(out, end + 1, moved)
        copy(out, end, data, rest, stop - rest)
        end += stop - rest
        position = stop
    return end


class CompiledKeyMap:
    key_size: ClassVar[int] = _KEY_SIZE

    def __init__(self, keys_max: int, seed: int) -> None:
        secrets = blake2b(seed.to_bytes(16, "big"), digest_size=_SECRETS.size).digest()
        self._secrets = np.array(_SECRETS.unpack(secrets), np.uint64)
        self._table = np.zeros((keys_max * _KEY_SIZE // _SLOT_SIZE + 2, 3), np.uint64)
        self._hashes = np.empty((1 << 10, 3), np.uint64)
        self._dead = np.zeros(1 << 13, np.uint8)
        self._out = np.empty(1 << 16, np.uint8)
        self._moved = np.empty(1 << 16, np.uint8)
        self.used = 0

    def put(self, body: Buffer, header: BatchHeader, number: int) -> bool:
        count = header.record_count
        _check_count(body, count)
        if (missing := (number + count >> 3) + 1 - len(self._dead)) > 0:
            self._dead = np.concatenate((self._dead, np.zeros(max(missing, len(self._dead)), np.uint8)))
        if count > len(self._hashes):
            self._hashes = np.empty((count, 3), np.uint64)
        data, last_delta = np.frombuffer(body, np.uint8), header.last_offset_delta
        found, tombstones, _ = _hash_keys(
            data, count, last_delta, number, self._secrets, self._hashes, self._dead
        )
        if found < 0:
            raise _bad_records(header)
        self.used += _insert(self._table, self._hashes, found, self._dead)[0]
        return bool(tombstones)

    def has_dead(self, number: int, count: int) -> bool:
        return bool(_has_dead(self._dead, number, count))

    def keep_living(self, body: Buffer, header: BatchHeader, number: int, tombstones: bool) -> Kept:
        return self._keep(body, header, number, tombstones)

    def keep_unknown(self, body: Buffer, header: BatchHeader, tombstones: bool) -> Kept:
        return self._keep(body, header, -1, tombstones)

    def _keep(self, body: Buffer, header: BatchHeader, number: int, tombstones: bool) -> Kept:
        data = np.frombuffer(body, np.uint8)
        if len(data) > len(self._out):
            self._out = np.empty(len(data), np.uint8)
        count, last_delta = header.record_count, header.last_offset_delta
        end, kept, last_time_delta, kept_tombstones = _keep(
            data, count, last_delta, number, tombstones, self._secrets, self._table, self._dead, self._out
        )
        if end < 0:
            raise _bad_records(header)
        return Kept(self._out[:end].data, kept, last_time_delta, bool(kept_tombstones))

    def move_times(self, body: Buffer, header: BatchHeader, difference: int) -> Buffer | None:
        data, count = np.frombuffer(body, np.uint8), header.record_count
        size_max = len(data) + (count + 2) * 2 * _VARINT_SIZE_MAX
        if size_max > len(self._moved):
            self._moved = np.empty(size_max, np.uint8)
        end = _move_times(data, count, header.last_offset_delta, difference, self._moved)
        if end == _BAD:
            raise _bad_records(header)
        return self._moved[:end].data if end >= 0 else None


def _check_count(body: Buffer, count: int) -> None:
    if count > len(body):
        raise CorruptBatch(f"{len(body)} bytes cannot hold {count} records")


def _bad_records(header: BatchHeader) -> CorruptBatch:
    return CorruptBatch(f"its records are not the {header.record_count} that its header says")
