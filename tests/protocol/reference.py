"""kio as the second opinion: its generated classes of any version, written and read whole."""

from __future__ import annotations

import importlib
import io
import uuid
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

INT8 = st.integers(-(2**7), 2**7 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
MILLISECONDS = st.integers(0, 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
LONG_TEXT = st.one_of(TEXT, st.integers(120, 140).map(lambda size: "n" * size))
TOPIC_IDS = st.binary(min_size=16, max_size=16)


def module(api: str, version: int, side: str) -> Any:
    return importlib.import_module(f"kio.schema.{api}.v{version}.{side}")


def write(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def read(kind: Any, data: bytes) -> Any:
    """The entity that must fill `data` exactly."""
    entity, size = entity_reader(kind)(data, 0)
    assert size == len(data)
    return entity


def read_response(kind: Any, frame: bytes, correlation_id: int) -> Any:
    """Check size prefix and header of a response frame, and read its body."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big", signed=True) == correlation_id
    if not kind.__flexible__:
        return read(kind, frame[8:])
    assert frame[8] == 0
    return read(kind, frame[9:])


def topics(version: int, first_with_ids: int) -> st.SearchStrategy[str] | st.SearchStrategy[bytes]:
    return LONG_TEXT if version < first_with_ids else TOPIC_IDS


def as_uuid(topic_id: bytes) -> uuid.UUID | None:
    """kio reads the id of zeros as None."""
    return uuid.UUID(bytes=topic_id) if any(topic_id) else None


def as_timedelta(milliseconds: int) -> Any:
    return i32Timedelta.parse(timedelta(milliseconds=milliseconds))


def mutations(data: bytes) -> st.SearchStrategy[bytes]:
    """`data` with a piece of it replaced, cut out or put in."""

    def mutate(start: int, size: int, put: bytes) -> bytes:
        return data[:start] + put + data[start + size :]

    return st.builds(mutate, st.integers(0, len(data)), st.integers(0, 6), st.binary(max_size=6))
