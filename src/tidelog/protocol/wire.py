"""The primitives of Kafka's wire format, of which every request and response consists.

Readers have the arguments `(data, position, what)` and return `(value, position after it)`; `what` names the
field in the exception's message. Writers append to a `bytearray`.

**Invariant:** bytes are never trusted. A read past the end, a negative length, an over-long varint or
invalid UTF-8 raises only `MalformedRequest`, and nothing is allocated by an announced length.
"""

from __future__ import annotations

from struct import Struct

from tidelog.base.files import Buffer
from tidelog.base.limits import ARRAY_LENGTH_MAX, NAMES_CACHED_MAX, TOPIC_NAME_LENGTH_MAX
from tidelog.protocol.errors import MalformedRequest

INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")
_REQUEST_HEAD = Struct(">ihhi")

Endpoint = tuple[int, str, int, str | None]  # node id, host, port, rack
Endpoints = list[Endpoint] | tuple[Endpoint, ...]

TOPIC_ID_SIZE = 16

_names: dict[bytes, str] = {}


TEXT_SIZE_MAX = 2**15 - 1  # whatever the encoding of its length, as in Kafka


def ends_early(what: str) -> MalformedRequest:
    return MalformedRequest(f"{what}: the request ends in the middle of it")


def read_bytes(data: Buffer, position: int, size: int, what: str) -> tuple[bytes, int]:
    end = position + size
    if size < 0:
        raise MalformedRequest(f"{what}: length {size} is negative")
    if end > len(data):
        raise ends_early(what)
    return bytes(data[position:end]), end


def skip(data: Buffer, position: int, size: int, what: str) -> int:
    """The position after `size` bytes, which must exist and are not read."""
    if size < 0:
        raise MalformedRequest(f"{what}: length {size} is negative")
    if position + size > len(data):
        raise ends_early(what)
    return position + size


def read_int8(data: Buffer, position: int, what: str) -> tuple[int, int]:
    if position >= len(data):
        raise ends_early(what)
    byte = data[position]
    return (byte if byte < 0x80 else byte - 0x100), position + 1


def read_int16(data: Buffer, position: int, what: str) -> tuple[int, int]:
    if position + 2 > len(data):
        raise ends_early(what)
    return INT16.unpack_from(data, position)[0], position + 2


def read_int32(data: Buffer, position: int, what: str) -> tuple[int, int]:
    if position + 4 > len(data):
        raise ends_early(what)
    return INT32.unpack_from(data, position)[0], position + 4


def read_int64(data: Buffer, position: int, what: str) -> tuple[int, int]:
    if position + 8 > len(data):
        raise ends_early(what)
    return INT64.unpack_from(data, position)[0], position + 8


def read_unsigned_varint(data: Buffer, position: int, what: str) -> tuple[int, int]:
    if position < len(data) and data[position] < 0x80:
        return data[position], position + 1
    value, position = _read_varint(data, position, 5, what)
    if value > 0xFFFFFFFF:
        raise MalformedRequest(f"{what}: varint does not fit 32 bits")
    return value, position


def read_varint(data: Buffer, position: int, what: str) -> tuple[int, int]:
    """A zigzag int32."""
    value, position = read_unsigned_varint(data, position, what)
    return (value >> 1) ^ -(value & 1), position


def read_varlong(data: Buffer, position: int, what: str) -> tuple[int, int]:
    """A zigzag int64."""
    value, position = _read_varint(data, position, 10, what)
    if value > 0xFFFFFFFFFFFFFFFF:
        raise MalformedRequest(f"{what}: varint does not fit 64 bits")
    return (value >> 1) ^ -(value & 1), position


def _read_varint(data: Buffer, position: int, size_max: int, what: str) -> tuple[int, int]:
    value = shift = 0
    for place in range(position, min(position + size_max, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    if position + size_max > len(data):
        raise ends_early(what)
    raise MalformedRequest(f"{what}: varint is longer than {size_max} bytes")


def read_nullable_string(data: Buffer, position: int, what: str) -> tuple[str | None, int]:
    size, position = read_int16(data, position, what)
    return (None, position) if size == -1 else _read_text(data, position, size, what)


def read_string(data: Buffer, position: int, what: str) -> tuple[str, int]:
    size, position = read_int16(data, position, what)
    return _read_text(data, position, size, what)


def read_compact_nullable_string(data: Buffer, position: int, what: str) -> tuple[str | None, int]:
    if position < len(data) and data[position] == 0:
        return None, position + 1
    size, start = read_unsigned_varint(data, position, what)
    return (None, start) if size == 0 else read_compact_string(data, position, what)


def read_compact_string(data: Buffer, position: int, what: str) -> tuple[str, int]:
    end = position + data[position] if position < len(data) else 0
    if position < end <= len(data) and data[position] < 0x80:  # a short string, as nearly always
        return decode_text(data[position + 1 : end], what), end
    size, position = read_unsigned_varint(data, position, what)
    return _read_text(data, position, size - 1, what)


def _read_text(data: Buffer, position: int, size: int, what: str) -> tuple[str, int]:
    if size > TEXT_SIZE_MAX:
        raise MalformedRequest(f"{what}: {size} bytes; a text has {TEXT_SIZE_MAX} at most")
    raw, end = read_bytes(data, position, size, what)
    return decode_text(raw, what), end


def decode_text(raw: Buffer, what: str) -> str:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        raise MalformedRequest(f"{what}: not valid UTF-8") from None


def topic_name(raw: bytes) -> str:
    """The same `str` object for equal bytes, so that its hash is computed once."""
    name = _names.get(raw)
    if name is None:
        name, _ = _read_text(raw, 0, len(raw), "topic name")
        if len(raw) <= TOPIC_NAME_LENGTH_MAX:
            if len(_names) >= NAMES_CACHED_MAX:
                _names.clear()
            _names[raw] = name
    return name


def forget_topic_name(name: str) -> None:
    _names.pop(name.encode(), None)


def read_topic_name(data: Buffer, position: int, flexible: bool) -> tuple[str, int]:
    if flexible:
        size, position = read_unsigned_varint(data, position, "topic name")
        size -= 1
    else:
        size, position = read_int16(data, position, "topic name")
    raw, position = read_bytes(data, position, size, "topic name")
    return topic_name(raw), position


def read_array_length(data: Buffer, position: int, flexible: bool, what: str) -> tuple[int, int]:
    """The length of an array that may not be null, and that the remaining bytes could hold."""
    if flexible and position < len(data) and 0 < data[position] < 0x80:
        count = data[position] - 1
        position += 1
    elif flexible:
        count, position = read_unsigned_varint(data, position, what)
        count -= 1
    else:
        count, position = read_int32(data, position, what)
    if count < 0:
        raise MalformedRequest(f"{what}: array may not be null or of negative length")
    if count > ARRAY_LENGTH_MAX:
        raise MalformedRequest(f"{what}: {count} elements are more than {ARRAY_LENGTH_MAX}")
    if count > len(data) - position:
        raise ends_early(what)
    return count, position


def skip_tagged_fields(data: Buffer, position: int) -> int:
    """The position after a section of tagged fields, all ignored."""
    if position < len(data) and data[position] == 0:
        return position + 1
    return read_tagged_fields(data, position)[1]


def read_tagged_fields(data: Buffer, position: int) -> tuple[list[tuple[int, int, int]], int]:
    """Every tagged field as `(tag, start, end)`: positions, nothing copied."""
    count, position = read_unsigned_varint(data, position, "tagged fields")
    if count > ARRAY_LENGTH_MAX or count > len(data) - position:
        raise MalformedRequest(f"tagged fields: {count} are more than the request can hold")
    fields = []
    for _ in range(count):
        tag, position = read_unsigned_varint(data, position, "tag")
        size, start = read_unsigned_varint(data, position, "size of a tagged field")
        position = skip(data, start, size, f"tagged field {tag}")
        fields.append((tag, start, position))
    return fields, position


def write_unsigned_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """A zigzag int32 or int64: the bytes are the same."""
    write_unsigned_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def write_string(out: bytearray, text: str | None) -> None:
    if text is None:
        out += b"\xff\xff"
        return
    raw = text.encode()
    out += INT16.pack(len(raw))
    out += raw


def write_compact_string(out: bytearray, text: str | None) -> None:
    if text is None:
        out.append(0)
        return
    raw = text.encode()
    write_array_length(out, len(raw), True)
    out += raw


def write_topic(out: bytearray, topic: str | bytes, flexible: bool) -> None:
    """A topic by its name, or by the 16 bytes of its id in versions with ids."""
    if isinstance(topic, str):
        write_compact_string(out, topic) if flexible else write_string(out, topic)
    else:
        out += topic


def write_array_length(out: bytearray, count: int, flexible: bool) -> None:
    if flexible and count < 0x7F:
        out.append(count + 1)
    elif flexible:
        write_unsigned_varint(out, count + 1)
    else:
        out += INT32.pack(count)


def write_endpoints(out: bytearray, endpoints: Endpoints) -> None:
    """KIP-951's NodeEndpoints: the tagged field 0 of produce and fetch responses."""
    if not endpoints:
        out.append(0)
        return
    field = bytearray()
    write_unsigned_varint(field, len(endpoints) + 1)
    for node_id, host, port, rack in endpoints:
        field += INT32.pack(node_id)
        write_compact_string(field, host)
        field += INT32.pack(port)
        write_compact_string(field, rack)
        field.append(0)
    out += b"\x01\x00"
    write_unsigned_varint(out, len(field))
    out += field


def read_endpoints(data: Buffer, position: int) -> tuple[list[Endpoint], int]:
    """The content of KIP-951's NodeEndpoints."""
    count, position = read_array_length(data, position, True, "node endpoints")
    endpoints: list[Endpoint] = []
    for _ in range(count):
        node_id, position = read_int32(data, position, "node id")
        host, position = read_compact_string(data, position, "host")
        port, position = read_int32(data, position, "port")
        rack, position = read_compact_nullable_string(data, position, "rack")
        position = skip_tagged_fields(data, position)
        endpoints.append((node_id, host, port, rack))
    return endpoints, position


def write_request_head(
    out: bytearray, api_key: int, version: int, correlation_id: int, client_id: str | None, flexible: bool
) -> None:
    """The header of a request, behind four bytes reserved for the size of the frame."""
    out += _REQUEST_HEAD.pack(0, api_key, version, correlation_id)
    write_string(out, client_id)
    if flexible:
        out.append(0)
