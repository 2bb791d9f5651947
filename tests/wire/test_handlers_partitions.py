"""CreatePartitions in every version."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import Harness, batch_of, parts, seconds
from tests.wire.requests import produce
from tests.wire.test_handlers_configs import TOPIC
from tests.wire.test_handlers_configs_alteration import SET, resource
from tidelog.base.limits import STORE_CHANGE_ATTEMPTS_MAX
from tidelog.cluster.store import Action, Multi, Outcome, Refused

CREATE_PARTITIONS, DELETE_RECORDS, ELECT_LEADERS = 37, 21, 43


INCREMENTAL_ALTER_CONFIGS = 44


def grow_values(version: int, *topics: Any, dry: bool = False) -> dict[str, Any]:
    part = parts(CREATE_PARTITIONS, version)
    asked = tuple(
        part.CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if not assigned
            else tuple(part.CreatePartitionsAssignment(broker_ids=ids) for ids in assigned[0]),
        )
        for name, count, *assigned in topics
    )
    return {"topics": asked, "timeout": seconds(5), "validate_only": dry}


def grow(harness: Harness, version: int, *topics: Any, dry: bool = False) -> dict[str, ErrorCode]:
    answer = harness.ask(CREATE_PARTITIONS, version, **grow_values(version, *topics, dry=dry))
    return {result.name: result.error_code for result in answer.results}


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_and_its_new_partitions_can_be_written(harness: Harness, version: int) -> None:
    harness.create_topic("t", 2, segment_bytes="5000")
    produce(harness, 9, "t", batch_of(3), index=1)
    first = harness.partition("t", 0)
    assert grow(harness, version, ("t", 4)) == {"t": 0}
    assert produce(harness, 9, "t", batch_of(1), index=3).error_code == 0
    assert harness.partition("t", 0) is first
    assert harness.partition("t", 1).log.end_offset == 3
    assert harness.partition("t", 3).log.settings.segment_bytes == 5_000
    harness.broker.stop()
    harness.start()
    assert [harness.partition("t", index).log.end_offset for index in range(4)] == [0, 3, 0, 1]


def test_validating_growth_makes_nothing(harness: Harness) -> None:
    harness.create_topic("t")
    assert grow(harness, 3, ("t", 4), dry=True) == {"t": 0}
    assert len(harness.broker.image.topics["t"].partitions) == 1


@pytest.mark.parametrize(
    ("count", "assigned", "error"),
    [
        (2, None, ErrorCode.invalid_partitions),
        (1, None, ErrorCode.invalid_partitions),
        (0, None, ErrorCode.invalid_partitions),
        (-1, None, ErrorCode.invalid_partitions),
        (20_003, None, ErrorCode.policy_violation),
        (4, [(1,)], ErrorCode.invalid_replica_assignment),
        (4, [(1,), (2,)], ErrorCode.invalid_replica_assignment),
        (4, [(1,), ()], ErrorCode.invalid_replica_assignment),
        (4, [(1,), (1, 1)], ErrorCode.invalid_replica_assignment),
        (4, [], ErrorCode.invalid_replica_assignment),
    ],
)
def test_growth_that_cannot_be_is_refused(
    harness: Harness, count: int, assigned: Any, error: ErrorCode
) -> None:
    harness.create_topic("t", 2)
    asked = ("t", count) if assigned is None else ("t", count, assigned)
    assert grow(harness, 3, asked) == {"t": error}
    assert len(harness.broker.image.topics["t"].partitions) == 2


def test_growth_by_hand_and_of_nobody_and_of_one_twice(harness: Harness) -> None:
    for name in ("t", "u"):
        harness.create_topic(name)
    assert grow(harness, 3, ("t", 3, [(1,), (1,)]), ("none", 2)) == {
        "t": ErrorCode.none,
        "none": ErrorCode.unknown_topic_or_partition,
    }
    assert grow(harness, 3, ("u", 2), ("u", 3)) == {"u": ErrorCode.invalid_request}


def test_growth_looks_again_when_the_topic_was_changed_meanwhile(harness: Harness) -> None:
    harness.create_topic("t")
    harness.holds_store = True
    changed = (resource(1, TOPIC, "t", ("segment.ms", SET, "5000")),)
    harness.send(INCREMENTAL_ALTER_CONFIGS, 1, resources=changed, validate_only=False)
    harness.send(CREATE_PARTITIONS, 3, **grow_values(3, ("t", 2)))
    harness.send(CREATE_PARTITIONS, 3, **grow_values(3, ("t", 2)))
    harness.release_store()
    answers = harness.answers()
    assert len(answers) == 3
    topic = harness.broker.image.topics["t"]
    assert (topic.config, len(topic.partitions)) == ({"segment.ms": "5000"}, 2)


def test_growth_that_the_store_is_slow_with_is_timed_out(harness: Harness) -> None:
    harness.create_topic("t")
    harness.holds_store = True
    harness.send(CREATE_PARTITIONS, 3, **grow_values(3, ("t", 2)))
    harness.advance(6_000)
    (result,) = harness.answer(CREATE_PARTITIONS, 3).results
    assert result.error_code == ErrorCode.request_timed_out
    assert harness.held_requests


def test_a_store_that_refuses_growth_each_time_is_not_asked_for_ever(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t")
    perform, written = harness.store.perform, []

    def refuse(action: Action) -> Outcome:
        if not isinstance(action, Multi):
            return perform(action)
        written.append(action)
        return Refused(1, "never")

    monkeypatch.setattr(harness.store, "perform", refuse)
    assert grow(harness, 3, ("t", 2)) == {"t": ErrorCode.request_timed_out}
    assert len(written) == STORE_CHANGE_ATTEMPTS_MAX
    assert len(harness.broker.image.topics["t"].partitions) == 1
