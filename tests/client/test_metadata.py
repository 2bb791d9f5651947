"""Metadata at the client's end, held against the answers that kio writes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.reference import INT32
from tidelog.client.metadata import DescribedTopic, MetadataExchange, decode_metadata
from tidelog.protocol.errors import ErrorCode, MalformedRequest
from tidelog.protocol.messages import decode_request, encode_part, make, response_type, response_types

EVERY_VERSION = pytest.mark.parametrize("version", range(4, 14))
NODES = st.lists(INT32, max_size=3).map(tuple)
PARTITIONS = st.lists(st.tuples(INT32, INT32, NODES, NODES, NODES), max_size=5, unique_by=lambda row: row[0])
TOPICS = st.lists(
    st.tuples(st.sampled_from([0, 3, 5, 17]), st.text("abc", min_size=1, max_size=9), st.uuids(), PARTITIONS),
    max_size=4,
)


def answer(version: int, topics: list[Any], brokers: dict[int, tuple[str, int]]) -> bytes:
    types = response_types(3, version)
    rows = [
        make(
            types.MetadataResponseTopic,
            error_code=ErrorCode(code),
            name=name,
            topic_id=topic_id,
            is_internal=False,
            partitions=tuple(
                make(
                    types.MetadataResponsePartition,
                    error_code=ErrorCode.none,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=3,
                    replica_nodes=replicas,
                    isr_nodes=in_sync,
                    offline_replicas=offline,
                )
                for index, leader, replicas, in_sync, offline in partitions
            ),
        )
        for code, name, topic_id, partitions in topics
    ]
    nodes = [
        make(types.MetadataResponseBroker, node_id=node, host=host, port=port, rack=None)
        for node, (host, port) in brokers.items()
    ]
    whole = make(
        response_type(3, version),
        throttle_time=timedelta(0),
        brokers=tuple(nodes),
        cluster_id="cluster",
        controller_id=1,
        topics=tuple(rows),
        error_code=ErrorCode.none,
    )
    return encode_part(whole)


@EVERY_VERSION
@settings(max_examples=25, deadline=None)
@given(topics=TOPICS, brokers=st.dictionaries(INT32, st.tuples(st.text("h.", max_size=9), INT32), max_size=3))
def test_leaders_and_nodes_are_what_kio_wrote(
    version: int, topics: list[Any], brokers: dict[int, tuple[str, int]]
) -> None:
    decoded = decode_metadata(answer(version, topics, brokers), 0, version)
    assert decoded.nodes == brokers
    assert decoded.topics == [
        DescribedTopic(
            code, name, topic_id.bytes if version >= 10 else bytes(16), {p[0]: p[1] for p in partitions}
        )
        for code, name, topic_id, partitions in topics
    ]


@EVERY_VERSION
def test_an_answer_that_ends_early_is_malformed_wherever_it_ends(version: int) -> None:
    partition = (0, 1, (1, 2), (1,), ())
    whole = answer(version, [(0, "abc", UUID(int=5), [partition, partition])], {1: ("host", 9092)})
    for size in range(len(whole)):
        with pytest.raises(MalformedRequest):
            decode_metadata(whole[:size], 0, version)


@EVERY_VERSION
@pytest.mark.parametrize("topics", [None, [], ["a", "b"]])
def test_the_broker_decodes_the_request_that_was_meant(version: int, topics: list[str] | None) -> None:
    for may_create in (False, True):
        frame = bytes(MetadataExchange(topics, may_create=may_create).encode(version, 7, None)[0])
        request = decode_request(3, version, frame, 14 + (version >= 9))
        assert request.allow_auto_topic_creation is may_create
        assert (None if request.topics is None else [row.name for row in request.topics]) == topics
