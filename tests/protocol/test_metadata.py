"""The topics of a Metadata answer are, byte for byte, what kio writes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import encode_response, make, response_type, response_types
from tidelog.protocol.metadata import TopicWriter

METADATA = 3
VERSIONS = range(14)
NODES = st.lists(st.integers(0, 2**31 - 1), max_size=4)
INDEXES = st.integers(0, 2**31 - 1)
ERRORS = st.sampled_from([ErrorCode.none, ErrorCode.leader_not_available, ErrorCode.unknown_topic_id])
PARTITIONS = st.tuples(ERRORS, INDEXES, st.integers(-1, 10), st.integers(-1, 10), NODES, NODES, NODES)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=80)
TOPICS = st.lists(
    st.tuples(
        ERRORS,
        NAMES,
        st.binary(min_size=16, max_size=16) | st.none(),
        st.booleans(),
        st.lists(PARTITIONS, max_size=5),
        st.integers(-(2**31), 2**31 - 1),
    ),
    max_size=4,
)


def by_kio(version: int, topics: list[Any]) -> bytes:
    part = response_types(METADATA, version)
    written = tuple(
        make(
            part.MetadataResponseTopic,
            error_code=error,
            name=name,
            topic_id=UUID(bytes=topic_id) if topic_id else None,
            is_internal=is_internal,
            partitions=tuple(
                make(
                    part.MetadataResponsePartition,
                    error_code=of_partition,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=epoch,
                    replica_nodes=tuple(replicas),
                    isr_nodes=tuple(in_sync),
                    offline_replicas=tuple(offline),
                )
                for of_partition, index, leader, epoch, replicas, in_sync, offline in partitions
            ),
            topic_authorized_operations=operations,
        )
        for error, name, topic_id, is_internal, partitions, operations in topics
    )
    return frame(version, written)


def frame(version: int, topics: tuple[Any, ...]) -> bytes:
    response = make(
        response_type(METADATA, version),
        throttle_time=timedelta(milliseconds=7),
        brokers=(
            make(
                response_types(METADATA, version).MetadataResponseBroker,
                node_id=1,
                host="localhost",
                port=9092,
                rack=None,
            ),
        ),
        cluster_id="a cluster",
        controller_id=1,
        topics=topics,
        cluster_authorized_operations=264,
        error_code=ErrorCode.none,
    )
    return encode_response(METADATA, version, 77, response)


def by_hand(version: int, topics: list[Any]) -> bytes:
    writer = TopicWriter(version)
    return writer.splice(frame(version, ()), [writer.write(*topic) for topic in topics])


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=30, deadline=None)
@given(topics=TOPICS)
def test_topics_are_written_as_kio_writes_them(version: int, topics: list[Any]) -> None:
    assert by_hand(version, topics) == by_kio(version, topics)


@pytest.mark.parametrize("version", VERSIONS)
def test_many_partitions_and_long_names_have_long_lengths(version: int) -> None:
    partitions: list[Any] = [(ErrorCode.none, index, 1, 3, [1], [1], []) for index in range(300)]
    topics = [(ErrorCode.none, "n" * 249, bytes(range(16)), False, partitions, -(2**31))] * 130
    assert by_hand(version, topics) == by_kio(version, topics)


def test_a_name_may_be_null_where_topics_are_asked_for_by_id() -> None:
    topics: list[Any] = [(ErrorCode.unknown_topic_id, None, bytes(range(16)), False, [], -(2**31))]
    for version in (12, 13):
        assert by_hand(version, topics) == by_kio(version, topics)


def test_partitions_that_look_alike_do_not_share_what_differs() -> None:
    """The same node numbers, in other roles."""
    partitions = [
        (ErrorCode.none, 0, 1, 1, [1, 2], [3], []),
        (ErrorCode.none, 1, 1, 1, [1], [2, 3], []),
        (ErrorCode.none, 2, 1, 1, [1], [2], [3]),
    ]
    topics = [(ErrorCode.none, "t", bytes(range(16)), False, partitions, 0)]
    assert by_hand(13, topics) == by_kio(13, topics)
