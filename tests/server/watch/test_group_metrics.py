"""Groups on the metrics page: members, offsets and lag, by kafka-exporter's names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.index import load_payload_module
from kio.static.constants import EntityType
from prometheus_client.parser import text_string_to_metric_families

from tests.wire.harness import Harness, batch_of
from tests.wire.requests import produce
from tidelog.server.watch.group_metrics import group_pieces

OFFSET_COMMIT, FIND_COORDINATOR = 8, 10


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path)
    yield harness
    for partition in harness.broker.partitions.all():
        partition.log.close(clean=False)


def commit(harness: Harness, topic: str, offsets: dict[int, int]) -> None:
    harness.ask(FIND_COORDINATOR, 0, key="g")
    types = load_payload_module(OFFSET_COMMIT, 8, EntityType.request)
    partitions = tuple(
        types.OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        for index, offset in offsets.items()
    )
    answer = harness.ask(
        OFFSET_COMMIT,
        8,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=(types.OffsetCommitRequestTopic(name=topic, partitions=partitions),),
    )
    assert [part.error_code for part in answer.topics[0].partitions] == [0] * len(offsets)


def numbers(harness: Harness) -> dict[tuple[str, str], float]:
    """By name and partition, or by name and topic where that is all there is."""
    text = "".join(group_pieces(harness.broker, 250))
    return {
        (sample.name.removeprefix("kafka_consumergroup_"), sample.labels.get("partition", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_lag_is_what_lies_between_the_commit_and_the_high_watermark(harness: Harness) -> None:
    harness.create_topic("t", 2)
    for _ in range(3):
        produce(harness, 9, "t", batch_of(10))
    commit(harness, "t", {0: 12, 1: 0})
    assert numbers(harness) == {
        ("members", ""): 0,
        ("current_offset", "0"): 12,
        ("current_offset", "1"): 0,
        ("current_offset_sum", ""): 12,
        ("lag", "0"): 18,
        ("lag", "1"): 0,
        ("lag_sum", ""): 18,
    }


def test_a_commit_ahead_of_the_log_has_no_lag(harness: Harness) -> None:
    harness.create_topic("t", 1)
    commit(harness, "t", {0: 99})
    assert numbers(harness)["lag", "0"] == 0


def test_a_piece_has_no_more_series_than_it_may(harness: Harness) -> None:
    harness.create_topic("t", 30)
    commit(harness, "t", dict.fromkeys(range(30), 1))
    pieces = list(group_pieces(harness.broker, 10))
    assert max(sum(not line.startswith("#") for line in piece.splitlines()) for piece in pieces) == 10
