"""A broker that is killed while Spark writes to it: nothing is missing, doubled or out of order."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from tests.compat.confluent.driver import Confluent
from tests.spark.programs import awaited
from tests.spark.queries import read, with_options
from tidelog.client.cluster import LATEST, Cluster, TopicPartition
from tidelog.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, KILLS, PARTITIONS = 120_000, 3, 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as broker:
        yield broker


def test_a_broker_that_is_killed_while_rows_are_written_has_each_once_and_in_order(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    """Two tasks, each with rows in rising order; Spark gives a task no second attempt here."""
    Confluent(broker.bootstrap_servers).create_topic("big", PARTITIONS, {})
    frame = spark.range(0, ROWS, 1, 2).selectExpr(
        "cast(id % 1000 as string) key", "concat(cast(id as string), ':', repeat('x', 200)) value"
    )
    options = {"topic": "big", "kafka.batch.size": 4000, "kafka.request.timeout.ms": 5000}
    writer = with_options(frame.write.format("tidelog").mode("append"), broker.bootstrap_servers, options)
    is_over = Event()
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_while_rows_come, broker, is_over)
        try:
            writer.save()  # here and not in the other thread, where Spark would not know the session
        finally:
            is_over.set()
        assert killing.result() == KILLS, "the write was over before the last kill"
    rows = read(spark, "tidelog", broker.bootstrap_servers, subscribe="big")
    found = rows.selectExpr("partition", "offset", "cast(split(cast(value as string), ':')[0] as long) id")
    placed = sorted((row.partition, row.offset, row.id) for row in found.collect())
    assert sorted(identity for _, _, identity in placed) == list(range(ROWS))
    for partition in range(PARTITIONS):
        for half in (range(ROWS // 2), range(ROWS // 2, ROWS)):
            ids = [identity for at, _, identity in placed if at == partition and identity in half]
            assert ids and ids == sorted(ids), f"partition {partition} is out of order"


def kill_while_rows_come(broker: BrokerProcess, is_over: Event) -> int:
    """Kill and start the broker at equal shares of the rows; how often it was killed under the write."""
    killed = 0
    with Cluster({"bootstrap.servers": broker.bootstrap_servers}) as cluster:
        for kill in range(1, KILLS + 1):
            has_enough = partial(has_reached, cluster, is_over, ROWS * kill // (KILLS + 2))
            awaited(has_enough, "the write does not go on")
            killed += not is_over.is_set()
            broker.kill()
            broker.start()
    return killed


def has_reached(cluster: Cluster, is_over: Event, count: int) -> bool:
    ends = cluster.list_offsets({TopicPartition("big", number): LATEST for number in range(PARTITIONS)})
    return is_over.is_set() or sum(found.offset for found in ends.values()) >= count
