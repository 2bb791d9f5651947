"""The work of the sink: Arrow in, record batches out, acknowledged before a task ends.

| deliveryGuarantee | a task                            | the driver (`exactly_once`)           |
|-------------------|-----------------------------------|---------------------------------------|
| exactly-once      | leaves its transaction open       | ends the transactions of all tasks    |
| at-least-once     | writes; repeated, it writes again | does nothing                          |

Within one attempt nothing is duplicated or reordered, whatever the network does.

**Invariant:** a commit message names what is in the log; nothing is sent before the first row; a task reads
its rows to the end, for else Spark loses the state of the query.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

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
    from tidelog.spark.exactly_once.decider import Decider, SinkMemory
    from tidelog.spark.exactly_once.tasks import Place, TaskReport
    from tidelog.spark.rows import RowEncoder

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"


@dataclass
class Written(WriterCommitMessage):
    """The result of one task: for each partition its first offset and the offset after the last."""

    query_id: str | None
    batch_id: str | None
    task: int
    ends: dict[TopicPartition, tuple[int, int]]


@dataclass
class InTransaction(WriterCommitMessage):
    """The result of one task whose transaction is open."""

    report: TaskReport


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
        self._planned_ms = time.time_ns() // 1_000_000
        self._job = uuid4().hex
        check_columns(schema, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from tidelog.spark.reading import cluster_of

        cluster = cluster_of(self._options.properties)
        if self._options.is_exactly_once:
            return self._write_in_transaction(iterator, cluster)
        return self._write_at_least_once(iterator, cluster)

    def _write_at_least_once(self, iterator: Iterator[pa.RecordBatch], cluster: Cluster) -> Written:
        from tidelog.client.sender import Sender

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

    def _write_in_transaction(self, iterator: Iterator[pa.RecordBatch], cluster: Cluster) -> InTransaction:
        from tidelog.spark.exactly_once.tasks import SLOTS, TaskTransaction

        options = self._options
        encoder = self._encoder(lambda topic: _partition_count(cluster, topic))
        timeout_ms = options.once.timeout_ms
        transaction = TaskTransaction(cluster, options.properties, self._place(), timeout_ms, SLOTS)
        try:
            for rows in iterator:
                for topic, partition, batch, count in encoder.add(rows):
                    transaction.sender().send(TopicPartition(topic, partition), batch, count)
            for topic, partition, batch, count in encoder.finish():
                transaction.sender().send(TopicPartition(topic, partition), batch, count)
            return InTransaction(transaction.finish(encoder.row_count, encoder.row_sum))
        except BaseException:
            transaction.give_up()
            raise

    def _place(self) -> Place:
        """Where this task stands."""
        from tidelog.spark.exactly_once.tasks import Place

        context = TaskContext.get()
        assert context is not None
        sink_id, run, batch = self._sink(context)
        task, attempt = context.partitionId(), context.attemptNumber()
        return Place(sink_id, run, batch, task, attempt, self._planned_ms)

    def _sink(self, context: TaskContext) -> tuple[str, str, int]:
        """The id of the sink, the run, and the batch that a task belongs to."""
        raise AssertionError("of batch and stream")

    def _decide(
        self, messages: Sequence[WriterCommitMessage | None], batch: int | None, is_abort: bool
    ) -> None:
        """The driver's part."""
        reports = [message.report for message in messages if isinstance(message, InTransaction)]
        if not reports:
            return
        from tidelog.client.errors import ClientError
        from tidelog.spark.exactly_once.stops import SinkStopped
        from tidelog.spark.survey import warn

        decider = _decider(self._options, reports[0].place.sink_id)
        batch = reports[0].place.batch if batch is None else batch
        if not is_abort:
            decider.commit(batch, reports)
            return
        try:
            decider.abort(batch, reports)
        except (ClientError, SinkStopped) as problem:  # Spark reports why it aborts, and not this
            warn(f"batch {batch}: transactions are left open until they time out: {problem}")

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
            sums=options.is_exactly_once,
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

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._decide(messages, None, is_abort=False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if any(isinstance(message, InTransaction) for message in messages):
            self._decide(messages, None, is_abort=True)
        elif self._options.is_exactly_once and not self._is_versioned:
            self._abort_all()

    def _abort_all(self) -> None:
        """No task has reported. Those that Spark has killed leave transactions open, and nobody runs this job
        again: its readers would wait until they time out."""
        from tidelog.client.errors import ClientError
        from tidelog.spark.survey import warn

        try:
            _decider(self._options, self._job_sink).abort(0, [])
        except ClientError as problem:
            warn(f"transactions of the job are left open until they time out: {problem}")

    @property
    def _is_versioned(self) -> bool:
        return self._options.once.app_id is not None and self._options.once.version is not None

    @property
    def _job_sink(self) -> str:
        return f"{self._options.once.id_prefix}-job/{self._job}"

    def _sink(self, context: TaskContext) -> tuple[str, str, int]:
        once = self._options.once
        run = once.run or self._job
        if once.app_id is None or once.version is None:
            return self._job_sink, run, 0
        if once.query_id is not None:  # in foreachBatch
            return f"{once.id_prefix}-{once.query_id}/{once.app_id}", run, once.version
        return f"{once.id_prefix}-{once.app_id}/batch", run, once.version


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """`df.writeStream.format("tidelog")`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._decide(messages, batchId, is_abort=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._decide(messages, batchId, is_abort=True)

    def _sink(self, context: TaskContext) -> tuple[str, str, int]:
        query_id, run = context.getLocalProperty(_QUERY), context.getLocalProperty(_RUN)
        batch = context.getLocalProperty(_BATCH)
        if query_id is None or run is None or batch is None:
            raise OptionError("deliveryGuarantee=exactly-once: the task does not know its query")
        return f"{self._options.once.id_prefix}-{query_id}/stream", run, int(batch)


_memories: dict[str, SinkMemory] = {}  # of this process, by sink; a job's is not kept


def _decider(options: WriteOptions, sink_id: str) -> Decider:
    from tidelog.spark.exactly_once.decider import Clock, Decider, JobDecider, SinkMemory, SinkSettings
    from tidelog.spark.reading import cluster_of
    from tidelog.spark.survey import warn

    once = options.once
    is_job = not options.streaming and once.app_id is None
    is_query = options.streaming or once.query_id is not None
    settings = SinkSettings(
        sink_id=sink_id,
        query=once.query_id or sink_id.removeprefix(f"{once.id_prefix}-").partition("/")[0],
        marker_topic=once.marker_topic or options.topic or "__consumer_offsets",
        timeout_ms=once.timeout_ms,
        delivery_timeout_ms=options.delivery_timeout_ms,
        checkpoint=once.checkpoint if is_query else None,
        is_versioned=not is_query,
        resume_at=once.resume_at,
        torn_batch=once.torn_batch,
        marker=once.marker,
    )
    memory = SinkMemory() if is_job else _memories.setdefault(sink_id, SinkMemory())
    clock = Clock(lambda: time.time_ns() // 1_000_000, time.monotonic)
    return (JobDecider if is_job else Decider)(cluster_of(options.properties), settings, memory, clock, warn)
