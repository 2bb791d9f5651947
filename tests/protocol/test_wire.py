"""The primitives: what was written reads back, and no bad byte gets through or costs memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.reference import INT32, INT64, TEXT
from tidelog.base.limits import ARRAY_LENGTH_MAX
from tidelog.protocol import wire
from tidelog.protocol.errors import MalformedRequest

BUFFERS: list[Callable[[bytes], bytes | bytearray | memoryview]] = [bytes, bytearray, memoryview]


@given(st.integers(0, 2**32 - 1))
def test_an_unsigned_varint_reads_back(value: int) -> None:
    out = bytearray(b"\xff")
    wire.write_unsigned_varint(out, value)
    assert wire.read_unsigned_varint(out, 1, "x") == (value, len(out))


@given(INT32)
def test_a_varint_reads_back(value: int) -> None:
    out = bytearray()
    wire.write_varint(out, value)
    assert wire.read_varint(out, 0, "x") == (value, len(out))


@given(INT64)
def test_a_varlong_reads_back(value: int) -> None:
    out = bytearray()
    wire.write_varint(out, value)
    assert wire.read_varlong(out, 0, "x") == (value, len(out))


@pytest.mark.parametrize(("value", "encoded"), [(0, b"\0"), (-1, b"\1"), (1, b"\2"), (-65, b"\x81\1")])
def test_zigzag_is_kafkas(value: int, encoded: bytes) -> None:
    out = bytearray()
    wire.write_varint(out, value)
    assert out == encoded


@given(st.one_of(st.none(), TEXT))
def test_strings_read_back_in_both_forms(text: str | None) -> None:
    legacy, compact = bytearray(), bytearray()
    wire.write_string(legacy, text)
    wire.write_compact_string(compact, text)
    assert wire.read_nullable_string(legacy, 0, "x") == (text, len(legacy))
    assert wire.read_compact_nullable_string(compact, 0, "x") == (text, len(compact))


@pytest.mark.parametrize(
    ("read", "data", "complaint"),
    [
        (wire.read_int8, b"", "x: the request ends"),
        (wire.read_int16, b"\0", "x: the request ends"),
        (wire.read_int32, b"\0\0\0", "x: the request ends"),
        (wire.read_int64, b"\0" * 7, "x: the request ends"),
        (wire.read_unsigned_varint, b"", "x: the request ends"),
        (wire.read_unsigned_varint, b"\x80\x80", "x: the request ends"),
        (wire.read_unsigned_varint, b"\x80" * 5 + b"\0", "x: varint is longer than 5 bytes"),
        (wire.read_unsigned_varint, b"\xff\xff\xff\xff\x1f", "x: varint does not fit 32 bits"),
        (wire.read_varlong, b"\x80" * 10 + b"\0", "x: varint is longer than 10 bytes"),
        (wire.read_varlong, b"\xff" * 9 + b"\x03", "x: varint does not fit 64 bits"),
        (wire.read_string, b"\xff\xff", "x: length -1 is negative"),
        (wire.read_nullable_string, b"\xff\xfe", "x: length -2 is negative"),
        (wire.read_string, b"\x7f\xffabc", "x: the request ends"),
        (wire.read_string, b"\0\2\xc3\x28", "x: not valid UTF-8"),
        (wire.read_compact_string, b"\0", "x: length -1 is negative"),
        (wire.read_compact_string, b"\x05abc", "x: the request ends"),
    ],
)
@pytest.mark.parametrize("kind", BUFFERS)
def test_a_bad_read_names_the_field(
    read: Callable[[object, int, str], object],
    data: bytes,
    complaint: str,
    kind: Callable[[bytes], bytes | bytearray | memoryview],
) -> None:
    with pytest.raises(MalformedRequest, match=complaint):
        read(kind(data), 0, "x")


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("count", [-1, ARRAY_LENGTH_MAX + 1, 11])
def test_an_array_is_refused_if_it_is_null_too_long_or_longer_than_the_bytes(
    flexible: bool, count: int
) -> None:
    out = bytearray()
    wire.write_array_length(out, count, flexible)
    padding = 2 * ARRAY_LENGTH_MAX if count > ARRAY_LENGTH_MAX else 10
    with pytest.raises(MalformedRequest, match="x"):
        wire.read_array_length(out + bytes(padding), 0, flexible, "x")


@pytest.mark.parametrize("flexible", [False, True])
def test_the_longest_array_is_allowed(flexible: bool) -> None:
    out = bytearray()
    wire.write_array_length(out, ARRAY_LENGTH_MAX, flexible)
    count, position = wire.read_array_length(out + bytes(ARRAY_LENGTH_MAX), 0, flexible, "x")
    assert (count, position) == (ARRAY_LENGTH_MAX, len(out))


def test_tagged_fields_are_named_by_position_and_skipped() -> None:
    data = b"\x02\x00\x03abc\x87\x01\x00rest"
    assert wire.read_tagged_fields(data, 0) == ([(0, 3, 6), (135, 9, 9)], 9)
    assert wire.skip_tagged_fields(data, 0) == 9
    assert wire.skip_tagged_fields(b"\0", 0) == 1


@pytest.mark.parametrize("data", [b"", b"\1", b"\1\0", b"\1\0\5abc", b"\xff\xff\xff\xff\x0f\0\0"])
def test_tagged_fields_that_do_not_fit_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedRequest):
        wire.skip_tagged_fields(data, 0)


def test_an_announced_length_allocates_nothing() -> None:
    tracemalloc.start()
    for data in (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x07abc"):
        for read in (wire.read_compact_string, wire.read_compact_nullable_string):
            with pytest.raises(MalformedRequest):
                read(data, 0, "x")
        with pytest.raises(MalformedRequest):
            wire.read_tagged_fields(data, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_a_topic_name_is_one_object() -> None:
    first = wire.topic_name(b"orders")
    assert first == "orders"
    assert wire.topic_name(bytes(bytearray(b"orders"))) is first


def test_the_names_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[bytes, str] = {}
    monkeypatch.setattr(wire, "_names", names)
    monkeypatch.setattr(wire, "NAMES_CACHED_MAX", 5)
    for number in range(50):
        assert wire.topic_name(b"%d" % number) == str(number)
        assert len(names) <= 5
    wire.topic_name(b"x" * 250)
    assert b"x" * 250 not in names
