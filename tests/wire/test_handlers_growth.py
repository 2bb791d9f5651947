"""CreatePartitions, DeleteRecords, ElectLeaders in every version."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import FETCH, Harness, batch_of, other_connection, parts, seconds
from tests.wire.requests import fetch, fetch_values, produce
from tests.wire.test_handlers_alterations import SET, resource
from tests.wire.test_handlers_configs import TOPIC
from tidelog.cluster.store import Refused

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


def trim(harness: Harness, version: int, topic: str, offsets: dict[int, int]) -> list[tuple[Any, int]]:
    part = parts(DELETE_RECORDS, version)
    wanted = tuple(
        part.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets.items()
    )
    asked = (part.DeleteRecordsTopic(name=topic, partitions=wanted),)
    answer = harness.ask(DELETE_RECORDS, version, topics=asked, timeout=seconds(5))
    (found,) = answer.topics
    assert found.name == topic
    return [(result.error_code, result.low_watermark) for result in found.partitions]


def elect(harness: Harness, version: int, kind: int, topics: dict[str, tuple[int, ...]] | None) -> Any:
    part = parts(ELECT_LEADERS, version)
    asked = None
    if topics is not None:
        asked = tuple(part.TopicPartitions(topic=name, partitions=ids) for name, ids in topics.items())
    values = {"election_type": kind, "topic_partitions": asked, "timeout": seconds(5)}
    return harness.ask(ELECT_LEADERS, version, **values)


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


@pytest.mark.parametrize("version", range(3))
def test_deleted_records_are_gone_for_readers_and_stay_so(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    for _ in range(5):
        produce(harness, 9, "t", batch_of(2))
    assert trim(harness, version, "t", {0: 5}) == [(0, 5)]
    assert trim(harness, version, "t", {0: 3}) == [(0, 5)]
    assert fetch(harness, 12, "t", 4).error_code == ErrorCode.offset_out_of_range
    assert fetch(harness, 12, "t", 5).error_code == 0
    harness.advance(100)
    harness.advance(1_100)
    harness.start()
    assert harness.partition("t").log.start_offset == 5
    assert trim(harness, version, "t", {0: -1}) == [(0, 10)]


@pytest.mark.parametrize(
    ("topic", "index", "offset", "error"),
    [
        ("t", 0, 3, ErrorCode.offset_out_of_range),
        ("t", 0, -2, ErrorCode.offset_out_of_range),
        ("t", 7, 0, ErrorCode.unknown_topic_or_partition),
        ("t", -1, 0, ErrorCode.unknown_topic_or_partition),
        ("none", 0, 0, ErrorCode.unknown_topic_or_partition),
        ("", 0, 0, ErrorCode.unknown_topic_or_partition),
        ("__consumer_offsets", 0, 0, ErrorCode.invalid_topic_exception),
        ("compacted", 0, 0, ErrorCode.policy_violation),
    ],
)
def test_what_cannot_be_deleted(
    harness: Harness, topic: str, index: int, offset: int, error: ErrorCode
) -> None:
    harness.create_topic("t")
    harness.create_topic("compacted", cleanup_policy="compact")
    produce(harness, 9, "t", batch_of(2))
    assert trim(harness, 2, topic, {index: offset}) == [(error, -1)]
    assert harness.partition("t").log.start_offset == 0


def test_a_reader_that_waits_below_the_new_start_is_told(harness: Harness) -> None:
    harness.create_topic("t")
    produce(harness, 9, "t", batch_of(2))
    values = fetch_values(harness, 12, {"t": [(0, 1)]}, min_bytes=1_000_000, max_wait_ms=60_000)
    harness.send(FETCH, 12, **values)
    assert harness.answers() == []
    asked = harness._correlation_id
    with other_connection(harness):
        assert trim(harness, 2, "t", {0: 2}) == [(0, 2)]
    harness._correlation_id = asked
    answer = harness.answer(FETCH, 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.offset_out_of_range


@pytest.mark.parametrize("version", range(3))
def test_the_only_replica_leads_already(harness: Harness, version: int) -> None:
    harness.create_topic("t", 2)
    answer = elect(harness, version, 0, {"t": (0, 5), "none": (0,)})
    found = [
        (result.topic, part.partition_id, part.error_code)
        for result in answer.replica_election_results
        for part in result.partition_result
    ]
    unknown = ErrorCode.unknown_topic_or_partition
    assert found == [("t", 0, ErrorCode.election_not_needed), ("t", 5, unknown), ("none", 0, unknown)]


def test_elections_for_all_and_of_a_kind_that_there_is_not(harness: Harness) -> None:
    harness.create_topic("t")
    everything = elect(harness, 2, 0, None)
    assert [(r.topic, r.partition_result) for r in everything.replica_election_results] == [("t", ())]
    strange = elect(harness, 2, 5, {"t": (0,)})
    assert strange.error_code == ErrorCode.invalid_request
    assert strange.replica_election_results[0].partition_result[0].error_code == ErrorCode.invalid_request


def test_an_offline_replica_cannot_be_elected(harness: Harness) -> None:
    harness.create_topic("t")
    harness.partition("t").become_offline()
    for kind, error in (
        (0, ErrorCode.preferred_leader_not_available),
        (1, ErrorCode.eligible_leaders_not_available),
    ):
        answer = elect(harness, 2, kind, {"t": (0,)})
        assert answer.replica_election_results[0].partition_result[0].error_code == error


def test_a_store_that_refuses_growth_each_time_is_not_asked_for_ever(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t")
    monkeypatch.setattr(harness.store, "perform", lambda action: Refused(0, "never"))
    assert grow(harness, 3, ("t", 2)) == {"t": ErrorCode.request_timed_out}
    assert len(harness.broker.image.topics["t"].partitions) == 1
