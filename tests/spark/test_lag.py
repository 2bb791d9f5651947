"""How far a stream is: in a consumer group, where every console shows it, and in Spark's own progress."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.spark.conftest import NewTopic
from tests.spark.programs import awaited
from tests.spark.queries import fill, numbered, row_counts, run_available, stream
from tests.spark.test_source_stream import offsets_written, start
from tidelog.client.cluster import Cluster, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster({"bootstrap.servers": bootstrap}) as cluster:
        yield cluster


@pytest.mark.parametrize("option", ["commitGroup", "kafka.group.id"])
def test_progress_is_in_the_group_that_was_named_the_last_batch_included(
    option: str, spark: SparkSession, bootstrap: str, new_topic: NewTopic, cluster: Cluster, tmp_path: Path
) -> None:
    topic, group = new_topic(2), f"progress-{uuid4().hex[:8]}"
    fill(bootstrap, topic, {0: numbered(30), 1: numbered(10)})
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 15, option: group}
    query = run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    assert len(row_counts(query)) == 3
    assert cluster.committed(group) == {TopicPartition(topic, 0): 30, TopicPartition(topic, 1): 10}


def test_a_running_query_commits_its_last_batch_while_it_waits(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, cluster: Cluster, tmp_path: Path
) -> None:
    topic, group = new_topic(1), f"progress-{uuid4().hex[:8]}"
    place = TopicPartition(topic, 0)
    options = {"subscribe": topic, "startingOffsets": "earliest", "commitGroup": group}
    query = start(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    try:
        for total in (4, 8):
            fill(bootstrap, topic, {0: numbered(4, first=total - 4)})
            awaited(partial(is_at, cluster, group, place, total), "no progress is told")
    finally:
        query.stop()


def is_at(cluster: Cluster, group: str, place: TopicPartition, offset: int) -> bool:
    return cluster.committed(group).get(place) == offset


def test_a_group_without_a_name_gets_one_that_stays(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, cluster: Cluster, tmp_path: Path
) -> None:
    topic = new_topic(1)
    options = {"subscribe": topic, "startingOffsets": "earliest", "groupIdPrefix": "nightly"}
    for total in (3, 6):
        fill(bootstrap, topic, {0: numbered(3, first=total - 3)})
        run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)
        (group,) = {written[""]["group"] for written in offsets_written(tmp_path)}
        assert group.startswith("nightly-")
        assert cluster.committed(group) == {TopicPartition(topic, 0): total}


def test_progress_is_told_to_nobody_if_so_wished(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, cluster: Cluster, tmp_path: Path
) -> None:
    topic, group = new_topic(1), f"progress-{uuid4().hex[:8]}"
    fill(bootstrap, topic, {0: numbered(3)})
    options = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "commitGroup": False,
        "kafka.group.id": group,
    }
    query = run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    assert row_counts(query) == [3]
    assert cluster.committed(group) == {}
    assert not any("group" in written[""] for written in offsets_written(tmp_path))


def test_progress_shows_the_lag(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(1)
    fill(bootstrap, topic, {0: numbered(25)})
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 10}
    query = run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    seen = [
        json.loads(progress.json)["sources"][0] for progress in query.recentProgress if progress.numInputRows
    ]
    reached = [source["endOffset"][topic]["0"] for source in seen]
    latest = [source["latestOffset"][topic]["0"] for source in seen]
    assert reached == [10, 20, 25]
    assert latest == [25, 25, 25]
