"""The steps of the scale case, small, against a real broker: each checks what it was answered."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from bench.cases.scale import BATCH, PARTITIONS_PER_TOPIC, Course, Fleet, rows_of
from bench.load.admin import Refused
from bench.load.bystander import Bystander
from bench.load.pipeline import BadAnswer

from tidelog.testing import Broker

TOPICS = [f"bench-scale-{number:05d}" for number in range(4)]


@pytest.fixture
def broker() -> Iterator[Any]:
    with Broker() as running:
        yield SimpleNamespace(name="Tidelog", host="127.0.0.1", port=running.port, assert_alive=lambda: None)


def test_topics_are_made_described_written_read_and_deleted(broker: Any) -> None:
    fleet = Fleet(TOPICS)
    fleet.create(broker)
    assert fleet.describe(broker) > 0
    fleet.describe_by_pages(broker)
    fleet.write(broker)
    fleet.read(broker)
    kept = fleet.wait_for_offsets(broker, fleet.offset_frames())
    assert kept == len(TOPICS) * PARTITIONS_PER_TOPIC * BATCH.record_count
    fleet.delete(broker)
    with pytest.raises(Refused):
        fleet.delete(broker)


def test_a_partition_that_is_not_described_is_noticed(broker: Any) -> None:
    Fleet(TOPICS[1:]).create(broker)
    with pytest.raises(BadAnswer):
        Fleet(TOPICS).describe(broker)
    with pytest.raises(Refused):
        Fleet(TOPICS).describe_by_pages(broker)


def test_records_that_are_not_there_are_noticed(broker: Any) -> None:
    fleet = Fleet(TOPICS)
    fleet.create(broker)
    with pytest.raises(BadAnswer):
        fleet.read(broker)


def test_a_bystander_measures_while_the_block_runs(broker: Any) -> None:
    with Bystander(broker.host, broker.port) as bystander:
        Fleet(TOPICS).create(broker)
    assert bystander.latencies and bystander.worst_ms == max(bystander.latencies) / 1e6


def test_steps_that_a_peer_did_not_reach_are_left_empty() -> None:
    whole, broken = Course(), Course()
    for step in ("create", "stop"):
        whole.note(step, 1.5, "s")
    broken.note("create", 3.0, "s")
    rows = rows_of({"Tidelog": whole, "Kafka": broken}, 10_000)
    assert [(row.case, row.ratio) for row in rows] == [
        ("10,000 partitions: create", 0.5),
        ("10,000 partitions: stop", None),
    ]
