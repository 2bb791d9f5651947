"""Reads the fields of a record of an internal topic, one after the other, in either of Kafka's encodings.

**Invariant:** malformed bytes raise `CorruptBatch`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error, unpack
from typing import TypeVar

from tidelog.protocol.errors import CorruptBatch, MalformedRequest
from tidelog.protocol.wire import decode_text, read_bytes, read_tagged_fields, read_unsigned_varint

INT8, INT16, INT32, INT64 = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q")
Part = TypeVar("Part")


class FieldReader:
    """Reads one field after the other; raises `CorruptBatch` when a field is malformed or missing."""

    __slots__ = ("_data", "_position", "is_flexible")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.is_flexible = False

    def take(self, size: int) -> bytes:
        try:
            taken, self._position = read_bytes(self._data, self._position, size, "a field")
        except MalformedRequest as problem:
            raise CorruptBatch(str(problem)) from None
        return taken

    def _number(self, form: Struct) -> int:
        try:
            (number,) = form.unpack_from(self._data, self._position)
        except error:
            raise CorruptBatch("a record ends early") from None
        self._position += form.size
        return int(number)

    def int8(self) -> int:
        return self._number(INT8)

    def int16(self) -> int:
        return self._number(INT16)

    def int32(self) -> int:
        return self._number(INT32)

    def int64(self) -> int:
        return self._number(INT64)

    def version(self, oldest: int, newest: int) -> int:
        version = self.int16()
        if not oldest <= version <= newest:
            raise CorruptBatch(f"a record has version {version}; {newest} is the newest known")
        return version

    def _varint(self) -> int:
        try:
            number, self._position = read_unsigned_varint(self._data, self._position, "a length")
        except MalformedRequest as problem:
            raise CorruptBatch(str(problem)) from None
        return number

    def _text_of(self, size: int) -> str | None:
        if size < 0:
            return None
        try:
            return decode_text(self.take(size), "a text")
        except MalformedRequest as problem:
            raise CorruptBatch(str(problem)) from None

    def nullable_text(self) -> str | None:
        return self._text_of(self._varint() - 1 if self.is_flexible else self.int16())

    def text(self) -> str:
        return _present(self.nullable_text())

    def string(self) -> str:
        return _present(self._text_of(self.int16()))

    def compact_string(self) -> str:
        return _present(self._text_of(self._varint() - 1))

    def blob(self) -> bytes:
        return self.take(max(self._varint() - 1 if self.is_flexible else self.int32(), 0))

    def array(self, read: Callable[[], Part]) -> tuple[Part, ...]:
        count = self._varint() - 1 if self.is_flexible else self.int32()
        if count > len(self._data):
            raise CorruptBatch(f"{len(self._data)} bytes cannot hold {count} parts")
        return tuple(read() for _ in range(max(count, 0)))

    def numbers(self) -> tuple[int, ...]:
        """An array of int32."""
        count = self._varint() - 1 if self.is_flexible else self.int32()
        data = self.take(4 * max(count, 0))
        return unpack(f">{len(data) // 4}i", data)

    def tags(self) -> dict[int, bytes]:
        try:
            found, self._position = read_tagged_fields(self._data, self._position)
        except MalformedRequest as problem:
            raise CorruptBatch(str(problem)) from None
        return {tag: self._data[start:end] for tag, start, end in found}

    def tag(self, size: int) -> bytes | None:
        """The optional tagged field number 0 of that size at the end of a structure, or None."""
        content = self.tags().get(0)
        if content is not None and len(content) != size:
            raise CorruptBatch(f"a field of {size} bytes has {len(content)}")
        return content

    def end_struct(self) -> None:
        if self.is_flexible:
            self.tags()


def _present(text: str | None) -> str:
    if text is None:
        raise CorruptBatch("a record lacks a text")
    return text
