"""Reading and writing topics by Spark, and filling them by a client, for the tests of `format("tidelog")`.

    fill(bootstrap, topic, {0: [Sent(b"a")], 2: [Sent(b"b")]})
    everything(read(spark, "tidelog", bootstrap, subscribe=topic))

**Invariant:** rows are compared as they came: with all their columns, none of them converted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.compat.client import CONSUME_SECONDS_MAX, Sent
from tests.compat.confluent.driver import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

QUERY_SECONDS_MAX = 240  # below the limit of a test
STARTED_MS = 1_700_000_000_000  # the timestamp of the first record of each partition
TOO_SLOW = "Python worker failed to connect back"
RESTARTS_MAX = 20  # of a query on a busy machine
SPACING_MS = 1_000  # between two records


def fill(bootstrap: str, topic: str, records: Mapping[int, Sequence[Sent]], codec: str = "none") -> None:
    """Write records to partitions of a topic and wait until all are acknowledged."""
    settings = {"compression.type": codec, "linger.ms": 20, "message.max.bytes": 64 << 20}
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True} | settings)
    refused: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    for partition, sent in records.items():
        for index, record in enumerate(sent):
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=partition,
                headers=list(record.headers),
                timestamp=record.timestamp_ms or STARTED_MS + index * SPACING_MS,
                on_delivery=on_delivery,
            )
    assert producer.flush(CONSUME_SECONDS_MAX) == 0, "the producer still waits for acknowledgements"
    assert not refused, refused[0].str()


def numbered(count: int, first: int = 0) -> list[Sent]:
    """Records whose value says which one of their partition they are."""
    return [Sent(b"%d" % number, b"k%d" % (number % 7)) for number in range(first, first + count)]


def delete_before(bootstrap: str, topic: str, partition: int, offset: int) -> None:
    """Let the partition begin at that offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
        settle(deleted)


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settle(admin.create_partitions([NewPartitions(topic, total)])[topic])


def read(spark: SparkSession, form: str, bootstrap: str, **options: object) -> DataFrame:
    frame: DataFrame = with_options(spark.read.format(form), bootstrap, options).load()
    return frame


def stream(spark: SparkSession, form: str, bootstrap: str, **options: object) -> DataFrame:
    frame: DataFrame = with_options(spark.readStream.format(form), bootstrap, options).load()
    return frame


def with_options(door: Any, bootstrap: str, options: Mapping[str, object]) -> Any:
    """A reader or writer of Spark with these options; `_` stands for the dots of Kafka's own."""
    door = door.option("kafka.bootstrap.servers", bootstrap)
    for name, value in options.items():
        door = door.option(name.replace("_", ".") if name.startswith("kafka_") else name, str(value))
    return door


def everything(frame: DataFrame) -> list[tuple[Any, ...]]:
    """All rows with all columns, by topic, partition and offset."""
    rows = frame.collect()
    place = [frame.columns.index(name) for name in ("topic", "partition", "offset")]
    return sorted((_plain(row) for row in rows), key=lambda row: [row[index] for index in place])


def numbers(frame: DataFrame) -> list[tuple[int, int]]:
    """Partition and number of each of the records that `numbered` made, sorted."""
    return sorted(
        (row.partition, int(bytes(row.value))) for row in frame.select("partition", "value").collect()
    )


def run_available(frame: DataFrame, folder: Path, **settings: object) -> StreamingQuery:
    """Read all that is available into the Parquet table `folder / "table"`, with `folder / "checkpoint"`."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "table"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    for name, value in settings.items():
        writer = writer.option(name, str(value))
    return finished(writer.trigger(availableNow=True).start())


def finished(query: StreamingQuery) -> StreamingQuery:
    """The query when it has ended by itself; its error is raised."""
    try:
        assert query.awaitTermination(QUERY_SECONDS_MAX), "the query does not end"
    finally:
        query.stop()
    return query


def run_to_end(*writers: Any) -> None:
    """Write all that is available, with all writers at once. A query that ends because a Python process took
    more than ten seconds to start, which Spark lets nobody change, goes on from its checkpoint."""
    queries = [writer.trigger(availableNow=True).start() for writer in writers]
    for writer, query in zip(writers, queries, strict=True):
        restarts = 0
        while True:
            try:
                finished(query)
                break
            except Exception as failure:
                restarts += 1
                if TOO_SLOW not in str(failure) or restarts > RESTARTS_MAX:
                    raise
            query = writer.trigger(availableNow=True).start()


def row_counts(query: StreamingQuery) -> list[int]:
    """The rows of each micro-batch that had some."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(_plain_value(value) for value in row)


def _plain_value(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return tuple(_plain(each) for each in value)
    return value
