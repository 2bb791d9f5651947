"""The shape of a message, measured before the message is decoded.

kio's native reader reserves memory for the announced length of an array, and aborts the process if it cannot
get it. So every array and string is first compared with the available bytes, and the entries of all arrays
are counted: an entry of a few bytes becomes an object of hundreds.

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


class Measure:
    """The counts and findings of one message."""

    __slots__ = ("_cuts", "_left")

    def __init__(self) -> None:
        self._left = ARRAY_LENGTH_MAX
        self._cuts: list[tuple[int, int, bytes]] = []  # start, end, replacement; in order

    def take(self, count: int, data: Buffer, position: int) -> int:
        """Count the entries of an array."""
        self._left -= count
        if self._left < 0:
            raise MalformedRequest(f"more than {ARRAY_LENGTH_MAX} entries in one request")
        if count > len(data) - position:
            raise MalformedRequest(f"{len(data) - position} bytes cannot hold {count} entries")
        return count

    def cut(self, start: int, end: int, instead: bytes = b"") -> None:
        self._cuts.append((start, end, instead))

    @property
    def cut_count(self) -> int:
        return len(self._cuts)

    def apply_cuts(self, data: bytes) -> bytes:
        """The message without unknown tagged fields, which kio would reject (KIP-482)."""
        if not self._cuts:
            return data
        kept, position = bytearray(), 0
        for start, end, instead in sorted(self._cuts):
            kept += data[position:start] + instead
            position = end
        return bytes(kept + data[position:])


# From the bytes, a position and the measure to the position after the measured part.
Walk = Callable[[Buffer, int, Measure], int]

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


def check_shape(message: Any, data: Buffer, position: int, measure: Measure | None = None) -> int:
    """The position behind the message at `position`; MalformedRequest if the message exceeds its bytes."""
    return _walk_of(message)(data, position, measure or Measure())


@cache
def _walk_of(message: Any) -> Walk:
    flexible = bool(message.__flexible__)
    walks = [_walk_of_field(field, flexible) for field in fields(message) if "tag" not in field.metadata]
    tagged = {
        field.metadata["tag"]: _walk_of_field(field, flexible)
        for field in fields(message)
        if "tag" in field.metadata
    }

    def walk(data: Buffer, position: int, measure: Measure) -> int:
        for walk_field in walks:
            position = walk_field(data, position, measure)
        return _walk_tags(data, position, measure, tagged) if flexible else position

    return walk


def _walk_tags(data: Buffer, position: int, measure: Measure, tagged: dict[int, Walk]) -> int:
    count_position = position
    count, position = wire.read_unsigned_varint(data, position, "tag count")
    count_end = position
    last_tag, unknown_count = -1, 0
    for _ in range(measure.take(count, data, position)):
        start = position
        tag, position = wire.read_unsigned_varint(data, position, "tag")
        size, position = wire.read_unsigned_varint(data, position, "tag size")
        end = wire.skip(data, position, size, "tagged field")
        if tag <= last_tag:
            raise MalformedRequest(f"tagged field {tag} comes after {last_tag}")
        last_tag = tag
        if tag not in tagged:
            unknown_count += 1
            measure.cut(start, end)
        elif not _fills(tagged[tag], data, position, end, measure):
            raise MalformedRequest(f"tagged field {tag} does not fill its {size} bytes")
        position = end
    if unknown_count:
        known = bytearray()
        wire.write_unsigned_varint(known, count - unknown_count)
        measure.cut(count_position, count_end, bytes(known))
    return position


def _fills(walk: Walk, data: Buffer, position: int, end: int, measure: Measure) -> bool:
    """Whether the field ends where its size says, without a cut inside, which would change the size."""
    cut_count = measure.cut_count
    return walk(data, position, measure) == end and measure.cut_count == cut_count


def _walk_of_field(field: Field[Any], flexible: bool) -> Walk:
    kind, is_array, is_nullable = _type_of(field)
    if is_dataclass(kind):
        element = _walk_of(kind)  # type: ignore[arg-type]
        if is_nullable and not is_array:
            element = _nullable_walk(element)
    else:
        may_be_null = is_nullable and not is_array
        element = _walk_of_primitive(field.metadata["kafka_type"], flexible, may_be_null)
    return _array_walk(element, flexible, is_nullable) if is_array else element


def _type_of(field: Field[Any]) -> tuple[Any, bool, bool]:
    """The innermost type of a field, whether it is an array, and whether it may be null."""
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


def _walk_of_primitive(kafka_type: str, flexible: bool, is_nullable: bool) -> Walk:
    fixed = _FIXED_SIZES.get(kafka_type)
    if fixed is not None:
        return lambda data, position, _: wire.skip(data, position, fixed, kafka_type)
    read_length = _length_reader(flexible, wire.read_int16 if kafka_type == "string" else wire.read_int32)

    def walk(data: Buffer, position: int, _: Measure) -> int:
        size, position = read_length(data, position, kafka_type)
        return wire.skip(data, position, 0 if size == -1 and is_nullable else size, kafka_type)

    return walk


ReadLength = Callable[[Buffer, int, str], tuple[int, int]]


def _length_reader(flexible: bool, legacy: ReadLength) -> ReadLength:
    """A reader of a length that is -1 for null: plain, or plus one as a varint."""
    if not flexible:
        return legacy

    def read(data: Buffer, position: int, what: str) -> tuple[int, int]:
        size, position = wire.read_unsigned_varint(data, position, what)
        return size - 1, position

    return read


def _nullable_walk(element: Walk) -> Walk:
    def walk(data: Buffer, position: int, measure: Measure) -> int:
        end = wire.skip(data, position, 1, "null marker")
        return element(data, end, measure) if data[position] == 1 else end

    return walk


def _array_walk(element: Walk, flexible: bool, is_nullable: bool) -> Walk:
    read_length = _length_reader(flexible, wire.read_int32)

    def walk(data: Buffer, position: int, measure: Measure) -> int:
        count, position = read_length(data, position, "array length")
        if count < 0 and not (count == -1 and is_nullable):
            raise MalformedRequest(f"an array of {count} entries")
        for _ in range(measure.take(max(count, 0), data, position)):
            position = element(data, position, measure)
        return position

    return walk
