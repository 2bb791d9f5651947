"""OffsetCommit by hand against kio: the same requests understood, the same answers written."""

from __future__ import annotations

import io
from datetime import timedelta
from struct import pack
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from tests.protocol.reference import mutations
from tidelog.protocol.commit import (
    OffsetCommitPart,
    decode_any,
    decode_offset_commit,
    decode_usual,
    encode_offset_commit,
    frame_of,
)
from tidelog.protocol.errors import ErrorCode, MalformedRequest
from tidelog.protocol.messages import make

OFFSET_COMMIT = 8
VERSIONS = range(2, 11)
NAMES = st.text("abc.-_", min_size=1, max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
PARTS = st.lists(
    st.builds(OffsetCommitPart, INT32, st.integers(-(2**63), 2**63 - 1), INT32, st.text(max_size=20)),
    max_size=5,
)


def request_bytes(version: int, epoch: int, texts: tuple[str, str, str | None], topics: Any) -> bytes:
    types = load_payload_module(OFFSET_COMMIT, version, EntityType.request)
    request = make(
        load_request_schema(OFFSET_COMMIT, version),
        group_id=texts[0],
        generation_id_or_member_epoch=epoch,
        member_id=texts[1],
        group_instance_id=texts[2],
        retention_time=timedelta(milliseconds=77),
        retention_time_ms=77,
        topics=tuple(
            make(
                types.OffsetCommitRequestTopic,
                name=name,
                topic_id=UUID(int=place + 1),
                partitions=tuple(
                    make(
                        types.OffsetCommitRequestPartition,
                        partition_index=part.partition,
                        committed_offset=part.offset,
                        committed_leader_epoch=part.leader_epoch,
                        committed_metadata=part.metadata,
                    )
                    for part in parts
                ),
            )
            for place, (name, parts) in enumerate(topics)
        ),
    )
    buffer = io.BytesIO()
    entity_writer(type(request))(buffer, request)
    return buffer.getvalue()


def header_bytes(version: int, correlation_id: int, client_id: bytes = b"me!") -> bytes:
    return pack(f">hhih{len(client_id)}sx", OFFSET_COMMIT, version, correlation_id, len(client_id), client_id)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40, deadline=None)
@given(
    epoch=INT32, texts=st.tuples(NAMES, NAMES, st.none() | NAMES), topics=st.lists(st.tuples(NAMES, PARTS))
)
def test_what_kio_writes_is_understood(version: int, epoch: int, texts: Any, topics: Any) -> None:
    data = b"\x07" + request_bytes(version, epoch, texts, topics)
    decoded, _ = decode_offset_commit(version, memoryview(data), 1)
    assert (decoded.group_id, decoded.epoch, decoded.member_id) == (texts[0], epoch, texts[1])
    assert decoded.instance_id == (texts[2] if version >= 7 else None)
    assert decoded.retention_ms == (77 if version < 5 else -1)
    assert decoded.topics == [
        (
            name if version < 10 else UUID(int=place + 1).bytes,
            [part if version >= 6 else part._replace(leader_epoch=-1) for part in parts],
        )
        for place, (name, parts) in enumerate(topics)
    ]


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40, deadline=None)
@given(topics=st.lists(st.tuples(NAMES, st.lists(st.tuples(INT32, st.sampled_from(list(ErrorCode)))))))
def test_what_is_written_is_understood_by_kio(version: int, topics: Any) -> None:
    ids = [UUID(int=place + 1) for place in range(len(topics))]
    told = [
        (name if version < 10 else topic_id.bytes, [(index, code.value) for index, code in parts])
        for topic_id, (name, parts) in zip(ids, topics, strict=True)
    ]
    frame = encode_offset_commit(version, 42, 55, told)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 42
    body = 9 if version >= 8 else 8
    reader: Any = entity_reader(load_response_schema(OFFSET_COMMIT, version))
    response, size = reader(frame, body)
    throttle_time = getattr(response, "throttle_time", None)
    assert throttle_time == (timedelta(milliseconds=55) if version >= 3 else None)
    assert body + size == len(frame)
    names = [topic.topic_id if version >= 10 else topic.name for topic in response.topics]
    assert names == (ids if version >= 10 else [name for name, _ in topics])
    assert [
        [(part.partition_index, part.error_code) for part in topic.partitions] for topic in response.topics
    ] == [parts for _, parts in topics]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_cut_off_anywhere_is_refused(version: int) -> None:
    parts = [OffsetCommitPart(0, 5, 1, "m"), OffsetCommitPart(1, 6, 1, "")]
    data = request_bytes(version, 3, ("g", "m", "i"), [("t", parts)])
    for end in range(len(data)):
        with pytest.raises(MalformedRequest):
            decode_offset_commit(version, memoryview(data)[:end], 0)


@pytest.mark.parametrize("version", [7, 9])
def test_more_partitions_than_a_request_may_name_are_refused(version: int) -> None:
    parts = [OffsetCommitPart(0, 0, 0, "")] * 60_000
    data = request_bytes(version, 3, ("g", "m", None), [("t", parts), ("u", parts)])
    with pytest.raises(MalformedRequest, match="more than"):
        decode_offset_commit(version, memoryview(data), 0)


@pytest.mark.parametrize("version", [8, 9, 10])
@settings(max_examples=150, deadline=None)
@given(
    texts=st.tuples(NAMES, NAMES, st.none() | NAMES),
    topics=st.lists(st.tuples(NAMES, PARTS), max_size=3),
    has_metadata=st.booleans(),
    data=st.data(),
)
def test_the_usual_request_says_the_same_read_either_way(
    version: int, texts: Any, topics: Any, has_metadata: bool, data: st.DataObject
) -> None:
    if not has_metadata:
        topics = [(name, [part._replace(metadata="") for part in parts]) for name, parts in topics]
    raw = request_bytes(version, 3, texts, topics)
    usual = decode_usual(version, raw, 0)
    is_usual = texts[2] is None and not any(part.metadata for _, parts in topics for part in parts)
    assert (usual is not None) == is_usual
    mutated = data.draw(mutations(raw))
    for each in (raw, mutated, raw + b"rest"):
        usual = decode_usual(version, each, 0)
        assert usual is None or usual == decode_any(version, memoryview(each), 0)


@pytest.mark.parametrize("version", [8, 9, 10])
@settings(max_examples=150, deadline=None)
@given(name=NAMES, parts=PARTS, others=PARTS, data=st.data())
def test_the_form_of_one_commit_reads_the_next_as_if_there_were_none(
    version: int, name: str, parts: Any, others: Any, data: st.DataObject
) -> None:
    plain = [part._replace(metadata="") for part in parts]
    raw = request_bytes(version, 3, ("g", "m", None), [(name, plain)])
    header = header_bytes(version, 1)
    _, form = decode_offset_commit(version, memoryview(header + raw), len(header))
    assert form is not None
    following = request_bytes(version, 3, ("g", "m", None), [(name, others)])
    for each in (raw, following, data.draw(mutations(raw)), raw + b"\x00", raw + bytes(18)):
        read = form.parts_in(memoryview(header_bytes(version, 2) + each))
        if read is not None:
            wanted = decode_any(version, memoryview(each), 0)
            assert wanted[:3] == (form.group_id, form.epoch, form.member_id)
            assert wanted.topics == [(form.topic, [(*part, "") for part in read])]
            told = [(part[0], 0) for part in read]
            answer = frame_of(42, form.well([part[0] for part in read]))
            assert answer == encode_offset_commit(version, 42, 0, [(form.topic, told)])
    assert form.parts_in(memoryview(header_bytes(version, 3) + raw)) == [part[:3] for part in plain]
    assert form.parts_in(memoryview(header_bytes(8 if version != 8 else 9, 1) + raw)) is None
    assert form.parts_in(memoryview(header_bytes(version, 1, b"you") + raw)) is None


@pytest.mark.parametrize("version", [8, 9, 10])
def test_what_has_bytes_behind_its_end_has_no_form(version: int) -> None:
    raw = request_bytes(version, 3, ("g", "m", None), [("t", [OffsetCommitPart(0, 0, 0, "")])])
    for rest in (b"\x00", bytes(18), b"rest"):
        assert decode_offset_commit(version, memoryview(raw + rest), 0)[1] is None


@pytest.mark.parametrize("version", [8, 9])
def test_a_commit_of_the_same_size_by_somebody_else_has_another_form(version: int) -> None:
    part, header = OffsetCommitPart(0, 5, 1, ""), header_bytes(version, 1)
    raw = request_bytes(version, 3, ("g", "m", None), [("t", [part])])
    _, form = decode_offset_commit(version, memoryview(header + raw), len(header))
    assert form is not None
    for epoch, group, member, topic in (
        (3, "h", "m", "t"),
        (3, "g", "n", "t"),
        (3, "g", "m", "u"),
        (4, "g", "m", "t"),
    ):
        other = header + request_bytes(version, epoch, (group, member, None), [(topic, [part])])
        assert len(other) == form.size and form.parts_in(memoryview(other)) is None
