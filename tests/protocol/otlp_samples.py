"""OTLP messages made by hand, field by field, as clients push them."""

from __future__ import annotations

from struct import pack

Attributes = dict[str, str | int | bool | float]


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def fixed(number: int, packed: bytes) -> bytes:
    return varint(number << 3 | 1) + packed


def label(key: str, value: str | int | bool | float) -> bytes:
    if isinstance(value, bool):
        held = number_field(2, value)
    elif isinstance(value, int):
        held = number_field(3, value % 2**64)
    elif isinstance(value, float):
        held = fixed(4, pack("<d", value))
    else:
        held = field(1, value)
    return field(1, key) + field(2, held)


def point(
    value: float, attributes: Attributes | None = None, time_ms: int = 1_000, attributes_field: int = 7
) -> bytes:
    held = fixed(6, pack("<q", value)) if isinstance(value, int) else fixed(4, pack("<d", value))
    labels = b"".join(field(attributes_field, label(*item)) for item in (attributes or {}).items())
    return fixed(3, pack("<Q", time_ms * 1_000_000)) + held + labels


def distribution(count: int, total: float, attributes_field: int, attributes: Attributes) -> bytes:
    labels = b"".join(field(attributes_field, label(*item)) for item in attributes.items())
    numbers = fixed(4, pack("<Q", count)) + fixed(5, pack("<d", total))
    return fixed(2, bytes(8)) + fixed(3, pack("<Q", 2_000_000_000)) + numbers + labels


def gauge(name: str, *points: bytes) -> bytes:
    return field(1, name) + field(5, b"".join(field(1, each) for each in points))


def sum_of(name: str, *points: bytes, temporality: int = 2, monotonic: bool = True) -> bytes:
    kind = number_field(2, temporality) + number_field(3, monotonic)
    return field(1, name) + field(7, b"".join(field(1, each) for each in points) + kind)


def metrics(*metric: bytes, resource: Attributes | None = None) -> bytes:
    """The whole message."""
    attributes = b"".join(field(1, label(*item)) for item in (resource or {}).items())
    scope = field(1, b"") + b"".join(field(2, each) for each in metric)
    return field(1, field(1, attributes) + field(2, scope))
