"""A broker that is killed while Spark writes to it: nothing is missing, doubled or out of order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    import pyarrow as pa
    from pyspark.sql import SparkSession

ROWS, PARTITIONS = 120_000, 3
GATES = (2, 3, 5)
"""Each task stops before these batches of `BATCH` rows until the broker was killed once more."""
BATCH = 10_000
ENOUGH = (BATCH, 3 * BATCH, 6 * BATCH)
"""How many rows there are before each kill: fewer than both tasks write before they stop, though Spark hands
a batch on only when it has the next."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as broker:
        yield broker


def test_a_broker_that_is_killed_while_rows_are_written_has_each_once_and_in_order(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """Two tasks, each with rows in rising order; Spark gives a task no second attempt here."""
    Confluent(broker.bootstrap_servers).create_topic("big", PARTITIONS, {})
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == str(BATCH)
    frame = spark.range(0, ROWS, 1, 2).selectExpr(
        "cast(id % 1000 as string) key", "concat(cast(id as string), ':', repeat('x', 200)) value"
    )
    frame = frame.mapInArrow(stopping_at_gates(tmp_path), frame.schema)
    options = {"topic": "big", "kafka.batch.size": 4000, "kafka.request.timeout.ms": 5000}
    writer = with_options(frame.write.format("tidelog").mode("append"), broker.bootstrap_servers, options)
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_while_rows_come, broker, tmp_path)
        writer.save()  # here and not in the other thread, where Spark would not know the session
        killing.result()
    rows = read(spark, "tidelog", broker.bootstrap_servers, subscribe="big")
    found = rows.selectExpr("partition", "offset", "cast(split(cast(value as string), ':')[0] as long) id")
    placed = sorted((row.partition, row.offset, row.id) for row in found.collect())
    assert sorted(identity for _, _, identity in placed) == list(range(ROWS))
    for partition in range(PARTITIONS):
        for half in (range(ROWS // 2), range(ROWS // 2, ROWS)):
            ids = [identity for at, _, identity in placed if at == partition and identity in half]
            assert ids and ids == sorted(ids), f"partition {partition} is out of order"


def stopping_at_gates(folder: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For a task: its batches, and a stop at each gate that is not open."""

    def stop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tick = Event()
        for number, rows in enumerate(batches):
            while number in GATES and not gate(folder, number).exists():
                tick.wait(0.02)
            yield rows

    return stop


def gate(folder: Path, number: int) -> Path:
    return folder / f"gate-{number}"


def kill_while_rows_come(broker: BrokerProcess, folder: Path) -> None:
    """Kill and start the broker while both tasks write up to their next gate."""
    try:
        with Cluster({"bootstrap.servers": broker.bootstrap_servers}) as cluster:
            for number, count in zip(GATES, ENOUGH, strict=True):
                awaited(partial(has_reached, cluster, count), "the write does not go on")
                broker.kill()
                broker.start()
                gate(folder, number).touch()
    finally:
        for number in GATES:
            gate(folder, number).touch()


def has_reached(cluster: Cluster, count: int) -> bool:
    ends = cluster.list_offsets({TopicPartition("big", number): LATEST for number in range(PARTITIONS)})
    return sum(found.offset for found in ends.values()) >= count
