"""Requests as kio's entities: built from the few values that matter, the rest empty or zero.

A scenario is written once for all versions: values that a version does not have are left out.
"""

from __future__ import annotations

import io
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from struct import Struct
from types import ModuleType
from typing import Any, get_args, get_origin
from uuid import NAMESPACE_URL, UUID, uuid5

from kio.index import load_payload_module, load_request_schema
from kio.serial import entity_writer
from kio.static.constants import EntityType

CORRELATION_ID = 7
CLIENT_ID = b"differential"
NOBODY = UUID(int=2**100)  # no topic's id
_HEADER = Struct(">hhih")


def topic_id(name: str) -> UUID:
    """The id that a topic has in requests before they are translated, and in answers after it."""
    return uuid5(NAMESPACE_URL, name)


def milliseconds(count: int) -> timedelta:
    return timedelta(milliseconds=count)


@cache
def parts(api_key: int, version: int) -> ModuleType:
    return load_payload_module(api_key, version, EntityType.request)


def build(schema: Any, /, **values: Any) -> Any:
    """An entity with those of the values that its version has, and nothing where no value is given."""
    return schema(**{field.name: _value_of(field, values) for field in fields(schema)})


def _value_of(field: Field[Any], values: dict[str, Any]) -> Any:
    if field.name in values:
        return values[field.name]
    if field.default is not MISSING:
        return field.default
    kind, is_array, is_nullable = type_of(field)
    if is_array:
        return ()
    if is_nullable:
        return None
    if is_dataclass(kind):
        return build(kind)
    return ZEROS[field.metadata["kafka_type"]]


ZEROS: dict[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "uuid": None,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
} | {f"{sign}int{bits}": 0 for sign in ("", "u") for bits in (8, 16, 32, 64)}


def type_of(field: Field[Any]) -> tuple[Any, bool, bool]:
    """The innermost type of a field, whether it is an array of that, and whether it may be null."""
    kind, is_nullable = _without_null(field.type)
    if get_origin(kind) is not tuple:
        return kind, False, is_nullable
    return _without_null(get_args(kind)[0])[0], True, is_nullable


def _without_null(kind: Any) -> tuple[Any, bool]:
    if type(None) not in get_args(kind):
        return kind, False
    return next(part for part in get_args(kind) if part is not type(None)), True


def frame_of(api_key: int, version: int, entity: Any) -> bytes:
    """The request with its size and header."""
    out = io.BytesIO()
    out.write(_HEADER.pack(api_key, version, CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID)
    if entity.__flexible__:
        out.write(b"\0")
    entity_writer(type(entity))(out, entity)
    return framed(out.getvalue())


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def request(api_key: int, version: int, /, **values: Any) -> Any:
    return build(load_request_schema(api_key, version), **values)
