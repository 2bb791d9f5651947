"""The shape of a message, walked before it is decoded.

kio's native reader reserves memory for as many entries as an array announces, and a process that cannot
have that memory is gone. So every array and string is first measured against the bytes that are there,
and the entries of all arrays together are counted: an entry of a few bytes becomes an object of hundreds.

**Invariant:** after `check_shape` returns, decoding makes at most ARRAY_LENGTH_MAX entries, and copies of
the frame's bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin

from tidelog.base.files import Buffer
from tidelog.base.limits import ARRAY_LENGTH_MAX
from tidelog.protocol import wire
from tidelog.protocol.errors import MalformedRequest


class Budget:
    """How many entries of arrays the rest of the message may have."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = ARRAY_LENGTH_MAX

    def take(self, count: int, data: Buffer, position: int) -> int:
        self.left -= count
        if self.left < 0:
            raise MalformedRequest(f"more than {ARRAY_LENGTH_MAX} entries in one request")
        if count > len(data) - position:
            raise MalformedRequest(f"{len(data) - position} bytes cannot hold {count} entries")
        return count


# Takes the bytes, a position and the budget, returns the position behind what it measured.
Walk = Callable[[Buffer, int, Budget], int]

_FIXED_SIZES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}


def check_shape(message: Any, data: Buffer, position: int) -> int:
    """The position behind the message at `position`; MalformedRequest if it does not fit its bytes."""
    return _walk_of(message)(data, position, Budget())


@cache
def _walk_of(message: Any) -> Walk:
    flexible = bool(message.__flexible__)
    walks = [_walk_of_field(field, flexible) for field in fields(message) if "tag" not in field.metadata]
    tagged = {
        field.metadata["tag"]: _walk_of_field(field, flexible)
        for field in fields(message)
        if "tag" in field.metadata
    }

    def walk(data: Buffer, position: int, budget: Budget) -> int:
        for walk_field in walks:
            position = walk_field(data, position, budget)
        return _walk_tags(data, position, budget, tagged) if flexible else position

    return walk


def _walk_tags(data: Buffer, position: int, budget: Budget, tagged: dict[int, Walk]) -> int:
    count, position = wire.read_unsigned_varint(data, position, "tag count")
    for _ in range(budget.take(count, data, position)):
        tag, position = wire.read_unsigned_varint(data, position, "tag")
        size, position = wire.read_unsigned_varint(data, position, "tag size")
        end = wire.skip(data, position, size, "tagged field")
        if tag in tagged and tagged[tag](data, position, budget) != end:
            raise MalformedRequest(f"tagged field {tag} does not fill its {size} bytes")
        position = end
    return position


def _walk_of_field(field: Field[Any], flexible: bool) -> Walk:
    kind, is_array, is_nullable = _type_of(field)
    if is_dataclass(kind):
        element = _walk_of(kind)  # type: ignore[arg-type]
        if is_nullable and not is_array:
            element = _nullable_walk(element)
    else:
        element = _walk_of_primitive(field.metadata["kafka_type"], flexible)
    return _array_walk(element, flexible) if is_array else element


def _type_of(field: Field[Any]) -> tuple[Any, bool, bool]:
    """The innermost type of a field, whether it is an array of that, and whether it may be null."""
    kind: Any = field.type
    is_nullable = type(None) in get_args(kind)
    if is_nullable:
        kind = next(part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is not tuple:
        return kind, False, is_nullable
    inner = get_args(kind)[0]
    if type(None) in get_args(inner):
        inner = next(part for part in get_args(inner) if part is not type(None))
    return inner, True, is_nullable


def _walk_of_primitive(kafka_type: str, flexible: bool) -> Walk:
    fixed = _FIXED_SIZES.get(kafka_type)
    if fixed is not None:
        return lambda data, position, _: wire.skip(data, position, fixed, kafka_type)
    if flexible:
        return _walk_compact_bytes
    return _walk_string if kafka_type == "string" else _walk_bytes


def _walk_compact_bytes(data: Buffer, position: int, _: Budget) -> int:
    size, position = wire.read_unsigned_varint(data, position, "length")
    return wire.skip(data, position, max(size - 1, 0), "compact bytes")


def _walk_string(data: Buffer, position: int, _: Budget) -> int:
    end = wire.skip(data, position, 2, "string length")
    return wire.skip(data, end, max(wire.INT16.unpack_from(data, position)[0], 0), "string")


def _walk_bytes(data: Buffer, position: int, _: Budget) -> int:
    end = wire.skip(data, position, 4, "bytes length")
    return wire.skip(data, end, max(wire.INT32.unpack_from(data, position)[0], 0), "bytes")


def _nullable_walk(element: Walk) -> Walk:
    def walk(data: Buffer, position: int, budget: Budget) -> int:
        end = wire.skip(data, position, 1, "null marker")
        return element(data, end, budget) if data[position] == 1 else end

    return walk


def _array_walk(element: Walk, flexible: bool) -> Walk:
    def walk(data: Buffer, position: int, budget: Budget) -> int:
        if flexible:
            count, position = wire.read_unsigned_varint(data, position, "array length")
            count -= 1
        else:
            end = wire.skip(data, position, 4, "array length")
            (count,) = wire.INT32.unpack_from(data, position)
            position = end
        for _ in range(budget.take(max(count, 0), data, position)):
            position = element(data, position, budget)
        return position

    return walk
