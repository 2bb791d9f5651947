"""`format("tidelog")` writing: columns, partitions, modes, and what it says when rows cannot be written.

Which partition a key goes to is compared with Spark's own connector, whose producer is Java's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.compat.client import CODECS
from tests.compat.confluent.driver import Confluent
from tests.spark.conftest import NewTopic
from tests.spark.queries import everything, fill, finished, numbered, numbers, read, stream, with_options
from tidelog.spark import to_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write(frame: DataFrame, form: str, bootstrap: str, **options: object) -> None:
    with_options(frame.write.format(form).mode("append"), bootstrap, options).save()


def contents(spark: SparkSession, bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """Partition, key, value and headers of each record, in the order of the log."""
    frame = read(spark, "kafka", bootstrap, subscribe=topic, includeHeaders=True)
    return [(row[3], row[0], row[1], row[7]) for row in everything(frame)]


COLUMNS: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "binaries": (
        "key binary, value binary",
        [(b"k", b"v"), (None, b"\x00\xff"), (b"k", None), (None, None), (b"", b"")],
    ),
    "strings": ("key string, value string", [("k", "v"), (None, "ünï"), ("k", None), ("", "")]),
    "a value alone": ("value string", [("a",), (None,), ("b",)]),
    "a string for a key": ("value binary, key string", [(b"v", "k")]),
    "partitions": (
        "value string, partition int",
        [("to 2", 2), ("to 0", 0), ("to 2 as well", 2)],
    ),
    "headers": (
        "value string, headers array<struct<key:string,value:binary>>",
        [
            ("two of one name", [("a", b"1"), ("a", b"2")]),
            ("a null and an empty one", [("n", None), ("e", b"")]),
            ("none", []),
            ("null", None),
        ],
    ),
    "columns that mean nothing": ("value string, offset long, note string", [("v", 7, "x")]),
}


@pytest.mark.usefixtures("kafka_connector")
@pytest.mark.parametrize("case", COLUMNS)
def test_the_records_are_those_that_the_connector_writes(
    case: str, spark: SparkSession, bootstrap: str, new_topic: NewTopic
) -> None:
    schema, rows = COLUMNS[case]
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    partitions = 3 if "partition" in schema else 1
    written = []
    for form in ("kafka", "tidelog"):
        topic = new_topic(partitions)
        write(frame, form, bootstrap, topic=topic, includeHeaders=True)
        written.append(contents(spark, bootstrap, topic))
    assert len(written[0]) == len(rows)
    assert written[1] == written[0]


@pytest.mark.usefixtures("kafka_connector")
@pytest.mark.parametrize("partitions", [3, 7])
def test_keys_go_to_the_partitions_that_java_gives_them(
    partitions: int, spark: SparkSession, bootstrap: str, new_topic: NewTopic
) -> None:
    frame = spark.range(500).selectExpr(
        "substring(sha2(cast(id as string), 256), 1, cast(id % 60 as int)) key", "id"
    )
    frame = frame.selectExpr("key", "cast(id as string) value")
    placed = []
    for form in ("kafka", "tidelog"):
        topic = new_topic(partitions)
        write(frame, form, bootstrap, topic=topic)
        placed.append(sorted((row[2], row[0], row[1]) for row in contents(spark, bootstrap, topic)))
    assert placed[1] == placed[0]


@pytest.mark.parametrize("codec", CODECS)
def test_rows_of_a_task_keep_their_order_whatever_compresses_them(
    codec: str, spark: SparkSession, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    frame = spark.range(0, 3000, 1, 1).selectExpr("cast(id % 50 as string) key", "cast(id as string) value")
    options = {"topic": topic, "kafka.compression.type": codec, "kafka.batch.size": 2000}
    write(frame, "tidelog", bootstrap, **options)
    rows = everything(read(spark, "tidelog", bootstrap, subscribe=topic))
    by_partition = [[int(row[1]) for row in rows if row[3] == partition] for partition in range(3)]
    assert all(values == sorted(values) for values in by_partition)
    assert sorted(each for values in by_partition for each in values) == list(range(3000))


def test_rows_without_a_key_are_spread(spark: SparkSession, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    frame = spark.range(0, 3000, 1, 1).selectExpr("cast(id as string) value")
    write(frame, "tidelog", bootstrap, topic=topic, kafka_batch_size=2000)
    found = numbers(read(spark, "tidelog", bootstrap, subscribe=topic))
    assert sorted(number for _, number in found) == list(range(3000))
    assert {partition for partition, _ in found} == {0, 1, 2}


def test_rows_name_their_topics_and_the_option_goes_before(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic
) -> None:
    first, second = new_topic(), new_topic()
    rows = [(first, "1"), (second, "2"), (first, "3")]
    frame = spark.createDataFrame(rows, "topic string, value string").coalesce(1)
    write(frame, "tidelog", bootstrap)
    write(frame, "tidelog", bootstrap, topic=second)
    both = [
        (topic, [int(v) for _, _, v, _ in contents(spark, bootstrap, topic)]) for topic in (first, second)
    ]
    assert both == [(first, [1, 3]), (second, [2, 1, 2, 3])]


def test_a_topic_is_made_where_the_broker_makes_topics(
    spark: SparkSession, client: Confluent, bootstrap: str
) -> None:
    topic = f"spark-made-{uuid4().hex[:8]}"
    write(spark.range(5).selectExpr("cast(id as string) value"), "tidelog", bootstrap, topic=topic)
    assert topic in client.topics()
    assert len(numbers(read(spark, "tidelog", bootstrap, subscribe=topic))) == 5
    client.delete_topic(topic)


def test_large_values_are_written(spark: SparkSession, bootstrap: str, topic: str) -> None:
    frame = spark.range(4).selectExpr("repeat(cast(id as string), 900000) value")
    write(frame, "tidelog", bootstrap, topic=topic)
    rows = everything(read(spark, "tidelog", bootstrap, subscribe=topic))
    assert sorted((len(row[1]), row[1][:1]) for row in rows) == [
        (900000, b"%d" % number) for number in range(4)
    ]


def test_no_rows_write_nothing(spark: SparkSession, bootstrap: str, topic: str) -> None:
    write(spark.range(0).selectExpr("cast(id as string) value"), "tidelog", bootstrap, topic=topic)
    assert everything(read(spark, "tidelog", bootstrap, subscribe=topic)) == []


# What is said of rows that cannot be written: the frame, the options beside the broker, the words.
WRONG: dict[str, tuple[str, dict[str, str], str]] = {
    "no topic": ("select 'v' value", {}, "topic option"),
    "a null topic": (
        "select 'v' value, cast(if(id = 3, null, 'wrong-1') as string) topic from range(5)",
        {},
        "null topic present in the data",
    ),
    "no value": ("select 'k' key", {"topic": "wrong-1"}, "Required attribute 'value' not found"),
    "a value that is a number": ("select 5 value", {"topic": "wrong-1"}, "value .*type"),
    "a key that is a number": ("select 5 key, 'v' value", {"topic": "wrong-1"}, "key .*type"),
    "a partition that is a string": (
        "select '0' partition, 'v' value",
        {"topic": "wrong-1"},
        "partition .*type",
    ),
    "headers that are a map": (
        "select map('a', 'b') headers, 'v' value",
        {"topic": "wrong-1"},
        "headers .*type",
    ),
    "a partition that is not there": (
        "select 9 partition, 'v' value",
        {"topic": "wrong-1"},
        r"partition 9 of topic wrong-1",
    ),
    "a compression that is none": (
        "select 'v' value",
        {"topic": "wrong-1", "kafka.compression.type": "rar"},
        r"kafka\.compression\.type=rar",
    ),
    "a serializer": (
        "select 'v' value",
        {"topic": "wrong-1", "kafka.key.serializer": "x"},
        r"kafka\.key\.serializer",
    ),
    "a name that no topic has": ("select 'v' value", {"topic": "no topic!"}, "no topic!"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_written_is_named(case: str, spark: SparkSession, bootstrap: str) -> None:
    text, options, words = WRONG[case]
    with pytest.raises(Exception, match=words):
        write(spark.sql(text), "tidelog", bootstrap, **options)


def test_a_topic_is_not_overwritten(spark: SparkSession, bootstrap: str, topic: str) -> None:
    with pytest.raises(Exception, match="only be appended to"):
        writer = spark.sql("select 'v' value").write.format("tidelog").mode("overwrite")
        with_options(writer, bootstrap, {"topic": topic}).save()


def copy(frame: DataFrame, bootstrap: str, folder: Path, mode: str = "append", **options: object) -> None:
    writer = with_options(frame.writeStream.format("tidelog").outputMode(mode), bootstrap, options)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    finished(writer.trigger(availableNow=True).start())


def test_a_stream_is_written_and_goes_on(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(2), new_topic(3)
    options: Mapping[str, Any] = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 20,
        "includeHeaders": True,
    }
    frame = stream(spark, "tidelog", bootstrap, subscribe=source, **options)
    frame = frame.select("key", "value", "headers")
    for first in (0, 30):
        fill(bootstrap, source, {0: numbered(30, first), 1: numbered(30, first)})
        copy(frame, bootstrap, tmp_path, topic=target)
    copied = sorted(number for _, number in numbers(read(spark, "tidelog", bootstrap, subscribe=target)))
    assert copied == sorted([*range(60), *range(60)])


COUNTS = "select cast(key as string) key, cast(count(*) as string) value from {rows} group by key"


def test_complete_mode_writes_every_result_each_time(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    frame = stream(spark, "tidelog", bootstrap, subscribe=source, startingOffsets="earliest")
    counted = spark.sql(COUNTS, rows=frame)
    for first in (0, 7):
        fill(bootstrap, source, {0: numbered(7, first)})
        copy(counted, bootstrap, tmp_path, "complete", topic=target)
    written = [(key, value) for _, key, value, _ in contents(spark, bootstrap, target)]
    keys = [b"k%d" % number for number in range(7)]
    assert sorted(written) == sorted([(key, value) for key in keys for value in (b"1", b"2")])


def test_update_mode_is_refused_and_has_another_way(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    fill(bootstrap, source, {0: numbered(10)})
    frame = stream(
        spark, "tidelog", bootstrap, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=7
    )
    counted = spark.sql(COUNTS, rows=frame)
    with pytest.raises(Exception, match="does not support Update mode"):
        copy(counted, bootstrap, tmp_path / "refused", "update", topic=target)
    upsert = to_topic({"kafka.bootstrap.servers": bootstrap, "topic": target})
    writer = counted.writeStream.outputMode("update").foreachBatch(upsert)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    finished(writer.trigger(availableNow=True).start())
    written = [(key, value) for _, key, value, _ in contents(spark, bootstrap, target)]
    first = [(b"k%d" % number, b"1") for number in range(7)]
    assert sorted(written[:7]) == first
    assert sorted(written[7:]) == [(b"k%d" % number, b"2") for number in range(3)]


def test_the_other_way_says_at_once_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"kafka\.bootstrap\.servers is missing"):
        to_topic({"topic": "t"})
