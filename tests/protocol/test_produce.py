"""Produce at the broker's end, held against kio in every version and against damaged bytes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from tests.protocol import reference
from tests.protocol.reference import INT16, INT32, INT64, MILLISECONDS, TEXT
from tidelog.base.limits import ARRAY_LENGTH_MAX
from tidelog.protocol import produce, wire
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.produce import ProducedPartition, ProduceRequest, decode_produce, encode_produce

VERSIONS = range(3, 14)
EVERY_VERSION = pytest.mark.parametrize("version", VERSIONS)
RECORDS = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.sampled_from([0, 60, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_151, 2_097_152]).map(bytes),
)
Plain = tuple[str | None, int, int, list[tuple[Any, list[tuple[int, bytes | None]]]]]


def requests(version: int) -> st.SearchStrategy[Plain]:
    """Plain values of a request; one topic with one partition as often as not."""
    partition = st.tuples(INT32, RECORDS)
    topic = reference.topics(version, 13)
    one = st.lists(st.tuples(topic, st.lists(partition, min_size=1, max_size=1)), min_size=1, max_size=1)
    any_topics: Any = st.one_of(one, st.lists(st.tuples(topic, st.lists(partition, max_size=3)), max_size=3))
    return st.tuples(st.one_of(st.none(), st.none(), TEXT), INT16, MILLISECONDS, any_topics)


def encode_by_kio(version: int, plain: Plain) -> bytes:
    module = reference.module("produce", version, "request")
    transactional_id, acks, timeout_ms, topics = plain
    topic_data = []
    for topic, partitions in topics:
        data = tuple(module.PartitionProduceData(index=index, records=raw) for index, raw in partitions)
        by = {"name": topic} if version < 13 else {"topic_id": reference.as_uuid(topic)}
        topic_data.append(module.TopicProduceData(partition_data=data, **by))
    return reference.write(
        module.ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout=reference.as_timedelta(timeout_ms),
            topic_data=tuple(topic_data),
        )
    )


def as_plain(request: ProduceRequest, data: bytes | bytearray | memoryview) -> Plain:
    topics = [
        (
            topic,
            [(index, None if start == -1 else bytes(data[start:end])) for index, start, end in partitions],
        )
        for topic, partitions in request.topics
    ]
    return request.transactional_id, request.acks, request.timeout_ms, topics


@EVERY_VERSION
@settings(max_examples=35, deadline=None)
@given(drawn=st.data())
def test_a_request_that_kio_wrote_decodes_to_the_same(version: int, drawn: st.DataObject) -> None:
    plain = drawn.draw(requests(version))
    kind = drawn.draw(st.sampled_from([bytes, bytearray, memoryview]))
    data = kind(b"head" + encode_by_kio(version, plain))
    assert as_plain(decode_produce(data, 4, version), data) == plain


def outcome(decode: Any, data: bytes, version: int) -> Any:
    try:
        return as_plain(decode(data, 0, version), data)
    except MalformedRequest:
        return MalformedRequest


@EVERY_VERSION
@settings(max_examples=60, deadline=None)
@given(drawn=st.data())
def test_mutated_requests_raise_nothing_else_and_the_short_way_agrees_with_the_general(
    version: int, drawn: st.DataObject
) -> None:
    plain: Plain = None, 1, 1_000, [("t" if version < 13 else bytes(16), [(7, bytes(70))])]
    data = drawn.draw(reference.mutations(encode_by_kio(version, plain)))
    assert outcome(decode_produce, data, version) == outcome(produce._decode_any, data, version)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.sampled_from(VERSIONS))
def test_random_bytes_raise_nothing_else(data: bytes, version: int) -> None:
    assert outcome(decode_produce, data, version) == outcome(produce._decode_any, data, version)


@EVERY_VERSION
def test_every_shorter_and_every_longer_request_is_malformed(version: int) -> None:
    topic: Any = "name" if version < 13 else bytes(16)
    one: Any = [(topic, [(7, b"12345")])]
    two: Any = [(topic, [(7, b"1"), (8, None)]), (topic, [])]
    for topics in (one, two):
        data = encode_by_kio(version, ("id", 1, 1_000, topics))
        for size in range(len(data)):
            with pytest.raises(MalformedRequest):
                decode_produce(data[:size], 0, version)
        with pytest.raises(MalformedRequest, match="1 bytes too many"):
            decode_produce(data + b"\0", 0, version)


@pytest.mark.parametrize("version", range(9, 14))
def test_unknown_tagged_fields_are_skipped(version: int) -> None:
    topic = b"\x02t" if version < 13 else bytes(range(16))
    tags = b"\x02\x05\x01x\x96\x01\x02yz"
    partition = b"\0\0\0\7" + b"\x03ab" + tags
    data = b"\0\0\1\0\0\3\xe8" + b"\2" + topic + b"\2" + partition + tags + tags
    request = decode_produce(data, 0, version)
    assert as_plain(request, data)[3] == [("t" if version < 13 else topic, [(7, b"ab")])]


@EVERY_VERSION
@pytest.mark.parametrize("size", [0, 61, 126, 127, 128, 16_382, 16_383, 2_097_150, 2_097_151])
def test_one_partition_of_any_size_takes_the_short_way(
    version: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic: Any = "name" if version < 13 else bytes(16)
    plain: Plain = None, 1, 1_000, [(topic, [(7, bytes(size))])]
    data = encode_by_kio(version, plain)
    monkeypatch.setattr(produce, "_decode_any", None)
    assert as_plain(decode_produce(data, 0, version), data) == plain


def test_an_over_long_records_length_is_malformed() -> None:
    head = b"\0\0\1\0\0\3\xe8" + b"\2" + b"\x02t" + b"\2" + b"\0\0\0\7"
    assert decode_produce(head + b"\x82\x80\x80\x80\0" + b"a\0\0\0", 0, 9).topics == [("t", [(7, 20, 21)])]
    with pytest.raises(MalformedRequest, match="records: varint"):
        decode_produce(head + b"\x82\x80\x80\x80\x80\0" + b"a\0\0\0", 0, 9)


@pytest.mark.parametrize("version", [7, 9])
def test_all_partitions_of_a_request_together_are_bounded(version: int) -> None:
    flexible = version >= 9
    half = ARRAY_LENGTH_MAX // 2 + 1
    data = bytearray(b"\0" if flexible else b"\xff\xff") + bytes(6)
    wire.write_array_length(data, 2, flexible)
    for _ in range(2):
        wire.write_topic(data, "t", flexible)
        wire.write_array_length(data, half, flexible)
        data += bytes(6 if flexible else 8) * half + bytes(1 if flexible else 0)
    with pytest.raises(MalformedRequest, match="partitions: more than"):
        decode_produce(data, 0, version)


@EVERY_VERSION
def test_announced_lengths_allocate_nothing(version: int) -> None:
    topic: Any = "name" if version < 13 else bytes(16)
    data = encode_by_kio(version, (None, 1, 1_000, [(topic, [(7, b"12345")])]))
    tracemalloc.start()
    for position in range(len(data)):
        for huge in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
            outcome(decode_produce, data[:position] + huge + data[position + len(huge) :], version)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


NULLABLE_TEXT = st.one_of(st.none(), TEXT)
PARTITIONS = st.builds(
    ProducedPartition,
    index=INT32,
    error_code=st.sampled_from([int(code) for code in ErrorCode]),
    base_offset=INT64,
    log_append_time_ms=st.one_of(st.just(-1), st.integers(0, 2**42)),
    log_start_offset=INT64,
    record_errors=st.one_of(st.none(), st.lists(st.tuples(INT32, NULLABLE_TEXT), max_size=3)),
    error_message=NULLABLE_TEXT,
    leader_id=INT32,
    leader_epoch=st.one_of(st.just(-1), st.integers(0, 2**31 - 1)),
)
PLAIN_PARTITIONS = st.builds(
    ProducedPartition, INT32, st.sampled_from([0, 6, 87]), INT64, st.integers(-1, 2**42), INT64
)
ENDPOINTS = st.lists(st.tuples(INT32, TEXT, INT32, NULLABLE_TEXT), max_size=3)


def check_partition(version: int, ours: ProducedPartition, theirs: Any) -> None:
    assert theirs.index == ours.index
    assert theirs.error_code == ours.error_code
    assert theirs.base_offset == ours.base_offset
    if ours.log_append_time_ms == -1:
        assert theirs.log_append_time is None
    else:
        assert round(theirs.log_append_time.timestamp() * 1000) == ours.log_append_time_ms
    if version >= 5:
        assert theirs.log_start_offset == ours.log_start_offset
    if version >= 8:
        found = [(each.batch_index, each.batch_index_error_message) for each in theirs.record_errors]
        assert found == (ours.record_errors or [])
        assert theirs.error_message == ours.error_message
    if version >= 10:
        leader = theirs.current_leader.leader_id, theirs.current_leader.leader_epoch
        assert leader == ((ours.leader_id, ours.leader_epoch) if ours.leader_epoch >= 0 else (-1, -1))


@EVERY_VERSION
@settings(max_examples=35, deadline=None)
@given(drawn=st.data())
def test_kio_reads_the_response_that_was_meant(version: int, drawn: st.DataObject) -> None:
    topic = reference.topics(version, 13)
    strategy: Any = st.lists(st.tuples(topic, st.lists(PARTITIONS, max_size=3)), max_size=3)
    topics = drawn.draw(strategy)
    endpoints = drawn.draw(ENDPOINTS)
    throttle_ms = drawn.draw(MILLISECONDS)
    correlation_id = drawn.draw(INT32)
    frame = encode_produce(version, correlation_id, topics, throttle_ms, endpoints)
    kind = reference.module("produce", version, "response").ProduceResponse
    response = reference.read_response(kind, bytes(frame), correlation_id)
    assert response.throttle_time == reference.as_timedelta(throttle_ms)
    assert len(response.responses) == len(topics)
    for (name, partitions), theirs in zip(topics, response.responses, strict=True):
        assert theirs.name == name if version < 13 else theirs.topic_id == reference.as_uuid(name)
        for partition, their_partition in zip(partitions, theirs.partition_responses, strict=True):
            check_partition(version, partition, their_partition)
    if version >= 10:
        assert [(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints] == endpoints


@EVERY_VERSION
@settings(max_examples=25, deadline=None)
@given(drawn=st.data())
def test_one_partition_is_encoded_as_many_are(version: int, drawn: st.DataObject) -> None:
    topic: Any = drawn.draw(reference.topics(version, 13))
    partition = drawn.draw(PLAIN_PARTITIONS)
    frame = encode_produce(version, 5, [(topic, [partition])], 9)
    if partition.error_code == 0:
        assert isinstance(frame, bytes), "the short way was not taken"
    assert frame == produce._encode_any(version, 5, [(topic, [partition])], 9, ())


def test_the_frames_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "PRODUCE_FRAMES_CACHED_MAX", 5)
    monkeypatch.setattr(produce, "_frames", [{} for _ in range(14)])
    for number in range(50):
        encode_produce(9, 1, [(str(number), [ProducedPartition(0)])])
        assert len(produce._frames[9]) <= 5


def test_the_leader_hint_says_its_size() -> None:
    """kio does not look at it, other readers skip by it."""
    frame = encode_produce(10, 1, [("t", [ProducedPartition(0, 6, leader_id=2, leader_epoch=3)])])
    assert frame.endswith(b"\0" + b"\1\0\x09" + b"\0\0\0\2\0\0\0\3\0" + b"\0" + bytes(4) + b"\0")


def test_the_endpoints_say_their_size() -> None:
    frame = encode_produce(10, 1, [], 0, [(1, "h", 9, None)])
    assert frame.endswith(bytes(4) + b"\1\0\x0d" + b"\2\0\0\0\1\2h\0\0\0\x09\0\0")
