"""ConsumerGroupHeartbeat by hand against kio: the same requests understood, the same answers written."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from tests.protocol.reference import mutations
from tidelog.protocol.errors import ErrorCode, MalformedRequest
from tidelog.protocol.group_heartbeat import (
    decode_any,
    decode_group_heartbeat,
    decode_usual,
    encode_group_heartbeat,
)
from tidelog.protocol.messages import make

HEARTBEAT = 68
VERSIONS = (0, 1)
TEXT = st.text(max_size=20)
NAMES = st.text("abc.-_", min_size=1, max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
IDS = st.binary(min_size=16, max_size=16).filter(any)
PARTITIONS = st.dictionaries(IDS, st.lists(INT32, max_size=9).map(tuple), max_size=4)


def request_bytes(version: int, **said: Any) -> bytes:
    types = load_payload_module(HEARTBEAT, version, EntityType.request)
    partitions = said.pop("partitions")
    told = None
    if partitions is not None:
        told = tuple(
            types.TopicPartitions(topic_id=UUID(bytes=topic_id), partitions=indexes)
            for topic_id, indexes in partitions.items()
        )
    request = make(load_request_schema(HEARTBEAT, version), topic_partitions=told, **said)
    buffer = io.BytesIO()
    entity_writer(type(request))(buffer, request)
    return buffer.getvalue()


SAID = st.fixed_dictionaries(
    {
        "group_id": TEXT,
        "member_id": TEXT,
        "member_epoch": INT32,
        "instance_id": st.none() | TEXT,
        "rack_id": st.none() | TEXT,
        "rebalance_timeout": st.integers(-1, 2**31 - 1).map(lambda ms: timedelta(milliseconds=ms)),
        "subscribed_topic_names": st.none() | st.lists(NAMES, max_size=5).map(tuple),
        "subscribed_topic_regex": st.none() | TEXT,
        "server_assignor": st.none() | TEXT,
        "partitions": st.none() | PARTITIONS,
    }
)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40, deadline=None)
@given(said=SAID)
def test_what_kio_writes_is_understood(version: int, said: dict[str, Any]) -> None:
    data = b"\x07" + request_bytes(version, **said)
    decoded = decode_group_heartbeat(version, memoryview(data), 1)
    assert decoded._asdict() == {
        "group_id": said["group_id"],
        "member_id": said["member_id"],
        "epoch": said["member_epoch"],
        "instance_id": said["instance_id"],
        "rack_id": said["rack_id"],
        "rebalance_timeout_ms": round(said["rebalance_timeout"].total_seconds() * 1_000),
        "topics": said["subscribed_topic_names"],
        "pattern": said["subscribed_topic_regex"] if version else None,
        "assignor": said["server_assignor"],
        "partitions": said["partitions"],
    }


USUAL = st.fixed_dictionaries(
    {
        "group_id": st.text(max_size=20),
        "member_id": st.text(max_size=60),
        "member_epoch": INT32,
        "instance_id": st.none(),
        "rack_id": st.none(),
        "rebalance_timeout": st.integers(-1, 2**31 - 1).map(lambda ms: timedelta(milliseconds=ms)),
        "subscribed_topic_names": st.none(),
        "subscribed_topic_regex": st.none(),
        "server_assignor": st.none(),
        "partitions": st.none() | st.dictionaries(IDS, st.lists(INT32, max_size=140).map(tuple), max_size=2),
    }
)


@settings(max_examples=200, deadline=None)
@given(said=USUAL | SAID, data=st.data())
def test_the_usual_request_says_the_same_read_either_way(said: dict[str, Any], data: st.DataObject) -> None:
    raw = request_bytes(1, **said)
    for each in (raw, data.draw(mutations(raw)), raw + b"rest"):
        usual = decode_usual(1, b"\x07" + each, 1)
        assert usual is None or usual == decode_any(1, memoryview(b"\x07" + each), 1)


def test_a_member_that_has_a_hundred_partitions_sends_the_usual_request() -> None:
    said = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 3,
        "rebalance_timeout": timedelta(milliseconds=-1),
    }
    nothing = dict.fromkeys(
        ("instance_id", "rack_id", "subscribed_topic_names", "subscribed_topic_regex", "server_assignor")
    )
    for partitions in (None, {b"i" * 16: tuple(range(100))}):
        raw = request_bytes(1, partitions=partitions, **said, **nothing)
        usual = decode_usual(1, raw, 0)
        assert usual is not None and usual.partitions == partitions


@settings(max_examples=40, deadline=None)
@given(
    code=st.sampled_from(list(ErrorCode)),
    texts=st.tuples(st.none() | TEXT, st.none() | TEXT),
    epoch=INT32,
    interval_ms=st.integers(0, 2**31 - 1),
    assigned=st.none() | PARTITIONS,
)
def test_what_is_written_is_understood_by_kio(
    code: ErrorCode,
    texts: tuple[str | None, str | None],
    epoch: int,
    interval_ms: int,
    assigned: dict[bytes, tuple[int, ...]] | None,
) -> None:
    frame = encode_group_heartbeat(42, 55, code, *texts, epoch, interval_ms, assigned)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    for version in VERSIONS:
        reader: Any = entity_reader(load_response_schema(HEARTBEAT, version))
        answer, size = reader(frame, 9)
        assert size == len(frame) - 9
        assert answer.throttle_time == timedelta(milliseconds=55)
        assert (answer.error_code, answer.error_message, answer.member_id) == (code, *texts)
        assert (answer.member_epoch, answer.heartbeat_interval) == (
            epoch,
            timedelta(milliseconds=interval_ms),
        )
        told = answer.assignment and {
            each.topic_id.bytes: each.partitions for each in answer.assignment.topic_partitions
        }
        assert told == (assigned and {key: tuple(sorted(each)) for key, each in assigned.items()})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_cut_off_anywhere_is_refused(version: int) -> None:
    data = request_bytes(
        version,
        group_id="g",
        member_id="m",
        member_epoch=1,
        instance_id="i",
        rack_id=None,
        rebalance_timeout=timedelta(seconds=1),
        subscribed_topic_names=("t", "u"),
        subscribed_topic_regex="t.*",
        server_assignor="range",
        partitions={bytes(range(16)): (1, 2, 3)},
    )
    for end in range(len(data)):
        with pytest.raises(MalformedRequest):
            decode_group_heartbeat(version, memoryview(data)[:end], 0)
