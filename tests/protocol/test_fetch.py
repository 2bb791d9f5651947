"""Fetch at the broker's end, held against kio in every version and against damaged bytes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from tests.protocol import reference
from tests.protocol.reference import INT8, INT32, INT64, MILLISECONDS, TEXT
from tidelog.base.files import DiskDirectory, DiskFile, FileSlice
from tidelog.base.limits import ARRAY_LENGTH_MAX, REPLICA_COPIED_SIZE_MAX
from tidelog.protocol import wire
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, decode_fetch, encode_fetch

VERSIONS = range(4, 19)
EVERY_VERSION = pytest.mark.parametrize("version", VERSIONS)
FLEXIBLE_VERSION = pytest.mark.parametrize("version", range(12, 19))
NULLABLE_TEXT = st.one_of(st.none(), TEXT)


def partitions(version: int) -> st.SearchStrategy[FetchPartition]:
    """With the defaults in the fields that the version does not have."""
    return st.builds(
        FetchPartition,
        INT32,
        INT32 if version >= 9 else st.just(-1),
        INT64,
        INT32 if version >= 12 else st.just(-1),
        INT64 if version >= 5 else st.just(-1),
        INT32,
    )


@st.composite
def requests(draw: st.DrawFn, version: int) -> FetchRequest:
    topic = reference.topics(version, 13)
    request = FetchRequest(draw(INT32), draw(MILLISECONDS), draw(INT32), draw(INT32), draw(INT8))
    topics: Any = st.lists(st.tuples(topic, st.lists(partitions(version), max_size=3)), max_size=3)
    forgotten: Any = st.lists(st.tuples(topic, st.lists(INT32, max_size=3)), max_size=3)
    request.topics = draw(topics)
    if version >= 7:
        request.session_id, request.session_epoch = draw(INT32), draw(INT32)
        request.forgotten = draw(st.one_of(st.just([]), forgotten))
    if version >= 11:
        request.rack_id = draw(st.one_of(st.just(""), TEXT))
    if version >= 12:
        request.cluster_id = draw(NULLABLE_TEXT)
    if version >= 15:
        request.replica_epoch = draw(INT64)
    return request


def encode_by_kio(version: int, request: FetchRequest, **partition_tags: Any) -> bytes:
    module = reference.module("fetch", version, "request")

    def by(topic: Any) -> dict[str, Any]:
        return {"topic": topic} if version < 13 else {"topic_id": reference.as_uuid(topic)}

    def encode(partition: FetchPartition) -> Any:
        fields = partition._asdict()
        fields["partition"] = fields.pop("index")
        fields["partition_max_bytes"] = fields.pop("max_bytes")
        known = {name: value for name, value in fields.items() if name in module.FetchPartition.__slots__}
        return module.FetchPartition(**known, **partition_tags)

    fields: dict[str, Any] = {
        "max_wait": reference.as_timedelta(request.max_wait_ms),
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
        "topics": tuple(
            module.FetchTopic(**by(topic), partitions=tuple(map(encode, inner)))
            for topic, inner in request.topics
        ),
    }
    if version < 15:
        fields["replica_id"] = request.replica_id
    else:
        fields["replica_state"] = module.ReplicaState(
            replica_id=request.replica_id, replica_epoch=request.replica_epoch
        )
    if version >= 7:
        fields |= {"session_id": request.session_id, "session_epoch": request.session_epoch}
        fields["forgotten_topics_data"] = tuple(
            module.ForgottenTopic(**by(topic), partitions=tuple(inner)) for topic, inner in request.forgotten
        )
    if version >= 11:
        fields["rack_id"] = request.rack_id
    if version >= 12:
        fields["cluster_id"] = request.cluster_id
    return reference.write(module.FetchRequest(**fields))


def as_plain(request: FetchRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in FetchRequest.__slots__}


@EVERY_VERSION
@settings(max_examples=35, deadline=None)
@given(drawn=st.data())
def test_a_request_that_kio_wrote_decodes_to_the_same(version: int, drawn: st.DataObject) -> None:
    request = drawn.draw(requests(version))
    kind = drawn.draw(st.sampled_from([bytes, bytearray, memoryview]))
    data = kind(b"head" + encode_by_kio(version, request))
    assert as_plain(decode_fetch(data, 4, version)) == as_plain(request)


@pytest.mark.parametrize("version", [17, 18])
def test_the_tagged_fields_of_the_controllers_quorum_are_skipped(version: int) -> None:
    request = FetchRequest(3, 500, 1, 1_000, 0)
    request.topics = [
        (bytes(range(16)), [FetchPartition(1, 2, 3, 4, 5, 6), FetchPartition(2, 2, 3, 4, 5, 6)])
    ]
    tags: dict[str, Any] = {"replica_directory_id": reference.as_uuid(b"0123456789abcdef")}
    if version >= 18:
        tags["high_watermark"] = 77
    data = encode_by_kio(version, request, **tags)
    assert b"0123456789abcdef" in data
    assert as_plain(decode_fetch(data, 0, version)) == as_plain(request)


@FLEXIBLE_VERSION
def test_unknown_tagged_fields_are_skipped(version: int) -> None:
    tags = b"\x02\x55\x01x\x96\x01\x02yz"
    head = (b"\xff\xff\xff\xff" if version < 15 else b"") + bytes(13) + bytes(8)
    topic = b"\x02t" if version < 13 else bytes(range(16))
    body = b"\2" + topic + b"\2" + bytes(32) + tags + tags
    forgotten = b"\2" + topic + b"\2\0\0\0\7" + tags
    request = decode_fetch(head + body + forgotten + b"\2r" + tags, 0, version)
    name = "t" if version < 13 else topic
    assert request.topics == [(name, [FetchPartition(0, 0, 0, 0, 0, 0)])]
    assert (request.forgotten, request.rack_id) == ([(name, [7])], "r")


@pytest.mark.parametrize("tagged", [b"\1\1\x0e" + bytes(14), b"\1\1\x0c" + bytes(12), b"\1\0\3\2ab"])
def test_a_known_tagged_field_of_another_size_is_malformed(tagged: bytes) -> None:
    data = bytes(13) + bytes(8) + b"\1\1\1" + tagged
    with pytest.raises(MalformedRequest):
        decode_fetch(data, 0, 15)


def example(version: int) -> FetchRequest:
    topic: Any = "name" if version < 13 else bytes(range(16))
    request = FetchRequest(3, 500, 1, 1_000, 0)
    request.topics = [(topic, [FetchPartition(1, 2, 3, 4, 5, 6), FetchPartition(2, 2, 3, 4, 5, 6)])]
    if version >= 7:
        request.forgotten = [(topic, [1, 2])]
    return request


def decode_or_refuse(data: bytes, version: int) -> None:
    try:
        decode_fetch(data, 0, version)
    except MalformedRequest:
        pass


@EVERY_VERSION
@settings(max_examples=60, deadline=None)
@given(drawn=st.data())
def test_mutated_requests_raise_nothing_else(version: int, drawn: st.DataObject) -> None:
    decode_or_refuse(drawn.draw(reference.mutations(encode_by_kio(version, example(version)))), version)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.sampled_from(VERSIONS))
def test_random_bytes_raise_nothing_else(data: bytes, version: int) -> None:
    decode_or_refuse(data, version)


@EVERY_VERSION
def test_every_shorter_and_every_longer_request_is_malformed(version: int) -> None:
    data = encode_by_kio(version, example(version))
    for size in range(len(data)):
        with pytest.raises(MalformedRequest):
            decode_fetch(data[:size], 0, version)
    with pytest.raises(MalformedRequest, match="1 bytes too many"):
        decode_fetch(data + b"\0", 0, version)


@EVERY_VERSION
def test_announced_lengths_allocate_nothing(version: int) -> None:
    data = encode_by_kio(version, example(version))
    tracemalloc.start()
    for position in range(len(data)):
        for huge in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
            decode_or_refuse(data[:position] + huge + data[position + len(huge) :], version)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


@pytest.mark.parametrize("version", [7, 12])
@pytest.mark.parametrize("place", ["topics", "forgotten"])
def test_all_partitions_of_a_request_together_are_bounded(version: int, place: str) -> None:
    flexible = version >= 12
    half = ARRAY_LENGTH_MAX // 2 + 1
    tags = bytes(1 if flexible else 0)
    data = bytearray(17 + 8)
    if place == "forgotten":
        wire.write_array_length(data, 0, flexible)
    element = bytes(4) if place == "forgotten" else bytes(32) + tags if flexible else bytes(24)
    wire.write_array_length(data, 2, flexible)
    for _ in range(2):
        wire.write_topic(data, "t", flexible)
        wire.write_array_length(data, half, flexible)
        data += element * half + tags
    with pytest.raises(MalformedRequest, match="partitions: more than"):
        decode_fetch(data, 0, version)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> DiskFile:
    path: Path = tmp_path_factory.mktemp("fetch") / "records"
    path.write_bytes(bytes(range(256)) * 4)
    return DiskDirectory(str(path.parent)).open("records")


def records(file: DiskFile) -> st.SearchStrategy[Any]:
    one = st.builds(FileSlice, st.just(file), st.integers(0, 500), st.integers(0, 500))
    return st.one_of(st.none(), one, st.lists(one, max_size=3), st.binary(max_size=200))


def fetched(file: DiskFile) -> st.SearchStrategy[FetchedPartition]:
    return st.builds(
        FetchedPartition,
        index=INT32,
        error_code=st.sampled_from([int(code) for code in ErrorCode]),
        high_watermark=INT64,
        last_stable_offset=INT64,
        log_start_offset=INT64,
        aborted=st.one_of(st.none(), st.lists(st.tuples(INT64, INT64), max_size=3)),
        preferred_read_replica=INT32,
        records=records(file),
        diverging_epoch=st.one_of(st.none(), st.tuples(INT32, INT64)),
        leader_id=INT32,
        leader_epoch=st.one_of(st.just(-1), st.integers(0, 2**31 - 1)),
    )


def joined(pieces: list[Any]) -> bytes:
    return b"".join(piece.read() if isinstance(piece, FileSlice) else piece for piece in pieces)


def slices_of(partition: FetchedPartition) -> list[Any]:
    if partition.records is None:
        return []
    return partition.records if isinstance(partition.records, list) else [partition.records]


def check_partition(version: int, ours: FetchedPartition, theirs: Any) -> None:
    assert theirs.partition_index == ours.index
    assert theirs.error_code == ours.error_code
    assert theirs.high_watermark == ours.high_watermark
    assert theirs.last_stable_offset == ours.last_stable_offset
    if version >= 5:
        assert theirs.log_start_offset == ours.log_start_offset
    if ours.aborted is None:
        assert theirs.aborted_transactions is None
    else:
        found = [(each.producer_id, each.first_offset) for each in theirs.aborted_transactions]
        assert found == ours.aborted
    if version >= 11:
        assert theirs.preferred_read_replica == ours.preferred_read_replica
    assert theirs.records == joined(slices_of(ours))
    if version >= 12:
        diverging = theirs.diverging_epoch.epoch, theirs.diverging_epoch.end_offset
        assert diverging == (ours.diverging_epoch or (-1, -1))
        leader = theirs.current_leader.leader_id, theirs.current_leader.leader_epoch
        assert leader == ((ours.leader_id, ours.leader_epoch) if ours.leader_epoch >= 0 else (-1, -1))


@EVERY_VERSION
@settings(max_examples=35, deadline=None)
@given(drawn=st.data())
def test_kio_reads_the_response_that_was_meant(version: int, drawn: st.DataObject, file: DiskFile) -> None:
    topic = reference.topics(version, 13)
    strategy: Any = st.lists(st.tuples(topic, st.lists(fetched(file), max_size=3)), max_size=3)
    topics = drawn.draw(strategy)
    endpoints = drawn.draw(st.lists(st.tuples(INT32, TEXT, INT32, NULLABLE_TEXT), max_size=3))
    throttle_ms, session_id, correlation_id = drawn.draw(MILLISECONDS), drawn.draw(INT32), drawn.draw(INT32)
    pieces = encode_fetch(version, correlation_id, throttle_ms, 70, session_id, topics, endpoints)
    kind = reference.module("fetch", version, "response").FetchResponse
    response = reference.read_response(kind, joined(pieces), correlation_id)
    assert response.throttle_time == reference.as_timedelta(throttle_ms)
    if version >= 7:
        assert (response.error_code, response.session_id) == (70, session_id)
    for (name, inner), theirs in zip(topics, response.responses, strict=True):
        assert theirs.topic == name if version < 13 else theirs.topic_id == reference.as_uuid(name)
        for partition, their_partition in zip(inner, theirs.partitions, strict=True):
            check_partition(version, partition, their_partition)
    if version >= 16:
        assert [(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints] == endpoints
    given = [each for _, inner in topics for partition in inner for each in slices_of(partition)]
    sent = [piece for piece in pieces if isinstance(piece, FileSlice)]
    assert sent == [each for each in given if isinstance(each, FileSlice)], "a slice would never be released"


@EVERY_VERSION
def test_what_stands_between_two_slices_is_one_buffer(version: int, file: DiskFile) -> None:
    topic: Any = "name" if version < 13 else bytes(range(16))
    inner = [
        FetchedPartition(0, records=FileSlice(file, 0, 100)),
        FetchedPartition(1),
        FetchedPartition(2, aborted=[(1, 2), (3, 4)]),
        FetchedPartition(3, records=[FileSlice(file, 100, 50), FileSlice(file, 150, 50)]),
    ]
    pieces = encode_fetch(version, 1, 0, 0, 0, [(topic, inner), (topic, [])])
    kinds = [type(piece) for piece in pieces]
    assert kinds == [bytearray, FileSlice, bytearray, FileSlice, FileSlice, bytearray]


@EVERY_VERSION
def test_records_given_as_bytes_are_not_copied_if_they_are_many(version: int) -> None:
    topic: Any = "name" if version < 13 else bytes(range(16))
    raw = bytes(REPLICA_COPIED_SIZE_MAX + 1)
    pieces = encode_fetch(version, 1, 0, 0, 0, [(topic, [FetchedPartition(0, records=raw)])])
    assert any(piece is raw for piece in pieces)
    assert all(pieces)


def test_tagged_fields_say_their_sizes() -> None:
    """kio does not look at them, other readers skip by them."""
    partition = FetchedPartition(0, diverging_epoch=(5, 6), leader_id=2, leader_epoch=3)
    frame = joined(encode_fetch(16, 1, 0, 0, 0, [(bytes(16), [partition])]))
    diverging = b"\0\x0d" + b"\0\0\0\5" + bytes(7) + b"\6\0"
    leader = b"\1\x09" + b"\0\0\0\2\0\0\0\3\0"
    assert frame.endswith(b"\2" + diverging + leader + b"\0\0")
