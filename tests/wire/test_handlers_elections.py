"""ElectLeaders in every version."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import Harness, parts, seconds

CREATE_PARTITIONS, DELETE_RECORDS, ELECT_LEADERS = 37, 21, 43


def elect(harness: Harness, version: int, kind: int, topics: dict[str, tuple[int, ...]] | None) -> Any:
    part = parts(ELECT_LEADERS, version)
    asked = None
    if topics is not None:
        asked = tuple(part.TopicPartitions(topic=name, partitions=ids) for name, ids in topics.items())
    values = {"election_type": kind, "topic_partitions": asked, "timeout": seconds(5)}
    return harness.ask(ELECT_LEADERS, version, **values)


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
