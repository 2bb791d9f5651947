"""`format("tidelog")` as a stream: paced, restarted, with topics that grow while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.compat.client import eventually
from tests.compat.confluent.driver import Confluent
from tests.spark.conftest import NewTopic
from tests.spark.programs import awaited
from tests.spark.queries import (
    add_partitions,
    delete_before,
    fill,
    finished,
    numbered,
    numbers,
    row_counts,
    run_available,
    stream,
)
from tests.spark.test_source import make_again

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def table(spark: SparkSession, folder: Path) -> list[tuple[int, int]]:
    return numbers(spark.read.parquet(str(folder / "table")))


def offsets_written(folder: Path) -> list[dict[str, Any]]:
    """What the checkpoint says of the source, batch by batch."""
    files = sorted((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    return [json.loads(file.read_text().splitlines()[2]) for file in files]


def start(frame: DataFrame, folder: Path) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("path", str(folder / "table"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def places(*counts: int) -> list[tuple[int, int]]:
    return [(partition, number) for partition, count in enumerate(counts) for number in range(count)]


def test_a_stream_is_read_in_batches_of_the_size_that_was_asked(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(2)
    fill(bootstrap, topic, {0: numbered(60), 1: numbered(40)})
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 40}
    query = run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    assert row_counts(query) == [40, 40, 20]
    assert table(spark, tmp_path) == places(60, 40)


def test_a_stream_goes_on_where_it_ended_and_finds_new_partitions(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(1)
    fill(bootstrap, topic, {0: numbered(10)})
    frame = stream(spark, "tidelog", bootstrap, subscribe=topic, startingOffsets="earliest")
    run_available(frame, tmp_path)
    fill(bootstrap, topic, {0: numbered(5, first=10)})
    add_partitions(bootstrap, topic, 2)
    fill(bootstrap, topic, {1: numbered(7)})
    query = run_available(frame, tmp_path)
    assert sum(row_counts(query)) == 12
    assert table(spark, tmp_path) == places(15, 7)
    assert row_counts(run_available(frame, tmp_path)) == []


def test_a_running_stream_finds_new_partitions_and_topics(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, client: Confluent, tmp_path: Path
) -> None:
    topic = new_topic(1)
    fill(bootstrap, topic, {0: numbered(3)})
    options = {"subscribePattern": f"{topic}.*", "startingOffsets": "latest"}
    query = start(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    try:
        awaited(lambda: offsets_written(tmp_path), "the stream does not start")
        add_partitions(bootstrap, topic, 2)
        fill(bootstrap, topic, {1: numbered(4)})
        client.create_topic(f"{topic}-more", 1, {"retention.ms": "-1"})
        eventually(lambda: f"{topic}-more" in client.topics(), "no new topic")
        fill(bootstrap, f"{topic}-more", {0: numbered(2)})
        awaited(lambda: sum(row_counts(query)) >= 6 or query.exception(), "new partitions are not found")
    finally:
        query.stop()
        client.delete_topic(f"{topic}-more")
    assert table(spark, tmp_path) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]


def test_a_query_that_is_triggered_once_reads_what_is_there(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    fill(bootstrap, topic, {0: numbered(10)})
    frame = stream(spark, "tidelog", bootstrap, subscribe=topic, startingOffsets="earliest")
    writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "table"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(once=True)
    assert row_counts(finished(writer.start())) == [10]
    fill(bootstrap, topic, {0: numbered(5, first=10)})
    assert row_counts(finished(writer.start())) == [5]
    assert table(spark, tmp_path) == places(15)


def test_a_checkpoint_of_the_other_connector_is_continued_and_is_not_handed_back(
    spark: SparkSession, bootstrap: str, topic: str, kafka_connector: str, tmp_path: Path
) -> None:
    """Our offsets have the topics' ids beside them, which the other one refuses: at once, before it reads."""
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    fill(bootstrap, topic, {0: numbered(10)})
    run_available(stream(spark, kafka_connector, bootstrap, **options), tmp_path)
    fill(bootstrap, topic, {0: numbered(5, first=10)})
    assert row_counts(run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)) == [5]
    fill(bootstrap, topic, {0: numbered(2, first=15)})
    with pytest.raises(Exception, match=r'got \{"": \{"ids"'):
        run_available(stream(spark, kafka_connector, bootstrap, **options), tmp_path)
    assert row_counts(run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)) == [2]
    assert table(spark, tmp_path) == places(17)


class Broken(Exception):
    """What a batch of these tests fails with."""


@pytest.mark.parametrize("failing_batch", [0, 1])
def test_a_query_that_fails_in_its_first_batch_still_began_where_it_began(
    failing_batch: int, spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    """From the latest offset: what came after the query's start is read, though no batch was ever done."""
    topic = new_topic(1)
    fill(bootstrap, topic, {0: numbered(10)})
    frame = stream(spark, "tidelog", bootstrap, subscribe=topic)

    def fail(_: DataFrame, batch_id: int) -> None:
        if batch_id == failing_batch:
            raise Broken(f"batch {batch_id}")

    checkpoint = str(tmp_path / "checkpoint")
    query = frame.writeStream.foreachBatch(fail).option("checkpointLocation", checkpoint).start()
    awaited(lambda: offsets_written(tmp_path), "the stream does not start")
    fill(bootstrap, topic, {0: numbered(5, first=10)})
    with pytest.raises(Exception, match=f"batch {failing_batch}"):
        finished(query)
    fill(bootstrap, topic, {0: numbered(5, first=15)})

    found: list[tuple[int, int]] = []
    writer = frame.writeStream.foreachBatch(lambda rows, _: found.extend(numbers(rows)))
    finished(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
    assert sorted(found) == [(0, number) for number in range(10, 20)]


def test_a_stream_waits_for_enough_records_but_not_for_ever(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(1)
    fill(bootstrap, topic, {0: numbered(3)})
    options: dict[str, Any] = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 10}
    query = start(stream(spark, "tidelog", bootstrap, **options, maxTriggerDelay="1h"), tmp_path)
    try:
        query.processAllAvailable()
        assert row_counts(query) == [3], "the first trigger never waits"
        fill(bootstrap, topic, {0: numbered(5, first=3)})
        query.processAllAvailable()
        assert row_counts(query) == [3], "five records are too few"
        fill(bootstrap, topic, {0: numbered(5, first=8)})
        awaited(lambda: row_counts(query) == [3, 10], "ten are enough")
        fill(bootstrap, topic, {0: numbered(1, first=13)})
        query.processAllAvailable()
    finally:
        query.stop()
    query = start(stream(spark, "tidelog", bootstrap, **options, maxTriggerDelay="1s"), tmp_path)
    try:
        awaited(lambda: row_counts(query) == [1], "the first trigger after a restart never waits")
        fill(bootstrap, topic, {0: numbered(2, first=14)})
        awaited(lambda: row_counts(query) == [1, 2], "two records are read after a second")
    finally:
        query.stop()
    assert table(spark, tmp_path) == places(16)


def test_an_idle_stream_makes_no_batches(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(3)
    fill(bootstrap, topic, {0: numbered(3), 2: numbered(3)})
    options = {"subscribe": topic, "startingOffsets": "earliest", "minPartitions": 5}
    query = start(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    try:
        awaited(lambda: row_counts(query) == [6], "the records are not read")
        batches = len(offsets_written(tmp_path))
        for _ in range(3):
            query.processAllAvailable()  # returns when a trigger found nothing new
        assert len(offsets_written(tmp_path)) == batches == 1
    finally:
        query.stop()


def test_a_topic_that_was_made_again_is_known_by_its_id(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, client: Confluent, tmp_path: Path
) -> None:
    topic = new_topic(1)
    fill(bootstrap, topic, {0: numbered(10)})
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    old = offsets_written(tmp_path)[-1][""]["ids"][topic]
    make_again(client, topic, 1)
    fill(bootstrap, topic, {0: numbered(12, first=100)})
    with pytest.raises(Exception, match=rf"{topic}.*{old}.*offset 10 are lost.*failOnDataLoss"):
        run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    run_available(stream(spark, "tidelog", bootstrap, **options, failOnDataLoss=False), tmp_path)
    expected = [*range(10), *range(100, 112)]
    assert table(spark, tmp_path) == [(0, number) for number in expected]
    assert offsets_written(tmp_path)[-1][""]["ids"][topic] != old


def test_a_topic_that_was_made_again_with_as_many_records_is_read_too(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, client: Confluent, tmp_path: Path
) -> None:
    topic = new_topic(1)
    fill(bootstrap, topic, {0: numbered(10)})
    options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": False}
    frame = stream(spark, "tidelog", bootstrap, **options)
    run_available(frame, tmp_path)
    make_again(client, topic, 1)
    fill(bootstrap, topic, {0: numbered(10, first=100)})
    run_available(frame, tmp_path)
    assert table(spark, tmp_path) == [(0, number) for number in [*range(10), *range(100, 110)]]
    assert row_counts(run_available(frame, tmp_path)) == []


def test_records_that_age_out_before_a_stream_reads_them_are_a_loss(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(1)
    fill(bootstrap, topic, {0: numbered(10)})
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    fill(bootstrap, topic, {0: numbered(10, first=10)})
    delete_before(bootstrap, topic, 0, 15)
    with pytest.raises(Exception, match=rf"{topic}-0.*records 10 to 14 are gone.*failOnDataLoss"):
        run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    run_available(stream(spark, "tidelog", bootstrap, **options, failOnDataLoss=False), tmp_path)
    assert table(spark, tmp_path) == [(0, number) for number in [*range(10), *range(15, 20)]]


def test_a_topic_that_is_gone_is_a_loss_that_names_it(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, client: Confluent, tmp_path: Path
) -> None:
    kept, gone = new_topic(1), new_topic(1)
    fill(bootstrap, kept, {0: numbered(3)})
    fill(bootstrap, gone, {0: numbered(3)})
    options = {"subscribe": f"{kept},{gone}", "startingOffsets": "earliest"}
    run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    client.delete_topic(gone)
    eventually(lambda: gone not in client.topics(), "it is still listed")
    fill(bootstrap, kept, {0: numbered(2, first=3)})
    with pytest.raises(Exception, match=rf"{gone}-0 was deleted; it was read up to offset 3"):
        run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)
    run_available(stream(spark, "tidelog", bootstrap, **options, failOnDataLoss=False), tmp_path)
    assert len(table(spark, tmp_path)) == 8
    client.create_topic(gone, 1, {})  # for whoever clears up


@pytest.mark.parametrize("limit", [{}, {"startingOffsets": "earliest", "endingOffsets": "latest"}])
def test_what_a_stream_cannot_be_told_is_named(
    limit: dict[str, str], spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    options = {"subscribe": "nowhere-to-be-found"} if not limit else {"subscribe": topic} | limit
    words = "nowhere-to-be-found" if not limit else "endingOffsets=latest"
    with pytest.raises(Exception, match=words):
        run_available(stream(spark, "tidelog", bootstrap, **options), tmp_path)
