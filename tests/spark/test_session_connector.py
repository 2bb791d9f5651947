"""Spark's own Kafka connector in a session of ours, on a broker of ours: what users have before they change.

It is also what the differential tests and the benchmarks compare with: here it is shown to work.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.compat.client import CODECS, Sent, contents
from tests.compat.confluent.driver import Confluent
from tests.spark.conftest import NewTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = [
    Sent(b"first", b"key", (("h", b"v"), ("empty", b""))),
    Sent(None, b"a tombstone"),
    Sent(b"x" * 10_000),
    Sent(b""),
]


def read(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).option("includeHeaders", True).load()


@pytest.mark.usefixtures("kafka_connector")
@pytest.mark.parametrize("codec", CODECS)
def test_the_connector_reads_what_a_client_wrote(
    codec: str, spark: SparkSession, bootstrap: str, topic: str, client: Confluent
) -> None:
    client.produce(topic, RECORDS, codec=codec)
    rows = read(spark, bootstrap, topic).orderBy("offset").collect()
    assert [(row.key, row.value, tuple(map(tuple, row.headers or ()))) for row in rows] == contents(RECORDS)
    assert [(row.topic, row.partition, row.offset) for row in rows] == [(topic, 0, i) for i in range(4)]


@pytest.mark.usefixtures("kafka_connector")
def test_the_connector_streams_from_topic_to_topic(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(3), new_topic(2)
    numbers = spark.range(1000).selectExpr("cast(id as string) key", "repeat('x', id % 7) value")
    numbers.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", source).save()
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    stream = stream.option("subscribe", source).option("startingOffsets", "earliest")
    frame = stream.option("maxOffsetsPerTrigger", 400).load().select("key", "value")
    writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", target).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    batches = [progress.numInputRows for progress in query.recentProgress]
    assert len(batches) == 3 and max(batches) <= 400 and sum(batches) == 1000
    copied = read(spark, bootstrap, target).selectExpr(
        "cast(key as string) key", "cast(value as string) value"
    )
    assert sorted(copied.collect()) == sorted(numbers.collect())
