"""Clients are told the addresses of the listener they came in by, and a broker without it is hidden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.wire.harness import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    Harness,
    batch_of,
    parts,
)
from tests.wire.requests import Batches, fetch_values, metadata_values, produce_values
from tidelog.cluster.facts import BrokerFacts
from tidelog.protocol.errors import ErrorCode

INSIDE, OUTSIDE, ELSEWHERE = "INTERNAL", "EXTERNAL", "ELSEWHERE"
# Who is where; broker 1 is the one that is asked, and broker 3 is there for those inside only.
ADDRESSES = {
    1: {INSIDE: ("10.0.0.1", 9092), OUTSIDE: ("one.example", 443)},
    2: {INSIDE: ("10.0.0.2", 9092), OUTSIDE: ("two.example", 443)},
    3: {INSIDE: ("10.0.0.3", 9092)},
}


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """Topic t has a partition for each broker to lead."""
    harness = Harness(tmp_path)
    harness.create_topic("t", partitions=3)
    harness.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",))  # which makes the groups' topic
    image = harness.broker.image
    for node_id, listeners in ADDRESSES.items():
        host, port = listeners[INSIDE]
        rack = f"rack {node_id}"
        image.brokers[node_id] = BrokerFacts(node_id, host, port, rack, 1, listeners=listeners)
        facts = image.topics["t"].partitions[node_id - 1]
        facts.leader, facts.replicas = node_id, [1, 2, 3]
    partitions = harness.broker.partitions.of("t")
    assert partitions is not None
    partitions[1:] = [None, None]
    image.controller_id = 3
    return harness


def metadata(harness: Harness, version: int, listener: str) -> Any:
    harness.client.listener = listener
    return harness.ask(METADATA, version, **metadata_values(version, ["t"]))


def brokers_of(answer: Any) -> dict[int, tuple[str, int]]:
    return {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}


def test_metadata_tells_the_addresses_of_the_listener(harness: Harness) -> None:
    for listener in (INSIDE, OUTSIDE):
        expected = {
            node_id: listeners[listener] for node_id, listeners in ADDRESSES.items() if listener in listeners
        }
        answer = metadata(harness, 12, listener)
        assert brokers_of(answer) == expected
        assert [broker.rack for broker in answer.brokers] == [f"rack {node_id}" for node_id in expected]


@pytest.mark.parametrize("version", [1, 5, 6, 12, 13])
def test_a_leader_without_the_listener_is_none(harness: Harness, version: int) -> None:
    (topic,) = metadata(harness, version, INSIDE).topics
    assert [(each.error_code, each.leader_id) for each in topic.partitions] == [(0, 1), (0, 2), (0, 3)]
    (topic,) = metadata(harness, version, OUTSIDE).topics
    hidden = ErrorCode.listener_not_found if version >= 6 else ErrorCode.leader_not_available
    assert [(each.error_code, each.leader_id) for each in topic.partitions] == [(0, 1), (0, 2), (hidden, -1)]
    assert [each.replica_nodes for each in topic.partitions] == [(1, 2, 3)] * 3
    if version >= 5:
        assert [each.offline_replicas for each in topic.partitions] == [(3,), (1, 3), (1, 3)]


def test_a_leader_that_is_gone_is_not_available_whatever_the_listener(harness: Harness) -> None:
    del harness.broker.image.brokers[3]
    for listener in (INSIDE, OUTSIDE):
        (topic,) = metadata(harness, 12, listener).topics
        assert topic.partitions[2].error_code == ErrorCode.leader_not_available


def test_clients_are_sent_to_a_live_broker_for_what_is_the_controller_s(harness: Harness) -> None:
    for listener in (INSIDE, OUTSIDE):
        assert metadata(harness, 12, listener).controller_id == 1
    del harness.broker.image.brokers[1]
    assert metadata(harness, 12, INSIDE).controller_id == 2


@pytest.mark.parametrize("controller_id", [3, -1])
def test_who_asks_for_controllers_is_told_which_broker_decides(harness: Harness, controller_id: int) -> None:
    harness.broker.image.controller_id = controller_id
    metadata(harness, 12, INSIDE)
    answer = harness.ask(DESCRIBE_CLUSTER, 1, endpoint_type=2, include_cluster_authorized_operations=False)
    assert (answer.error_code, answer.endpoint_type, answer.controller_id) == (0, 2, controller_id)
    assert [broker.broker_id for broker in answer.brokers] == [1, 2, 3]


def test_by_a_listener_that_nobody_advertises_nobody_is_seen(harness: Harness) -> None:
    answer = metadata(harness, 12, ELSEWHERE)
    assert (brokers_of(answer), answer.controller_id) == ({}, -1)
    assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.listener_not_found}


def test_describe_cluster_tells_the_same(harness: Harness) -> None:
    for listener in (INSIDE, OUTSIDE):
        seen = metadata(harness, 12, listener)
        answer = harness.ask(
            DESCRIBE_CLUSTER, 1, endpoint_type=1, include_cluster_authorized_operations=False
        )
        told = {broker.broker_id: (broker.host, broker.port) for broker in answer.brokers}
        assert (told, answer.controller_id) == (brokers_of(seen), seen.controller_id)


def test_described_partitions_have_the_leaders_of_the_listener(harness: Harness) -> None:
    part = parts(DESCRIBE_TOPIC_PARTITIONS, 0)

    def leaders(listener: str) -> list[int]:
        harness.client.listener = listener
        names = (part.TopicRequest(name="t"),)
        (topic,) = harness.ask(
            DESCRIBE_TOPIC_PARTITIONS, 0, topics=names, response_partition_limit=9, cursor=None
        ).topics
        return [each.leader_id for each in topic.partitions]

    assert (leaders(INSIDE), leaders(OUTSIDE)) == ([1, 2, 3], [1, 2, -1])


@pytest.mark.parametrize("leader", [1, 2, 3])
def test_a_coordinator_is_told_at_the_listener_or_not_at_all(harness: Harness, leader: int) -> None:
    topic = harness.broker.image.topics["__consumer_offsets"]
    for facts in topic.partitions.values():
        facts.leader = leader
    for listener in (INSIDE, OUTSIDE):
        harness.client.listener = listener
        (found,) = harness.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",)).coordinators
        if listener in ADDRESSES[leader]:
            assert (found.error_code, found.node_id) == (0, leader)
            assert (found.host, found.port) == ADDRESSES[leader][listener]
        else:
            assert (found.error_code, found.node_id) == (ErrorCode.coordinator_not_available, -1)


def endpoints_of(answer: Any) -> dict[int, tuple[str, int]]:
    return {each.node_id: (each.host, each.port) for each in answer.node_endpoints}


def hints_of(harness: Harness, api_key: int, version: int, listener: str, **values: Any) -> None:
    """Ask for partitions 1 and 2, of which this broker has none."""
    harness.client.listener = listener
    answer = harness.ask(api_key, version, **values)
    (topic,) = answer.responses
    partitions = topic.partition_responses if api_key == PRODUCE else topic.partitions
    assert [each.current_leader.leader_id for each in partitions] == [2, 3]
    reachable = [node_id for node_id in (2, 3) if listener in ADDRESSES[node_id]]
    assert endpoints_of(answer) == {node_id: ADDRESSES[node_id][listener] for node_id in reachable}


@pytest.mark.parametrize("listener", [INSIDE, OUTSIDE])
def test_hints_at_leaders_have_the_addresses_of_the_listener(harness: Harness, listener: str) -> None:
    batches: list[tuple[int, Batches]] = [(1, batch_of()), (2, batch_of())]
    hints_of(harness, PRODUCE, 12, listener, **produce_values(harness, 12, {"t": batches}))
    hints_of(harness, FETCH, 16, listener, **fetch_values(harness, 16, {"t": [(1, 0), (2, 0)]}))
