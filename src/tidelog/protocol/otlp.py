"""Metrics as clients push them: OTLP's protobuf, of which the few messages that hold numbers are read.

    MetricsData > ResourceMetrics > ScopeMetrics > Metric > gauge, sum, histogram or summary > data points

A field is looked up by its tag (number and wire type); what is not looked for is skipped, as protobuf wants
it. Of histograms and summaries the count and the sum are kept.

**Invariant:** bytes that are no such message raise `CorruptBatch` and nothing else; work and memory are
bounded by `OTLP_FIELDS_MAX`, whatever the bytes say.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tidelog.base.limits import OTLP_FIELDS_MAX, OTLP_LABELS_MAX, OTLP_NAME_LENGTH_MAX
from tidelog.protocol.errors import CorruptBatch

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_SHIFT_MAX = 63
_DOUBLE = Struct("<d")
_UINT64 = Struct("<Q")
_INT64 = Struct("<q")
_NS_PER_MS = 1_000_000
_DELTA = 1


def _tag(number: int, wire_type: int) -> int:
    return number << 3 | wire_type


_FIRST, _SECOND = _tag(1, _BYTES), _tag(2, _BYTES)
_GAUGE, _SUM = _tag(5, _BYTES), _tag(7, _BYTES)
_HISTOGRAM, _EXPONENTIAL, _SUMMARY = _tag(9, _BYTES), _tag(10, _BYTES), _tag(11, _BYTES)
_NUMBERS = (_GAUGE, _SUM)
# Where each kind of data point has its attributes; all have the time in the third field.
_ATTRIBUTES = {
    _GAUGE: _tag(7, _BYTES),
    _SUM: _tag(7, _BYTES),
    _HISTOGRAM: _tag(9, _BYTES),
    _EXPONENTIAL: _tag(1, _BYTES),
    _SUMMARY: _tag(7, _BYTES),
}
_TEMPORALITY, _MONOTONIC = _tag(2, _VARINT), _tag(3, _VARINT)
_TIME, _AS_DOUBLE, _AS_INT = _tag(3, _FIXED64), _tag(4, _FIXED64), _tag(6, _FIXED64)
_COUNT, _TOTAL = _tag(4, _FIXED64), _tag(5, _FIXED64)
_TEXT, _BOOLEAN, _INTEGER, _REAL = _tag(1, _BYTES), _tag(2, _VARINT), _tag(3, _VARINT), _tag(4, _FIXED64)

Labels = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    name: str
    labels: Labels
    value: float
    time_ms: int
    is_counter: bool  # only ever grows
    is_delta: bool  # what was added since the last time, not what there is


class _Message:
    """Bytes from `start` to `end`, and how many fields may still be looked at."""

    __slots__ = ("data", "left")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = OTLP_FIELDS_MAX

    def fields(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Of each field its tag and, for a varint, the value and 0; for others, where they start and end."""
        position = start
        while position < end:
            self.left -= 1
            if self.left < 0:
                raise CorruptBatch(f"telemetry: more than {OTLP_FIELDS_MAX} fields")
            tag, position = self._varint(position, end)
            wire_type = tag & 7
            if wire_type == _VARINT:
                value, position = self._varint(position, end)
                yield tag, value, 0
                continue
            if wire_type == _BYTES:
                size, position = self._varint(position, end)
            elif wire_type in (_FIXED64, _FIXED32):
                size = 8 if wire_type == _FIXED64 else 4
            else:
                raise CorruptBatch(f"telemetry: wire type {wire_type}")
            if size > end - position:
                raise CorruptBatch("telemetry: ends in the middle of a field")
            yield tag, position, position + size
            position += size

    def within(self, start: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
        """Where each field with that tag starts and ends."""
        return ((first, last) for tag, first, last in self.fields(start, end) if tag == wanted)

    def text(self, start: int, end: int) -> str:
        try:
            return self.data[start:end].decode()[:OTLP_NAME_LENGTH_MAX]
        except UnicodeDecodeError:
            raise CorruptBatch("telemetry: text that is not UTF-8") from None

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while position < end and shift <= _VARINT_SHIFT_MAX:
            byte = self.data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
        raise CorruptBatch("telemetry: a number that does not end")


def decode_metrics(data: bytes) -> list[Point]:
    """All data points, each with the labels of the resource that it belongs to."""
    message = _Message(data)
    points: list[Point] = []
    for resource_start, resource_end in message.within(0, len(data), _FIRST):
        inherited: list[tuple[str, str]] = []
        scopes: list[tuple[int, int]] = []
        for tag, start, end in message.fields(resource_start, resource_end):
            if tag == _FIRST:
                inherited += [_label(message, *place) for place in message.within(start, end, _FIRST)]
            elif tag == _SECOND:
                scopes.append((start, end))
        inherited = list(_told(inherited))  # or as many labels as points would be work by their product
        for scope in scopes:
            for metric in message.within(*scope, _SECOND):
                points += _metric(message, *metric, inherited)
    return points


def _label(message: _Message, start: int, end: int) -> tuple[str, str]:
    key = value = ""
    for tag, first, last in message.fields(start, end):
        if tag == _FIRST:
            key = message.text(first, last)
        elif tag == _SECOND:
            value = _any_value(message, first, last)
    return key, value


def _any_value(message: _Message, start: int, end: int) -> str:
    text = ""
    for tag, first, last in message.fields(start, end):
        if tag == _TEXT:
            text = message.text(first, last)
        elif tag == _BOOLEAN:
            text = "true" if first else "false"
        elif tag == _INTEGER:
            text = str(first - 2**64 if first >= 2**63 else first)
        elif tag == _REAL:
            text = str(_DOUBLE.unpack_from(message.data, first)[0])
    return text


def _metric(message: _Message, start: int, end: int, inherited: list[tuple[str, str]]) -> list[Point]:
    name = ""
    kind, data_start, data_end = 0, 0, 0
    for tag, first, last in message.fields(start, end):
        if tag == _FIRST:
            name = message.text(first, last)
        elif tag in _ATTRIBUTES:
            kind, data_start, data_end = tag, first, last
    if not kind:
        return []
    is_delta = is_counter = False
    places: list[tuple[int, int]] = []
    for tag, first, last in message.fields(data_start, data_end):
        if tag == _FIRST:
            places.append((first, last))
        elif tag == _TEMPORALITY and kind != _GAUGE:
            is_delta = first == _DELTA
        elif tag == _MONOTONIC and kind == _SUM:
            is_counter = bool(first)
    if kind in _NUMBERS:
        return [_number(message, *place, kind, name, inherited, is_counter, is_delta) for place in places]
    return [
        point for place in places for point in _distribution(message, *place, kind, name, inherited, is_delta)
    ]


def _number(
    message: _Message,
    start: int,
    end: int,
    kind: int,
    name: str,
    inherited: list[tuple[str, str]],
    is_counter: bool,
    is_delta: bool,
) -> Point:
    labels = list(inherited)
    value: float = 0
    time_ms = 0
    for tag, first, last in message.fields(start, end):
        if tag == _AS_DOUBLE:
            (value,) = _DOUBLE.unpack_from(message.data, first)
        elif tag == _AS_INT:
            (value,) = _INT64.unpack_from(message.data, first)
        elif tag == _TIME:
            time_ms = _UINT64.unpack_from(message.data, first)[0] // _NS_PER_MS
        elif tag == _ATTRIBUTES[kind]:
            labels.append(_label(message, first, last))
    return Point(name, _told(labels), value, time_ms, is_counter, is_delta)


def _distribution(
    message: _Message,
    start: int,
    end: int,
    kind: int,
    name: str,
    inherited: list[tuple[str, str]],
    is_delta: bool,
) -> list[Point]:
    labels = list(inherited)
    count = time_ms = 0
    total = 0.0
    for tag, first, last in message.fields(start, end):
        if tag == _COUNT:
            (count,) = _UINT64.unpack_from(message.data, first)
        elif tag == _TOTAL:
            (total,) = _DOUBLE.unpack_from(message.data, first)
        elif tag == _TIME:
            time_ms = _UINT64.unpack_from(message.data, first)[0] // _NS_PER_MS
        elif tag == _ATTRIBUTES[kind]:
            labels.append(_label(message, first, last))
    told = _told(labels)
    return [
        Point(f"{name}.count", told, count, time_ms, True, is_delta),
        Point(f"{name}.sum", told, total, time_ms, True, is_delta),
    ]


def _told(labels: list[tuple[str, str]]) -> Labels:
    """Each label once, in the order of their names; the point's own before the resource's."""
    return tuple(sorted({key: value for key, value in labels if key}.items())[:OTLP_LABELS_MAX])
