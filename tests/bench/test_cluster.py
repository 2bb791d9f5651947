"""The cluster case, small: placed topics and a fail-over on a real cluster, and the rows made of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.arena import Sample
from bench.cases.cluster import SHAPES, Taken, _cpu_of_a_gigabyte, _other_rows
from bench.load import placed
from bench.load.admin import Refused
from bench.load.batches import Batch, build_batch
from bench.load.failover import kill_and_write
from bench.load.pipeline import BadAnswer
from bench.peers.clusters import Node
from bench.run import QUICK

from tidelog.testing import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    with Cluster(3, log_dirs=tmp_path, log_segment_delete_delay_ms=1) as running:
        nodes = {
            number: Node(number, broker.port, 0, tmp_path / str(number))
            for number, broker in running.brokers.items()
        }
        yield SimpleNamespace(
            name="Tidelog",
            nodes=nodes,
            node_numbers=lambda: sorted(nodes),
            cpu_seconds=lambda: 0.0,
            kill_node=running.kill,
        )


def test_each_broker_leads_as_many_partitions_as_the_others() -> None:
    assert placed.spread(4, [1, 2, 3]) == [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]]


def test_one_broker_leads_all_and_the_others_take_turns_to_follow_it() -> None:
    assert placed.all_led_by(2, 3, [1, 2, 3]) == [[2, 1, 3], [2, 3, 1], [2, 1, 3]]


def test_what_is_acknowledged_by_all_leaders_is_kept_and_its_files_go_with_the_topic(cluster: Any) -> None:
    with placed.fresh_topic(cluster, 6) as topic:
        assert set(topic.led_by()) == {1, 2, 3}
        assert topic.end_offset() == 6
        sample = placed.produce(topic, build_batch(10, 100), 100_000)
        assert sample.value > 0
        assert topic.end_offset() > 6
        assert all(any(node.log_directory.glob(f"{topic.name}-*")) for node in cluster.nodes.values())
    assert not any(any(node.log_directory.glob(f"{topic.name}-*")) for node in cluster.nodes.values())


def test_records_that_are_acknowledged_and_not_kept_are_noticed(cluster: Any) -> None:
    batch = build_batch(10, 100)
    topic = placed.create(cluster, placed.spread(3, [1, 2, 3]))
    with pytest.raises(BadAnswer, match="acknowledged"):
        placed.produce(topic, Batch(batch.content, 11), 50_000)


def test_a_topic_that_the_brokers_refuse_is_noticed(cluster: Any) -> None:
    with pytest.raises(Refused):
        placed.create(cluster, [[1, 2, 9]])


def test_a_partition_counts_when_a_new_leader_has_acknowledged_a_record(cluster: Any) -> None:
    topic = placed.create(cluster, placed.all_led_by(2, 20, [1, 2, 3]))
    taken = kill_and_write(topic, 2)
    assert len(taken) == 20 and taken == sorted(taken)
    survivors = placed.PlacedTopic(topic.name, [replicas[1:] for replicas in topic.placement], cluster)
    assert survivors.end_offset() >= 40


def test_cpu_of_a_gigabyte_is_the_share_of_a_core_over_the_bytes_of_a_second() -> None:
    batch = Batch(bytes(1_000), 10)
    assert _cpu_of_a_gigabyte(Sample(5_000_000, broker_share=1.5), batch) == pytest.approx(3.0)


def test_the_last_partition_decides_whether_all_are_writable_in_time() -> None:
    run: Any = SimpleNamespace(scale=QUICK)
    for last, verdict in ((8.0, "reached"), (8.1, "missed")):
        taken = Taken(resident_bytes=[1], created_seconds=[1.0], away_seconds=[[5.0, 5.0, last]])
        rows = {row.case.rpartition(", ")[2]: row for row in _other_rows(run, {"Tidelog": taken})}
        assert rows["all"].verdict == verdict
        half = rows["half"].tidelog
        assert half is not None and half.value == 5.0


def test_every_shape_is_asked_for() -> None:
    assert sorted(Taken().produced) == sorted(SHAPES) == [(100, 1), (100, 6), (1_000, 1), (1_000, 6)]
