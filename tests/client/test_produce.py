"""Produce at the client's end, held against the broker's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol import reference
from tests.protocol.reference import INT16, INT32, INT64, MILLISECONDS, TEXT
from tidelog.client.produce import decode_produce_response, encode_produce_request
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.produce import ProducedPartition, decode_produce, encode_produce

EVERY_VERSION = pytest.mark.parametrize("version", range(3, 14))
NULLABLE_TEXT = st.one_of(st.none(), TEXT)


def body_of_request(frame: bytes, version: int, client_id: str | None) -> int:
    """Where the body begins, after checking the header by hand."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[4:12] == bytes((0, 0, 0, version)) + b"\0\0\0\x07"
    return 14 + len((client_id or "").encode()) + (version >= 9)


@EVERY_VERSION
@settings(max_examples=25, deadline=None)
@given(drawn=st.data())
def test_the_broker_decodes_the_request_that_was_meant(version: int, drawn: st.DataObject) -> None:
    topic = reference.topics(version, 13)
    partition = st.tuples(INT32, st.binary(max_size=200))
    strategy: Any = st.lists(st.tuples(topic, st.lists(partition, max_size=3)), max_size=3)
    topics = drawn.draw(strategy)
    client_id, transactional_id = drawn.draw(NULLABLE_TEXT), drawn.draw(NULLABLE_TEXT)
    acks, timeout_ms = drawn.draw(INT16), drawn.draw(MILLISECONDS)
    pieces = encode_produce_request(version, 7, client_id, acks, timeout_ms, topics, transactional_id)
    frame = b"".join(pieces)
    request = decode_produce(frame, body_of_request(frame, version, client_id), version)
    found = [(name, [(index, frame[a:b]) for index, a, b in inner]) for name, inner in request.topics]
    assert found == topics
    assert (request.transactional_id, request.acks) == (transactional_id, acks)
    assert request.timeout_ms == timeout_ms


def as_plain(partition: ProducedPartition) -> dict[str, Any]:
    return {name: getattr(partition, name) for name in ProducedPartition.__slots__}


@st.composite
def partitions(draw: st.DrawFn, version: int) -> ProducedPartition:
    """With the defaults in the fields that the version does not have."""
    partition = ProducedPartition(draw(INT32), draw(INT16), draw(INT64), draw(INT64))
    if version >= 5:
        partition.log_start_offset = draw(INT64)
    if version >= 8:
        errors = st.lists(st.tuples(INT32, NULLABLE_TEXT), min_size=1, max_size=3)
        partition.record_errors = draw(st.one_of(st.none(), errors))
        partition.error_message = draw(NULLABLE_TEXT)
    if version >= 10 and draw(st.booleans()):
        partition.leader_id, partition.leader_epoch = draw(INT32), draw(st.integers(0, 2**31 - 1))
    return partition


@EVERY_VERSION
@settings(max_examples=25, deadline=None)
@given(drawn=st.data())
def test_the_response_of_the_broker_reads_back(version: int, drawn: st.DataObject) -> None:
    topic = reference.topics(version, 13)
    strategy: Any = st.lists(st.tuples(topic, st.lists(partitions(version), max_size=3)), max_size=3)
    topics = drawn.draw(strategy)
    endpoints = drawn.draw(st.lists(st.tuples(INT32, TEXT, INT32, NULLABLE_TEXT), max_size=2))
    frame = encode_produce(version, 7, topics, 55, endpoints)
    response = decode_produce_response(frame, 9 if version >= 9 else 8, version)
    assert response.throttle_time_ms == 55
    assert response.endpoints == (endpoints if version >= 10 else [])
    found = [(name, list(map(as_plain, inner))) for name, inner in response.topics]
    assert found == [(name, list(map(as_plain, inner))) for name, inner in topics]


@EVERY_VERSION
@settings(max_examples=35, deadline=None)
@given(drawn=st.data())
def test_damaged_responses_raise_nothing_else(version: int, drawn: st.DataObject) -> None:
    topic: Any = "name" if version < 13 else bytes(16)
    partition = ProducedPartition(1, 6, 5, 4, 3, [(1, "bad")], "worse", 2, 1)
    frame = bytes(encode_produce(version, 7, [(topic, [partition])], 0, [(1, "host", 9, None)]))
    damaged = drawn.draw(reference.mutations(frame[9 if version >= 9 else 8 :]))
    try:
        decode_produce_response(damaged, 0, version)
    except MalformedRequest:
        pass
