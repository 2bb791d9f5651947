"""What a pipeline is: topics in, streaming queries and a nightly batch, tables and topics out, a page with
plots.

Whoever runs one needs nothing of its inside: `Pipeline.streams` gives the queries to start, each with the
place it writes to, `Pipeline.batch` loads one day into the lake, `Pipeline.report` draws it. Topics are
read by a function that the runner passes in, so that a pipeline works with any source that has the columns
of Spark's Kafka source.

**Invariant:** streams append (or are complete): a Python sink takes no updates.
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
        """Of records that arrived before `since` none is needed; they may be given all the same."""


@dataclass(frozen=True)
class TopicSink:
    """Rows have key and value, perhaps headers; with several topics also `topic`."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class ParquetSink:
    """A table below the lake, with the columns its directories are named after."""

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
    """What the runner knows and a pipeline does not: the sink's format and options, the directories."""

    format: str
    options: Mapping[str, str]
    checkpoints: str


class Streams(Protocol):
    def __call__(self, read: Read, lake: str) -> tuple[Stream, ...]: ...


class Batch(Protocol):
    def __call__(self, read: Read, lake: str, day: date, replace: bool = False) -> dict[str, int]:
        """Loads one day (UTC) into the lake; gives the rows of each table. Twice is as good as once."""


class Report(Protocol):
    def __call__(self, spark: SparkSession, lake: str, folder: Path) -> Path:
        """Writes a page and its pictures into the folder; gives the page."""


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
    """`generate(seed, users, events, start, duration)`: believable input."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """The lake's tables and what is in them."""


def start(stream: Stream, to: Destination, once: bool) -> StreamingQuery:
    """Starts a query; with `once` it ends when what is there has been read."""
    writer = stream.frame.writeStream.queryName(stream.name).outputMode(stream.output_mode)
    writer = writer.option("checkpointLocation", f"{to.checkpoints}/{stream.name}")
    if once:
        writer = writer.trigger(availableNow=True)
    if isinstance(stream.sink, ParquetSink):
        return writer.format("parquet").partitionBy(*stream.sink.partition_by).start(stream.sink.path)
    if len(stream.sink.topics) == 1:
        writer = writer.option("topic", stream.sink.topics[0])
    return writer.format(to.format).options(**to.options).start()
