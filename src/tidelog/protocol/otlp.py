"""Metrics pushed by clients: OTLP's protobuf, of which only the messages with numbers are read.

    MetricsData > ResourceMetrics > ScopeMetrics > Metric > gauge, sum, histogram or summary > data points

A field is found by its tag (number and wire type); other fields are skipped, as protobuf requires.
Of histograms and summaries the count and the sum are kept.

**Invariant:** malformed bytes raise only `CorruptBatch`; work and memory are bounded by `OTLP_FIELDS_MAX` and
`OTLP_POINTS_MAX`. The labels of a resource are sorted once, and shared by the points without own labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tidelog.base.limits import OTLP_FIELDS_MAX, OTLP_LABELS_MAX, OTLP_NAME_LENGTH_MAX, OTLP_POINTS_MAX
from tidelog.protocol.errors import CorruptBatch

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_SHIFT_MAX = 63  # of a number of eight bytes
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
# The field of the attributes in each kind of data point; the time is always the third field.
_ATTRIBUTES = {
    _GAUGE: _tag(7, _BYTES),
    _SUM: _tag(7, _BYTES),
    _HISTOGRAM: _tag(9, _BYTES),
    _EXPONENTIAL: _tag(1, _BYTES),
    _SUMMARY: _tag(7, _BYTES),
}
_TEMPORALITY, _MONOTONIC = _tag(2, _VARINT), _tag(3, _VARINT)
_TIME, _AS_INT, _TOTAL = _tag(3, _FIXED64), _tag(6, _FIXED64), _tag(5, _FIXED64)
_FOURTH = _tag(4, _FIXED64)  # a number's value as a double, or a distribution's count
_TEXT, _BOOLEAN, _INTEGER, _REAL = _tag(1, _BYTES), _tag(2, _VARINT), _tag(3, _VARINT), _tag(4, _FIXED64)

Labels = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    name: str
    labels: Labels
    value: float
    time_ms: int
    is_counter: bool  # never decreases
    is_delta: bool  # the change since the last push, not the total


class _Message:
    """The bytes, and the number of fields and points that may still be read."""

    __slots__ = ("data", "left", "points_left")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = OTLP_FIELDS_MAX
        self.points_left = OTLP_POINTS_MAX

    def count_fields(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise CorruptBatch(f"telemetry: more than {OTLP_FIELDS_MAX} fields")

    def count_points(self, count: int) -> None:
        self.points_left -= count
        if self.points_left < 0:
            raise CorruptBatch(f"telemetry: more than {OTLP_POINTS_MAX} points")

    def fields(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """For each field its tag and, for a varint, the value and 0; for others, start and end."""
        position = start
        data = self.data
        while position < end:
            self.count_fields(1)
            tag = data[position]
            position += 1
            if tag >= 0x80:
                tag, position = self._varint(position - 1, end)
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
        """Start and end of each field with that tag."""
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
    """All data points, each with the labels of its resource."""
    message = _Message(data)
    points: list[Point] = []
    for resource_start, resource_end in message.within(0, len(data), _FIRST):
        resource_labels: list[tuple[str, str]] = []
        scopes: list[tuple[int, int]] = []
        for tag, start, end in message.fields(resource_start, resource_end):
            if tag == _FIRST:
                resource_labels += [_label(message, *place) for place in message.within(start, end, _FIRST)]
            elif tag == _SECOND:
                scopes.append((start, end))
        inherited = _told(resource_labels)
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


def _metric(message: _Message, start: int, end: int, inherited: Labels) -> list[Point]:
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
            message.count_points(1 if kind in _NUMBERS else 2)
            places.append((first, last))
        elif tag == _TEMPORALITY and kind != _GAUGE:
            is_delta = first == _DELTA
        elif tag == _MONOTONIC and kind == _SUM:
            is_counter = bool(first)
    points: list[Point] = []
    for place in places:
        labels, time_ms, value, total = _data_point(message, *place, kind, inherited)
        if kind in _NUMBERS:
            points.append(Point(name, labels, value, time_ms, is_counter, is_delta))
        else:
            points.append(Point(f"{name}.count", labels, value, time_ms, True, is_delta))
            points.append(Point(f"{name}.sum", labels, total, time_ms, True, is_delta))
    return points


def _data_point(
    message: _Message, start: int, end: int, kind: int, inherited: Labels
) -> tuple[Labels, int, float, float]:
    """Labels, time and number of a data point; for a distribution the count and the sum."""
    own: list[tuple[str, str]] = []
    time_ms = 0
    value: float = 0
    total = 0.0
    is_number = kind in _NUMBERS
    attributes = _ATTRIBUTES[kind]
    for tag, first, last in message.fields(start, end):
        if tag == _TIME:
            time_ms = _UINT64.unpack_from(message.data, first)[0] // _NS_PER_MS
        elif tag == attributes:
            own.append(_label(message, first, last))
        elif tag == _FOURTH:
            (value,) = (_DOUBLE if is_number else _UINT64).unpack_from(message.data, first)
        elif tag == _AS_INT and is_number:
            (value,) = _INT64.unpack_from(message.data, first)
        elif tag == _TOTAL and not is_number:
            (total,) = _DOUBLE.unpack_from(message.data, first)
    if not own:
        return inherited, time_ms, value, total
    message.count_fields(len(inherited))  # they are sorted again, which is as much work
    return _told([*inherited, *own]), time_ms, value, total


def _told(labels: list[tuple[str, str]]) -> Labels:
    """Each label once, sorted by name; the point's own labels override the resource's."""
    return tuple(sorted({key: value for key, value in labels if key}.items())[:OTLP_LABELS_MAX])
