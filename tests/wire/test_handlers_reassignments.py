"""AlterPartitionReassignments and ListPartitionReassignments in every version."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import Harness, parts, seconds
from tests.wire.test_handlers_partitions import grow
from tidelog.cluster.facts import NOBODY, encode_fields
from tidelog.cluster.paths import BROKER_EPOCHS
from tidelog.cluster.store import Create, Refused, Unknown

ALTER, LIST = 45, 46
VERSIONS = (0, 1)
NONE, UNKNOWN = ErrorCode.none, ErrorCode.unknown_topic_or_partition
Rows = list[tuple[int, ErrorCode]]


def move_values(version: int, *asked: Any, may_resize: bool = True) -> dict[str, Any]:
    """Of each (topic, partition, target)."""
    part = parts(ALTER, version)
    topics = tuple(
        part.ReassignableTopic(
            name=name, partitions=(part.ReassignablePartition(partition_index=index, replicas=target),)
        )
        for name, index, target in asked
    )
    return {"topics": topics, "timeout": seconds(5), "allow_replication_factor_change": may_resize}


def move(harness: Harness, version: int, *asked: Any, may_resize: bool = True) -> list[ErrorCode]:
    answer = harness.ask(ALTER, version, **move_values(version, *asked, may_resize=may_resize))
    assert answer.error_code == NONE and [row.name for row in answer.responses] == [row[0] for row in asked]
    rows = [row for topic in answer.responses for row in topic.partitions]
    assert [row.partition_index for row in rows] == [row[1] for row in asked]
    assert all((row.error_message is None) == (row.error_code == NONE) for row in rows)
    return [row.error_code for row in rows]


def moving(harness: Harness, topics: dict[str, tuple[int, ...]] | None = None) -> dict[tuple[str, int], Any]:
    part = parts(LIST, 0)
    asked = None
    if topics is not None:
        asked = tuple(
            part.ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        )
    answer = harness.ask(LIST, 0, timeout=seconds(5), topics=asked)
    assert answer.error_code == NONE
    return {
        (topic.name, row.partition_index): (row.replicas, row.adding_replicas, row.removing_replicas)
        for topic in answer.topics
        for row in topic.partitions
    }


@pytest.fixture
def pair(harness: Harness) -> Harness:
    """A broker that knows of another one, which is away."""
    other = Create(f"{BROKER_EPOCHS}/2", encode_fields(epoch=1, trusted_since=1, directory="d"))
    harness.store.put(other.path, other.data)
    harness.broker.image.apply([other])
    harness.create_topic("t", 2)
    return harness


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_on_its_own_has_nowhere_to_move_to(harness: Harness, version: int) -> None:
    harness.create_topic("t", 2)
    asked = (("t", 0, (1,)), ("t", 1, (2,)), ("t", 1, None), ("t", 9, (1,)), ("absent", 0, None))
    wrong, idle = ErrorCode.invalid_replica_assignment, ErrorCode.no_reassignment_in_progress
    codes = [move(harness, version, each)[0] for each in asked]
    assert codes == [NONE, wrong, idle, UNKNOWN, UNKNOWN]
    for target in ((), (1, 1), (-1,), (1, 2)):
        assert move(harness, version, ("t", 0, target)) == [wrong]
    assert moving(harness) == {}
    assert harness.broker.image.topics["t"].partitions[0].leader_epoch == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_what_moves_is_listed_until_it_is_cancelled(pair: Harness, version: int) -> None:
    assert move(pair, version, ("t", 0, (2,)), ("t", 1, (2, 1))) == [NONE, NONE]
    first, second = ((2, 1), (2,), (1,)), ((2, 1), (2,), ())
    assert moving(pair) == {("t", 0): first, ("t", 1): second}
    assert moving(pair, {"t": (1, 7), "absent": (0,)}) == {("t", 1): second}
    assert move(pair, version, ("t", 0, None), ("t", 1, None)) == [NONE, NONE]
    assert moving(pair) == {} and moving(pair, {"t": (0, 1)}) == {}
    facts = pair.broker.image.topics["t"].partitions[0]
    assert (facts.replicas, facts.leader, facts.leader_epoch) == ([1], 1, 2)


def test_the_last_word_about_a_partition_counts(pair: Harness) -> None:
    assert move(pair, 1, ("t", 0, (2,)), ("t", 0, (1,))) == [NONE, NONE]
    assert moving(pair) == {}


def test_the_number_of_replicas_stays_if_the_client_says_so(pair: Harness) -> None:
    answer = pair.ask(ALTER, 1, **move_values(1, ("t", 0, (2, 1)), may_resize=False))
    assert answer.allow_replication_factor_change is False
    assert answer.responses[0].partitions[0].error_code == ErrorCode.invalid_replication_factor
    assert move(pair, 1, ("t", 0, (2,)), may_resize=False) == [NONE]


def test_a_topic_that_moves_grows_by_as_many_replicas_as_it_will_have(pair: Harness) -> None:
    assert move(pair, 1, ("t", 0, (2,))) == [NONE]
    assert grow(pair, 3, ("t", 3)) == {"t": NONE}
    assert pair.broker.image.topics["t"].partitions[2].replicas == [1]


def test_who_is_not_the_controller_says_so(pair: Harness) -> None:
    pair.broker.image.controller_id = NOBODY
    answer = pair.ask(ALTER, 1, **move_values(1, ("t", 0, (2,))))
    assert answer.error_code == ErrorCode.not_controller
    assert answer.responses[0].partitions[0].error_code == ErrorCode.not_controller


@pytest.mark.parametrize("outcome", [Refused(1, "never"), Unknown("lost")])
def test_a_store_that_does_not_take_a_move_is_not_asked_for_ever(
    pair: Harness, monkeypatch: pytest.MonkeyPatch, outcome: Refused | Unknown
) -> None:
    monkeypatch.setattr(pair.store, "perform", lambda action: outcome)
    assert move(pair, 1, ("t", 0, (2,))) == [ErrorCode.request_timed_out]
    assert moving(pair) == {}


def test_of_many_partitions_all_are_told(pair: Harness) -> None:
    pair.create_topic("many", 250)
    targets = [("many", index, (2,)) for index in range(250)]
    assert move(pair, 1, *targets) == [NONE] * 250
    assert len(moving(pair)) == 250
