"""Requests are measured before kio decodes them: valid ones pass, all others are refused, nothing aborts.

kio's native reader reserves memory for whatever length an array announces, and a process that cannot have
it is gone, without an exception: hence the runs in a process of their own.
"""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader
from kio.static.constants import EntityType
from kio.static.primitive import Records, i64Timedelta

from tests.protocol.reference import mutations
from tests.wire.harness import encode
from tidelog.base.limits import ARRAY_LENGTH_MAX
from tidelog.protocol.apis import APIS
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.messages import decode_request
from tidelog.protocol.shape import check_shape

SERVED = [(api.key, version) for api in APIS for version in range(api.oldest_version, api.newest_version + 1)]
ALL = [
    (api_key, version)
    for api_key, name in sorted(api_key_map.items())
    for version, kinds in sorted(schema_name_map[name].items())
    if EntityType.request in kinds
]
LENGTHS = (2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)
LONGEST_MS = 2**53  # kio reads microseconds in 64 bits, and what it writes went through a float
st.register_type_strategy(Records, st.binary(max_size=30))
st.register_type_strategy(
    i64Timedelta, st.builds(timedelta, milliseconds=st.integers(-LONGEST_MS, LONGEST_MS))
)
BOUNDED = settings(max_examples=6, deadline=None, suppress_health_check=[*HealthCheck])


@cache
def messages(api_key: int, version: int) -> st.SearchStrategy[Any]:
    return st.from_type(load_request_schema(api_key, version))


@pytest.mark.parametrize(("api_key", "version"), SERVED)
@settings(BOUNDED, max_examples=12)
@given(data=st.data())
def test_a_valid_request_passes_and_ends_where_it_ends(
    api_key: int, version: int, data: st.DataObject
) -> None:
    message = data.draw(messages(api_key, version))
    encoded = encode(message)
    assert check_shape(type(message), encoded + b"rest", 0) == len(encoded)
    assert decode_request(api_key, version, encoded, 0) == entity_reader(type(message))(encoded, 0)[0]


@pytest.mark.parametrize(("api_key", "version"), ALL[:: max(1, len(ALL) // 100)])
@settings(BOUNDED, max_examples=3)
@given(data=st.data())
def test_the_walk_knows_every_schema_of_the_protocol(api_key: int, version: int, data: st.DataObject) -> None:
    message = data.draw(messages(api_key, version))
    encoded = encode(message)
    assert check_shape(type(message), encoded + b"rest", 0) == len(encoded)


def test_a_walk_can_be_made_of_every_schema() -> None:
    for api_key, version in ALL:
        try:
            check_shape(load_request_schema(api_key, version), bytes(200), 0)
        except MalformedRequest:
            pass


@pytest.mark.parametrize(("api_key", "version"), SERVED)
@settings(BOUNDED, max_examples=20)
@given(data=st.data())
def test_a_mutated_request_is_decoded_or_refused(api_key: int, version: int, data: st.DataObject) -> None:
    encoded = encode(data.draw(messages(api_key, version)))
    mutated = data.draw(mutations(encoded))
    try:
        decode_request(api_key, version, mutated, 0)
    except MalformedRequest:
        pass


@pytest.mark.parametrize(("api_key", "version"), SERVED)
@settings(BOUNDED, max_examples=20)
@given(data=st.binary(max_size=80))
def test_random_bytes_are_decoded_or_refused(api_key: int, version: int, data: bytes) -> None:
    try:
        decode_request(api_key, version, data, 0)
    except MalformedRequest:
        pass


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("version", range(9, 14))
def test_an_array_of_billions_is_refused_before_kio_sees_it(version: int, length: int) -> None:
    with pytest.raises(MalformedRequest, match="entries"):
        decode_request(3, version, varint(length) + bytes(1_000), 0)


def test_an_old_array_of_billions_is_refused_too() -> None:
    with pytest.raises(MalformedRequest, match="entries"):
        decode_request(3, 1, (2**31 - 1).to_bytes(4, "big") + bytes(1_000), 0)


ABORTING = """
from kio.index import load_request_schema
from kio.serial import entity_reader
entity_reader(load_request_schema(3, 12))({data!r}, 0)
"""
SURVIVING = """
from tests.wire.test_shape import SERVED, LENGTHS, varint
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.messages import decode_request
refused = 0
for api_key, version in SERVED:
    for length in LENGTHS:
        for start in range(0, 24):
            for number in (varint(length), (length & 0x7FFFFFFF).to_bytes(4, "big")):
                for filler in (b"\\0", b"\\1"):
                    try:
                        decode_request(api_key, version, filler * start + number + bytes(64), 0)
                    except MalformedRequest:
                        refused += 1
print("survived", refused)
"""


def run_python(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )


def test_announced_lengths_never_abort_the_process() -> None:
    finished = run_python(SURVIVING)
    assert finished.returncode == 0, finished.stderr
    word, refused = finished.stdout.split()
    assert word == "survived" and int(refused) > len(SERVED)


def test_without_the_walk_kio_is_not_safe() -> None:
    """The reason for the walk: should kio one day refuse by itself, this says that the walk may go."""
    finished = run_python(ABORTING.format(data=varint(2**32 - 2) + bytes(64)))
    assert finished.returncode != 0
    assert "SerialError" not in finished.stderr and "BufferUnderflow" not in finished.stderr


def test_entries_are_counted_over_the_whole_request() -> None:
    """Entries of four bytes become objects of hundreds: a frame of 100 MB may not hold millions of them."""
    config = b"\0\1k\xff\xff"
    topics = bytearray((3).to_bytes(4, "big"))
    for _ in range(3):
        count = ARRAY_LENGTH_MAX // 2
        topics += b"\0\1t" + bytes(4) + bytes(2) + bytes(4) + count.to_bytes(4, "big") + config * count
    topics += bytes(4) + b"\0"
    with pytest.raises(MalformedRequest, match="entries"):
        decode_request(19, 4, bytes(topics), 0)


UNKNOWN_TAGS = b"\2\x63\3abc\x64\0"


def test_tagged_fields_that_are_not_known_are_left_out() -> None:
    """KIP-482: a newer client may send them; kio by itself would raise a KeyError."""
    plain = b"\2" + bytes(16) + b"\2t\0" + b"\1\0" + b"\0"
    tagged = b"\2" + bytes(16) + b"\2t" + UNKNOWN_TAGS + b"\1\0" + UNKNOWN_TAGS
    assert decode_request(3, 12, tagged, 0) == decode_request(3, 12, plain, 0)
    for end in range(len(tagged)):
        with pytest.raises(MalformedRequest):
            decode_request(3, 12, tagged[:end], 0)


def test_tagged_fields_come_once_and_in_order() -> None:
    for tags in (b"\2\x63\0\x63\0", b"\2\x64\0\x63\0"):
        with pytest.raises(MalformedRequest, match="comes after"):
            decode_request(3, 12, b"\1\1\0" + tags, 0)


def test_null_is_refused_where_the_schema_does_not_allow_it() -> None:
    for body in (b"\xff\xff\xff\xff\0\0\0\0\0", b"\x80\0\0\0\0\0\0\0\0"):
        with pytest.raises(MalformedRequest, match="array of -"):
            decode_request(19, 2, body, 0)
    with pytest.raises(MalformedRequest, match="negative"):
        decode_request(10, 0, b"\xff\xff", 0)
    assert decode_request(22, 0, b"\xff\xff" + bytes(4), 0).transactional_id is None
    with pytest.raises(MalformedRequest, match="negative"):
        decode_request(22, 0, b"\xff\xfe" + bytes(4), 0)
