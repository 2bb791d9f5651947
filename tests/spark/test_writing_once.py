"""Writing exactly once, by Spark itself: repeated batches, jobs, versions, `foreachBatch`.

The protocol without Spark is in `exactly_once/`; kills of drivers are in `test_source_kills`.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.awaiting import await_that
from tests.soak import is_soak
from tests.spark.conftest import NewTopic
from tests.spark.queries import everything, fill, numbered, read, run_to_end, stream, with_options
from tidelog.client.cluster import Cluster, TopicPartition
from tidelog.protocol.records import build_batch
from tidelog.spark import to_topic
from tidelog.spark.exactly_once.tasks import Place, Slots, TaskTransaction
from tidelog.spark.options import WriteOptions

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

COMMITTED = {"kafka.isolation.level": "read_committed"}
SHORT = {"kafka.transaction.timeout.ms": "10000"}
"""A task that Spark kills may begin its transaction after the job has ended: the timeout ends that."""
PATIENCE_S = 120.0
WORST = ("concat(cast(key as string), uuid(), now()) key", "value")
"""A plan that computes other rows in each attempt."""


def values(spark: SparkSession, bootstrap: str, topic: str) -> list[bytes]:
    rows = everything(read(spark, "tidelog", bootstrap, subscribe=topic, **COMMITTED))
    return sorted(row[1] for row in rows)


def start(frame: DataFrame, bootstrap: str, folder: Path, mode: str = "append", **options: object) -> None:
    writer = with_options(frame.writeStream.format("tidelog").outputMode(mode), bootstrap, options)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    run_to_end(writer)


def forget_the_last_commit(folder: Path) -> None:
    """As if the driver had been killed before Spark noted that the batch is done."""
    commits = folder / "checkpoint" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for file in (commits / str(last), commits / f".{last}.crc"):
        file.unlink(missing_ok=True)


def nothing_is_open(bootstrap: str, folder: Path) -> None:
    """Of the query that has its checkpoint there; other tests write to the same broker."""
    query_id = json.loads((folder / "checkpoint" / "metadata").read_text())["id"]
    with Cluster({"bootstrap.servers": bootstrap}) as cluster:
        assert cluster.transactions.list_open(f"tidelog-spark-{query_id}/.*") == []


def source(spark: SparkSession, bootstrap: str, topic: str, **options: object) -> DataFrame:
    chosen = {"startingOffsets": "earliest", **COMMITTED, **options}
    return stream(spark, "tidelog", bootstrap, subscribe=topic, **chosen)


PLANS = {
    "a map that computes other rows, by other tasks": lambda frame, life: frame.repartition(
        life + 1
    ).selectExpr(*WORST),
    "an aggregation": lambda frame, life: (
        frame.groupBy("value").count().selectExpr("cast(value as string) key", "value")
    ),
    "a join": lambda frame, life: frame.join(
        frame.sparkSession.range(100), frame.value.cast("string").cast("long") == frame_id()
    ).selectExpr("key", "value"),
}


def frame_id() -> Any:
    from pyspark.sql import functions

    return functions.col("id")


@pytest.mark.soak
@pytest.mark.parametrize("plan", PLANS if is_soak() else [*PLANS][:1])
def test_a_repeated_batch_is_there_once(
    plan: str, spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    origin, target = new_topic(2), new_topic(3)
    mode = "complete" if plan == "an aggregation" else "append"
    fill(bootstrap, origin, {0: numbered(20), 1: numbered(20, 20)})
    for life in range(2):
        frame = PLANS[plan](source(spark, bootstrap, origin), life)
        start(frame, bootstrap, tmp_path, mode, topic=target)
        if not life:
            forget_the_last_commit(tmp_path)
    assert values(spark, bootstrap, target) == sorted(b"%d" % number for number in range(40))
    nothing_is_open(bootstrap, tmp_path)


def test_a_copied_checkpoint_and_a_restored_one_stop(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    origin, target = new_topic(), new_topic()
    frame = source(spark, bootstrap, origin).selectExpr("key", "value")
    fill(bootstrap, origin, {0: numbered(5)})
    start(frame, bootstrap, tmp_path / "first", topic=target)
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    shutil.copytree(tmp_path / "first", tmp_path / "backup")
    fill(bootstrap, origin, {0: numbered(5, 5)})
    start(frame, bootstrap, tmp_path / "first", topic=target)
    with pytest.raises(Exception, match="written before from other offsets"):
        start(frame, bootstrap, tmp_path / "copy", topic=target)
    fill(bootstrap, origin, {0: numbered(5, 10)})
    start(frame, bootstrap, tmp_path / "first", topic=target)
    with pytest.raises(Exception, match="already written batch") as stopped:
        start(frame, bootstrap, tmp_path / "backup", topic=target)
    assert "exactlyOnce.resumeAt=" in str(stopped.value)
    assert values(spark, bootstrap, target) == sorted(b"%d" % number for number in range(15))
    nothing_is_open(bootstrap, tmp_path / "first")


def failing(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for each in rows:
        yield each
        if any(value.as_py() == b"7" for value in each.column("value")):
            raise RuntimeError("this row is too much")


def test_a_job_writes_all_or_nothing(spark: SparkSession, bootstrap: str, topic: str) -> None:
    frame = spark.range(0, 10, 1, 2).selectExpr("cast(cast(id as string) as binary) value")
    with pytest.raises(Exception, match="this row is too much"):
        write(frame.mapInArrow(failing, "value binary"), bootstrap, topic=topic, **SHORT)
    assert values(spark, bootstrap, topic) == []
    for _ in range(2):
        write(frame, bootstrap, topic=topic)
    await_that(
        lambda: Counter(values(spark, bootstrap, topic)) == {b"%d" % number: 2 for number in range(10)},
        "the rows of two jobs are not there, or a task that was killed holds them back",
        PATIENCE_S,
    )


def test_a_job_of_which_no_task_reports_leaves_nothing_open(bootstrap: str, topic: str) -> None:
    """Spark gives up a job whose tasks it has killed."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    from tidelog.spark.writing import BatchWriter

    raw = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    schema = StructType([StructField("value", BinaryType())])
    writer = BatchWriter(WriteOptions.parse(raw, streaming=False), schema)
    place = Place(writer._job_sink, "run", 0, 0, 0, 0)
    with Cluster({"bootstrap.servers": bootstrap}) as cluster:
        sender = TaskTransaction(cluster, {}, place, 60_000, Slots()).sender()
        sender.send(TopicPartition(topic, 0), build_batch([(None, b"1", [], 1)]), 1)
        sender.flush()
        pattern = f"{writer._job_sink}/.*"
        assert len(cluster.transactions.list_open(pattern)) == 1
        writer.abort([None, None])
        assert cluster.transactions.list_open(pattern) == []


def write(frame: DataFrame, bootstrap: str, **options: object) -> None:
    with_options(frame.write.format("tidelog").mode("append"), bootstrap, options).save()


def test_a_version_is_written_once(spark: SparkSession, bootstrap: str, topic: str) -> None:
    for version in (3, 3, 2, 4):
        frame = spark.sql(f"select 'v{version}' value")
        write(frame, bootstrap, topic=topic, txnAppId=f"app-{topic}", txnVersion=version)
    assert values(spark, bootstrap, topic) == [b"v3", b"v4"]


def test_a_repeated_foreach_batch_is_there_once_for_each_name(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    origin, target = new_topic(), new_topic()
    fill(bootstrap, origin, {0: numbered(5)})
    options = {"kafka.bootstrap.servers": bootstrap, "topic": target}
    one, two = to_topic(options, name="one"), to_topic(options, name="two")

    def both(rows: DataFrame, batch: int) -> None:
        one(rows, batch)
        two(rows, batch)

    for life in range(2):
        frame = source(spark, bootstrap, origin).selectExpr(*WORST)
        writer = frame.writeStream.foreachBatch(both)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        run_to_end(writer)
        if not life:
            forget_the_last_commit(tmp_path)
    assert values(spark, bootstrap, target) == sorted([b"%d" % number for number in range(5)] * 2)

    def twice(rows: DataFrame, batch: int) -> None:
        one(rows, batch)
        one(rows, batch)

    frame = source(spark, bootstrap, origin).selectExpr("key", "value")
    writer = frame.writeStream.foreachBatch(twice)
    writer = writer.option("checkpointLocation", str(tmp_path / "refused"))
    with pytest.raises(Exception, match="name=one is used twice"):
        run_to_end(writer)


def test_at_least_once_opens_no_transaction(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, new_topic: NewTopic
) -> None:
    target = new_topic()
    fill(bootstrap, topic, {0: numbered(5)})
    frame = source(spark, bootstrap, topic).selectExpr("key", "value")
    for life in range(2):
        start(frame, bootstrap, tmp_path, topic=target, deliveryGuarantee="at-least-once")
        if not life:
            forget_the_last_commit(tmp_path)
    # No offset is a marker's: the rows of both lives follow each other.
    rows = everything(read(spark, "tidelog", bootstrap, subscribe=target))
    assert [row[4] for row in rows] == list(range(10))


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_a_repeated_batch_does_not_lose_the_state_of_its_query(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    """With 1.5 million rows Spark's buffers do not hide a task that does not read its rows to the end."""
    count = 1_500_000 if is_soak() else 3_000
    folder, target = tmp_path / "in", new_topic(2)
    folder.mkdir()
    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(folder))
    unique = frame.dropDuplicates(["id"]).selectExpr("cast(id as string) value")
    for life in range(3):
        if life != 1:  # in between, the batch is repeated
            rows = spark.range(life * count // 2, life * count // 2 + count, 1, 1)
            rows.write.mode("append").parquet(str(folder))
        start(unique, bootstrap, tmp_path, topic=target)
        if not life:
            forget_the_last_commit(tmp_path)
    found = read(spark, "tidelog", bootstrap, subscribe=target, **COMMITTED)
    assert found.count() == found.select("value").distinct().count() == 2 * count
