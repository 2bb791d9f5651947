"""The type of a pipeline: topics in, streaming queries and a nightly batch, tables and topics out, a page
with plots.

A runner needs no knowledge of a pipeline's internals: `Pipeline.streams` returns the queries to start, each
with its destination, `Pipeline.batch` loads one day into the lake, `Pipeline.report` draws it. The runner
passes in the function that reads topics, so that a pipeline works with any source that has the columns of
Spark's Kafka source.

**Invariant:** streams use output mode append or complete: a Python sink accepts no updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Literal, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.spark.pipelines.generated import Record


class Read(Protocol):
    """Reads topics as a DataFrame with key, value, topic, partition, offset and timestamp."""

    def __call__(self, topics: Sequence[str], since: datetime | None = None) -> DataFrame:
        """Records that arrived before `since` are not needed, but may be returned."""


@dataclass(frozen=True)
class TopicSink:
    """Rows have key and value, perhaps headers; with several topics also `topic`."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class ParquetSink:
    """A table in the lake, with the columns after which its directories are named."""

    path: str
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stream:
    """One streaming query to start; its name is also its directory below the checkpoints."""

    name: str
    frame: DataFrame
    sink: TopicSink | ParquetSink
    output_mode: Literal["append", "complete"] = "append"


@dataclass(frozen=True)
class Destination:
    """What the runner provides: the sink's format and options, the directories."""

    format: str
    options: Mapping[str, str]
    checkpoints: str


class Streams(Protocol):
    def __call__(self, read: Read, lake: str) -> tuple[Stream, ...]: ...


class Batch(Protocol):
    def __call__(self, read: Read, lake: str, day: date, replace: bool = False) -> dict[str, int]:
        """Load one day (UTC) into the lake; the rows of each table. Idempotent."""


class Report(Protocol):
    def __call__(self, spark: SparkSession, lake: str, folder: Path) -> Path:
        """Write a page and its pictures into the folder; the path of the page."""


@dataclass(frozen=True)
class Pipeline:
    name: str
    summary: str
    topics_in: tuple[str, ...]
    topics_out: tuple[str, ...]
    streams: Streams
    batch: Batch
    report: Report
    generate: Callable[..., Iterator[Record]]
    """`generate(seed, users, events, start, duration)`: realistic input."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """The lake's tables and what is in them."""


def start(stream: Stream, to: Destination, once: bool) -> StreamingQuery:
    """Start a query; with `once` it ends when the present records have been read."""
    writer = stream.frame.writeStream.queryName(stream.name).outputMode(stream.output_mode)
    writer = writer.option("checkpointLocation", f"{to.checkpoints}/{stream.name}")
    if once:
        writer = writer.trigger(availableNow=True)
    if isinstance(stream.sink, ParquetSink):
        return writer.format("parquet").partitionBy(*stream.sink.partition_by).start(stream.sink.path)
    if len(stream.sink.topics) == 1:
        writer = writer.option("topic", stream.sink.topics[0])
    return writer.format(to.format).options(**to.options).start()
