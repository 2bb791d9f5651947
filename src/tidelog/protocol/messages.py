"""A thin layer over kio: one request in, one response out, for every API without a codec of its own here.

kio has a class for each version of a message; `make` accepts the fields of the newest version and omits those
that an older version lacks, so a handler is written once.

**Invariant:** a request is measured before it is decoded; malformed bytes raise MalformedRequest.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from struct import Struct
from types import ModuleType
from typing import Any

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

from tidelog.base.files import Buffer
from tidelog.protocol.apis import API_VERSIONS
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.shape import Measure, check_shape
from tidelog.protocol.wire import write_array_length

_FRAME_HEAD = Struct(">ii")
_REQUEST_HEAD = Struct(">hhih")


def decode_request(api_key: int, version: int, data: Buffer, position: int) -> Any:
    """The request body that begins at `position` and ends where `data` ends."""
    return _decode(_request_type(api_key, version), data, position)


def decode_response(api_key: int, version: int, data: Buffer, position: int) -> Any:
    """The response body that begins at `position`."""
    return _decode(response_type(api_key, version), data, position)


def _decode(message: type[Any], data: Buffer, position: int) -> Any:
    body = bytes(memoryview(data)[position:])
    measure = Measure()
    check_shape(message, body, 0, measure)  # trailing bytes are ignored: librdkafka sends some
    body = measure.apply_cuts(body)
    try:
        return entity_reader(message)(body, 0)[0]
    except (SerialError, ValueError, TypeError, OverflowError) as error:
        raise MalformedRequest(f"{message.__name__}: {error}") from None


def encode_response(api_key: int, version: int, correlation_id: int, response: Any) -> bytes:
    """The whole frame: size, response header, body."""
    buffer = io.BytesIO()
    buffer.write(_FRAME_HEAD.pack(0, correlation_id))
    if response.__flexible__ and api_key != API_VERSIONS.key:
        buffer.write(b"\x00")
    entity_writer(type(response))(buffer, response)
    frame = buffer.getbuffer()
    _FRAME_HEAD.pack_into(frame, 0, len(frame) - 4, correlation_id)
    return bytes(frame)


def encode_request(api_key: int, version: int, client_id: str, request: Any) -> bytes:
    """A request from its API key on, with correlation id 0."""
    buffer = io.BytesIO()
    name = client_id.encode()
    buffer.write(_REQUEST_HEAD.pack(api_key, version, 0, len(name)) + name)
    if request.__flexible__:
        buffer.write(b"\x00")
    entity_writer(type(request))(buffer, request)
    return buffer.getvalue()


def encode_part(part: Any) -> bytes:
    """A part of a response that is assembled by hand."""
    buffer = io.BytesIO()
    entity_writer(type(part))(buffer, part)
    return buffer.getvalue()


def encode_frame(correlation_id: int, flexible: bool, *pieces: Buffer) -> bytes:
    """The whole frame of a response whose body is encoded already."""
    tags = b"\x00" if flexible else b""
    size = 4 + len(tags) + sum(len(piece) for piece in pieces)
    return b"".join((_FRAME_HEAD.pack(size, correlation_id), tags, *pieces))


def encode_array(parts: Sequence[bytes], is_flexible: bool) -> bytes:
    out = bytearray()
    write_array_length(out, len(parts), is_flexible)
    return b"".join([out, *parts])


@cache
def request_types(api_key: int, version: int) -> ModuleType:
    """The module with the classes of a request."""
    return load_payload_module(api_key, version, EntityType.request)


@cache
def _request_type(api_key: int, version: int) -> type[Any]:
    return load_request_schema(api_key, version)


@cache
def response_types(api_key: int, version: int) -> ModuleType:
    """The module with the classes of a response."""
    return load_payload_module(api_key, version, EntityType.response)


@cache
def response_type(api_key: int, version: int) -> type[Any]:
    return load_response_schema(api_key, version)


@cache
def _field_names(message: Any) -> frozenset[str]:
    return frozenset(field.name for field in fields(message))


def make(message: Any, /, **values: Any) -> Any:
    """An entity from those of the values that its version has."""
    names = _field_names(message)
    return message(**{name: value for name, value in values.items() if name in names})
