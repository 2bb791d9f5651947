"""JoinGroup, SyncGroup and Heartbeat by hand against kio: the same understood, the same written."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from tidelog.protocol.errors import ErrorCode, MalformedRequest
from tidelog.protocol.membership import (
    JoinResponse,
    decode_heartbeat,
    decode_join,
    decode_sync,
    encode_heartbeat,
    encode_join,
    encode_sync,
)
from tidelog.protocol.messages import make

JOIN, HEARTBEAT, SYNC = 11, 12, 14
FLEXIBLE = {JOIN: 6, HEARTBEAT: 4, SYNC: 4}
TEXT = st.text(max_size=12)
MAYBE = st.none() | TEXT
INT32 = st.integers(-(2**31), 2**31 - 1)
MS = st.integers(0, 2**31 - 1)
BLOBS = st.lists(st.tuples(TEXT, st.binary(max_size=30)), max_size=4)
CODES = st.sampled_from(list(ErrorCode))


def written(api_key: int, version: int, **values: Any) -> bytes:
    request = make(load_request_schema(api_key, version), **values)
    buffer = io.BytesIO()
    entity_writer(type(request))(buffer, request)
    return buffer.getvalue()


THROTTLED = timedelta(milliseconds=55)


def throttle_of(answer: Any) -> timedelta | None:
    """None where the version has no room for it."""
    return getattr(answer, "throttle_time", None)


def understood(api_key: int, version: int, frame: bytes) -> Any:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 42
    body = 9 if version >= FLEXIBLE[api_key] else 8
    reader: Any = entity_reader(load_response_schema(api_key, version))
    response, size = reader(frame, body)
    assert body + size == len(frame)
    return response


def join_bytes(version: int, texts: Any, times: Any, instance_id: str | None, protocols: Any) -> bytes:
    types = load_payload_module(JOIN, version, EntityType.request)
    return written(
        JOIN,
        version,
        group_id=texts[0],
        session_timeout=timedelta(milliseconds=times[0]),
        rebalance_timeout=timedelta(milliseconds=times[1]),
        member_id=texts[1],
        group_instance_id=instance_id,
        protocol_type=texts[2],
        protocols=tuple(types.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols),
        reason="because",
    )


@pytest.mark.parametrize("version", range(10))
@settings(max_examples=40, deadline=None)
@given(texts=st.tuples(TEXT, TEXT, TEXT), times=st.tuples(MS, MS), instance_id=MAYBE, protocols=BLOBS)
def test_a_join_of_kio_is_understood(
    version: int, texts: Any, times: Any, instance_id: str | None, protocols: Any
) -> None:
    decoded = decode_join(version, memoryview(join_bytes(version, texts, times, instance_id, protocols)), 0)
    assert (decoded.group_id, decoded.member_id, decoded.protocol_type) == texts
    assert decoded.session_timeout_ms == times[0]
    assert decoded.rebalance_timeout_ms == times[1 if version >= 1 else 0]
    assert decoded.instance_id == (instance_id if version >= 5 else None)
    assert decoded.protocols == tuple(protocols)


def sync_bytes(version: int, texts: Any, generation: int, maybe: Any, assignments: Any) -> bytes:
    types = load_payload_module(SYNC, version, EntityType.request)
    return written(
        SYNC,
        version,
        group_id=texts[0],
        generation_id=generation,
        member_id=texts[1],
        group_instance_id=maybe[0],
        protocol_type=maybe[1],
        protocol_name=maybe[2],
        assignments=tuple(
            types.SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in assignments
        ),
    )


@pytest.mark.parametrize("version", range(6))
@settings(max_examples=40, deadline=None)
@given(texts=st.tuples(TEXT, TEXT), generation=INT32, maybe=st.tuples(MAYBE, MAYBE, MAYBE), assignments=BLOBS)
def test_a_sync_of_kio_is_understood(
    version: int, texts: Any, generation: int, maybe: Any, assignments: Any
) -> None:
    data = memoryview(sync_bytes(version, texts, generation, maybe, assignments))
    decoded = decode_sync(version, data, 0)
    assert (decoded.group_id, decoded.member_id, decoded.generation) == (*texts, generation)
    assert decoded.instance_id == (maybe[0] if version >= 3 else None)
    told = (decoded.protocol_type, decoded.protocol_name)
    assert told == (maybe[1:] if version >= 5 else (None, None))
    assert decoded.assignments == dict(assignments)


@pytest.mark.parametrize("version", range(5))
@settings(max_examples=40, deadline=None)
@given(texts=st.tuples(TEXT, TEXT), generation=INT32, instance_id=MAYBE, code=CODES)
def test_a_heartbeat_of_kio_is_understood_and_its_answer_too(
    version: int, texts: Any, generation: int, instance_id: str | None, code: ErrorCode
) -> None:
    data = written(
        HEARTBEAT,
        version,
        group_id=texts[0],
        generation_id=generation,
        member_id=texts[1],
        group_instance_id=instance_id,
    )
    decoded = decode_heartbeat(version, memoryview(data), 0)
    assert decoded == (texts[0], generation, texts[1], instance_id if version >= 3 else None)
    answer = understood(HEARTBEAT, version, encode_heartbeat(version, 42, 55, code.value))
    assert answer.error_code == code
    assert throttle_of(answer) == (THROTTLED if version >= 1 else None)


@pytest.mark.parametrize("version", range(10))
@settings(max_examples=40, deadline=None)
@given(
    code=CODES,
    generation=INT32,
    maybe=st.tuples(MAYBE, MAYBE),
    texts=st.tuples(TEXT, TEXT),
    skips=st.booleans(),
    members=st.lists(st.tuples(TEXT, MAYBE, st.binary(max_size=30)), max_size=4),
)
def test_the_answer_to_a_join_is_understood_by_kio(
    version: int, code: ErrorCode, generation: int, maybe: Any, texts: Any, skips: bool, members: Any
) -> None:
    kind, name = maybe
    answer = JoinResponse(code.value, generation, kind, name, texts[0], skips, texts[1], tuple(members))
    told = understood(JOIN, version, encode_join(version, 42, 55, answer))
    assert throttle_of(told) == (THROTTLED if version >= 2 else None)
    assert (told.error_code, told.generation_id, told.leader, told.member_id) == (code, generation, *texts)
    assert told.protocol_name == (maybe[1] if version >= 7 else maybe[1] or "")
    assert getattr(told, "protocol_type", None) == (maybe[0] if version >= 7 else None)
    assert getattr(told, "skip_assignment", False) == (skips and version >= 9)
    assert [
        (each.member_id, getattr(each, "group_instance_id", None), each.metadata) for each in told.members
    ] == [(name, instance if version >= 5 else None, data) for name, instance, data in members]


@pytest.mark.parametrize("version", range(6))
@settings(max_examples=40, deadline=None)
@given(code=CODES, maybe=st.tuples(MAYBE, MAYBE), assignment=st.binary(max_size=300))
def test_the_answer_to_a_sync_is_understood_by_kio(
    version: int, code: ErrorCode, maybe: Any, assignment: bytes
) -> None:
    told = understood(SYNC, version, encode_sync(version, 42, 55, code.value, maybe[0], maybe[1], assignment))
    assert throttle_of(told) == (THROTTLED if version >= 1 else None)
    assert (told.error_code, told.assignment) == (code, assignment)
    if version >= 5:
        assert (told.protocol_type, told.protocol_name) == maybe


@pytest.mark.parametrize("version", [0, 5, 9])
def test_a_join_that_is_cut_off_anywhere_is_refused(version: int) -> None:
    data = join_bytes(version, ("g", "m", "consumer"), (1, 2), "i", [("range", b"abc")])
    for end in range(len(data)):
        with pytest.raises(MalformedRequest):
            decode_join(version, memoryview(data)[:end], 0)


@pytest.mark.parametrize("version", [0, 3, 5])
def test_a_sync_that_is_cut_off_anywhere_is_refused(version: int) -> None:
    data = sync_bytes(version, ("g", "m"), 1, ("i", "consumer", "range"), [("m", b"abc")])
    for end in range(len(data)):
        with pytest.raises(MalformedRequest):
            decode_sync(version, memoryview(data)[:end], 0)
