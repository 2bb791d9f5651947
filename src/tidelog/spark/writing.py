"""The work of the sink's tasks: Arrow in, record batches out, acknowledged before a task ends.

At least once: a task that Spark repeats writes its rows again. Within one attempt nothing is duplicated or
reordered, whatever the network does.

**Invariant:** a commit message names offsets that are in the log; nothing is sent before the first row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    NullType,
    StringType,
    StructType,
)

from tidelog.client.errors import TopicGone, TopicPartition
from tidelog.spark.options import OptionError, WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client.cluster import Cluster
    from tidelog.client.sender import Sender
    from tidelog.spark.rows import RowEncoder

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """The result of one task: for each partition its first offset and the offset after the last."""

    query_id: str | None
    batch_id: str | None
    task: int
    ends: dict[TopicPartition, tuple[int, int]]


_HEADERS = StructType().add("key", StringType()).add("value", BinaryType())
_TAKEN: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "key": ((StringType, BinaryType), "string or binary"),
    "value": ((StringType, BinaryType), "string or binary"),
    "topic": ((StringType,), "string"),
    "partition": ((IntegerType,), "int"),
    "headers": ((ArrayType,), "array<struct<key:string,value:binary>>"),
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Refuse unusable columns before anything runs; without Arrow, which takes long to load."""
    found: dict[str, DataType] = {}
    for column in schema.fields:
        found.setdefault(column.name, column.dataType)
    if "value" not in found:
        raise OptionError("Required attribute 'value' not found")
    if topic is None and "topic" not in found:
        raise OptionError(
            "topic option required when no 'topic' attribute is present. "
            "Use the topic option for setting a topic."
        )
    for name, (kinds, wanted) in _TAKEN.items():
        kind = found.get(name)
        if kind is None or isinstance(kind, NullType):
            continue
        if not isinstance(kind, kinds) or (isinstance(kind, ArrayType) and not _is_header(kind.elementType)):
            raise OptionError(
                f"{name} attribute unsupported type {kind.simpleString()}. {name} must be a(n) {wanted}"
            )


def _is_header(kind: DataType) -> bool:
    return isinstance(kind, StructType) and [(field.name, field.dataType) for field in kind.fields] == [
        (field.name, field.dataType) for field in _HEADERS.fields
    ]


class _Writing:
    """The common part of batch and stream; created on the driver, copied to each task."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        check_columns(schema, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from tidelog.client.sender import Sender
        from tidelog.spark.reading import cluster_of

        cluster = cluster_of(self._options.properties)
        encoder = self._encoder(lambda topic: _partition_count(cluster, topic))
        sender = Sender(cluster, properties=self._options.properties)
        try:
            for rows in iterator:
                for topic, partition, batch, count in encoder.add(rows):
                    sender.send(TopicPartition(topic, partition), batch, count)
            for topic, partition, batch, count in encoder.finish():
                sender.send(TopicPartition(topic, partition), batch, count)
            sender.flush()
            return _written(sender)
        finally:
            sender.close()

    def _encoder(self, partition_count: Callable[[str], int]) -> RowEncoder:
        from tidelog.protocol.compression import CODECS
        from tidelog.spark.rows import RowEncoder  # loads the compiled loops

        options, context = self._options, TaskContext.get()
        return RowEncoder(
            partition_count=partition_count,
            topic=options.topic,
            codec=CODECS[options.compression_type],
            batch_bytes=options.batch_size,
            now_ms=lambda: time.time_ns() // 1_000_000,
            seed=context.partitionId() if context is not None else 0,
        )


def _partition_count(cluster: Cluster, topic: str) -> int:
    found = cluster.describe([topic]).get(topic)
    if found is None:
        cluster.wake(topic)  # a broker may create topics at the first request
        found = cluster.describe([topic]).get(topic)
    if found is None:
        raise TopicGone(
            f"topic {topic} does not exist; create it, or set auto.create.topics.enable on the broker"
        )
    return len(found.partitions)


def _written(sender: Sender) -> Written:
    context = TaskContext.get()
    if context is None:
        return Written(None, None, 0, sender.ends())
    query_id, batch_id = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    return Written(query_id, batch_id, context.partitionId(), sender.ends())


class BatchWriter(_Writing, DataSourceArrowWriter):
    """`df.write.format("tidelog")`."""


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """`df.writeStream.format("tidelog")`."""
