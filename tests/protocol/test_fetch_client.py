"""Fetch at the client's end, held against the broker's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol import reference
from tests.protocol.reference import INT8, INT16, INT32, INT64, MILLISECONDS, TEXT
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, decode_fetch, encode_fetch
from tidelog.protocol.fetch_client import ReceivedPartition, decode_fetch_response, encode_fetch_request

EVERY_VERSION = pytest.mark.parametrize("version", range(4, 19))
NULLABLE_TEXT = st.one_of(st.none(), TEXT)


@st.composite
def requests(draw: st.DrawFn, version: int) -> FetchRequest:
    """With the defaults in the fields that the version does not have."""
    topic = reference.topics(version, 13)
    partition = st.builds(
        FetchPartition,
        INT32,
        INT32 if version >= 9 else st.just(-1),
        INT64,
        INT32 if version >= 12 else st.just(-1),
        INT64 if version >= 5 else st.just(-1),
        INT32,
    )
    topics: Any = st.lists(st.tuples(topic, st.lists(partition, max_size=3)), max_size=3)
    forgotten: Any = st.lists(st.tuples(topic, st.lists(INT32, max_size=3)), max_size=2)
    request = FetchRequest(draw(INT32), draw(MILLISECONDS), draw(INT32), draw(INT32), draw(INT8))
    request.topics = draw(topics)
    if version >= 7:
        request.session_id, request.session_epoch = draw(INT32), draw(INT32)
        request.forgotten = draw(forgotten)
    if version >= 11:
        request.rack_id = draw(TEXT)
    if version >= 12:
        request.cluster_id = draw(NULLABLE_TEXT)
    if version >= 15:
        request.replica_epoch = draw(INT64)
    return request


def as_plain(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type(value).__slots__}


@EVERY_VERSION
@settings(max_examples=25, deadline=None)
@given(drawn=st.data())
def test_the_broker_decodes_the_request_that_was_meant(version: int, drawn: st.DataObject) -> None:
    request = drawn.draw(requests(version))
    frame = encode_fetch_request(version, 7, "me", request)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[4:16] == bytes((0, 1, 0, version)) + b"\0\0\0\x07" + b"\0\2me"
    found = decode_fetch(frame, 17 if version >= 12 else 16, version)
    assert as_plain(found) == as_plain(request)


@st.composite
def partitions(draw: st.DrawFn, version: int) -> FetchedPartition:
    """With the defaults in the fields that the version does not have."""
    partition = FetchedPartition(draw(INT32), draw(INT16), draw(INT64), draw(INT64))
    partition.records = draw(st.one_of(st.none(), st.binary(max_size=200)))
    partition.aborted = draw(st.one_of(st.none(), st.lists(st.tuples(INT64, INT64), max_size=3)))
    if version >= 5:
        partition.log_start_offset = draw(INT64)
    if version >= 11:
        partition.preferred_read_replica = draw(INT32)
    if version >= 12:
        partition.diverging_epoch = draw(st.one_of(st.none(), st.tuples(INT32, INT64)))
        if draw(st.booleans()):
            partition.leader_id, partition.leader_epoch = draw(INT32), draw(st.integers(0, 2**31 - 1))
    return partition


def with_records(partition: ReceivedPartition, data: bytes) -> dict[str, Any]:
    fields = as_plain(partition)
    fields["records"] = data[fields.pop("start") : fields.pop("end")]
    return fields


@EVERY_VERSION
@settings(max_examples=25, deadline=None)
@given(drawn=st.data())
def test_the_response_of_the_broker_reads_back(version: int, drawn: st.DataObject) -> None:
    topic = reference.topics(version, 13)
    strategy: Any = st.lists(st.tuples(topic, st.lists(partitions(version), max_size=3)), max_size=3)
    topics = drawn.draw(strategy)
    endpoints = drawn.draw(st.lists(st.tuples(INT32, TEXT, INT32, NULLABLE_TEXT), max_size=2))
    pieces: list[Any] = list(encode_fetch(version, 7, 55, 70, 9, topics, endpoints))
    frame = b"".join(pieces)
    response = decode_fetch_response(frame, 9 if version >= 12 else 8, version)
    assert response.throttle_time_ms == 55
    assert (response.error_code, response.session_id) == ((70, 9) if version >= 7 else (0, 0))
    assert response.endpoints == (endpoints if version >= 16 else [])
    found = [(name, [with_records(each, frame) for each in inner]) for name, inner in response.topics]
    sent = [
        (name, [as_plain(each) | {"records": each.records or b""} for each in inner])
        for name, inner in topics
    ]
    assert found == sent


@EVERY_VERSION
@settings(max_examples=35, deadline=None)
@given(drawn=st.data())
def test_damaged_responses_raise_nothing_else(version: int, drawn: st.DataObject) -> None:
    topic: Any = "name" if version < 13 else bytes(16)
    partition = FetchedPartition(1, 6, 5, 4, 3, [(1, 2), (3, 4)], 7, b"records", (1, 2), 3, 4)
    pieces: list[Any] = list(
        encode_fetch(version, 7, 0, 0, 9, [(topic, [partition])], [(1, "host", 9, None)])
    )
    damaged = drawn.draw(reference.mutations(b"".join(pieces)[9 if version >= 12 else 8 :]))
    try:
        decode_fetch_response(damaged, 0, version)
    except MalformedRequest:
        pass
