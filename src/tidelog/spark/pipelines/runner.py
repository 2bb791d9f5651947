"""Runs a pipeline: reads its topics by `format("tidelog")`, starts its queries, watches them, loads days.

Who calls it decides when to look and when to stop; nothing here knows of a terminal or of signals. Below the
directory of a run:

| path | what |
|---|---|
| `lake/` | the tables of all pipelines |
| `checkpoints/<query>/` | where each query goes on |
| `status/<pipeline>.json` | what `status` tells of a run, see `status` |

**Invariant:** lag is measured against the ends that the brokers tell now, not against what a query saw when
it last began a batch.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from tidelog.client.cluster import LATEST, Cluster
from tidelog.client.errors import ClientError, TopicPartition
from tidelog.spark.pipelines.failures import explained
from tidelog.spark.pipelines.generated import millis
from tidelog.spark.pipelines.lake import RecordsAreGone
from tidelog.spark.pipelines.pipeline import Destination, Pipeline, start
from tidelog.spark.pipelines.status import QueryStatus

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT = "tidelog"
LOOK_TIMEOUT_MS = 2_000
RATE_SECONDS = 10.0
"""Rows a second are told over so long."""
SETTINGS = {"spark.sql.streaming.stopTimeout": "30s"}
LOCAL_SETTINGS = {
    # The default of 200 is for clusters; each is a state store with files of its own.
    "spark.sql.shuffle.partitions": "2",
}


@dataclass(frozen=True)
class Place:
    """Where a pipeline reads and writes."""

    bootstrap_servers: str
    directory: str
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the source and the sink."""

    @property
    def lake(self) -> str:
        return f"{self.directory}/lake"

    @property
    def destination(self) -> Destination:
        options = self.kafka_options | dict(self.options)
        return Destination(FORMAT, options, f"{self.directory}/checkpoints")

    @property
    def kafka_options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap_servers}

    @property
    def properties(self) -> dict[str, str]:
        """The same as a client of the brokers takes it."""
        given = {
            name.removeprefix("kafka."): text
            for name, text in self.options.items()
            if name.startswith("kafka.")
        }
        return {"bootstrap.servers": self.bootstrap_servers} | given


@dataclass(frozen=True)
class Topics:
    """Reads topics from their beginning, as a stream or as a batch."""

    spark: SparkSession
    place: Place
    is_stream: bool

    def __call__(self, topics: Sequence[str], since: datetime | None = None) -> DataFrame:
        begin = {"startingOffsets": "earliest"}
        if since is not None and not self.is_stream:
            by_time = {"startingTimestamp": str(millis(since))}
            begin = by_time | {"startingOffsetsByTimestampStrategy": "latest"}
        reader: Any = self.spark.readStream if self.is_stream else self.spark.read
        options = self.place.kafka_options | begin | {"subscribe": ",".join(topics)}
        frame: DataFrame = reader.format(FORMAT).options(**options, **self.place.options).load()
        return frame


class Run:
    """The queries of one pipeline, from their start to their end."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, place: Place, *, is_once: bool) -> None:
        streams = pipeline.streams(Topics(spark, place, is_stream=True), place.lake)
        self._queries = [Watched(start(stream, place.destination, is_once)) for stream in streams]
        self._ends = Ends(place.properties, pipeline.topics_in)

    def look(self) -> list[QueryStatus]:
        """Where every query is, at this moment."""
        ends = self._ends.ask()
        return [query.look(ends) for query in self._queries]

    @property
    def is_active(self) -> bool:
        return any(query.is_active for query in self._queries)

    @property
    def failure(self) -> str:
        """The first failure of a query in one line; empty as long as all is well."""
        return next((error for query in self._queries if (error := query.failure)), "")

    def stop(self) -> None:
        """Stop what runs; each query goes on from there next time."""
        for query in self._queries:
            query.stop()
        self._ends.close()


class Ends:
    """The ends of all partitions of some topics; while nobody answers, those that were told last."""

    def __init__(self, properties: Mapping[str, str], topics: Sequence[str]) -> None:
        self._topics = topics
        self._cluster = Cluster({**properties, "default.api.timeout.ms": str(LOOK_TIMEOUT_MS)})
        self._known: dict[TopicPartition, int] = {}

    def ask(self) -> dict[TopicPartition, int]:
        try:
            partitions = [
                TopicPartition(topic.name, number)
                for topic in self._cluster.describe(self._topics).values()
                for number in topic.partitions
            ]
            found = self._cluster.list_offsets(dict.fromkeys(partitions, LATEST))
            self._known = {partition: end.offset for partition, end in found.items()}
        except ClientError:
            pass  # a query says by itself what it cannot do without a broker
        return self._known

    def close(self) -> None:
        self._cluster.close()


class Watched:
    """A query, and what it has done since it was first looked at."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._done = 0
        self._first: int | None = None
        self._samples: deque[tuple[float, int]] = deque([(time.monotonic(), 0)], maxlen=1_000)

    @property
    def is_active(self) -> bool:
        return bool(self._query.isActive)

    @property
    def failure(self) -> str:
        error = self._query.exception()
        return f"query {self._query.name}: {explained(str(error))}" if error is not None else ""

    def stop(self) -> None:
        self._query.stop()

    def look(self, ends: Mapping[TopicPartition, int]) -> QueryStatus:
        told = self._query.lastProgress
        progress: dict[str, Any] = json.loads(told.json) if told is not None else {}
        sources = progress.get("sources", [])
        done = [positions_in(source.get("endOffset")) for source in sources]
        self._count(sources)
        lags = [
            max(ends.get(partition, offset) - offset, 0)
            for each in done
            for partition, offset in each.items()
        ]
        return QueryStatus(
            name=str(self._query.name),
            is_active=self.is_active,
            rows=self._done,
            rows_per_second=self._rate(),
            lag=sum(lags) if lags else None,
            batch=progress.get("batchId"),
            batch_ms=millis(datetime.fromisoformat(progress["timestamp"])) if progress else None,
            error=self.failure,
        )

    def _count(self, sources: Sequence[Mapping[str, Any]]) -> None:
        """Rows by offsets: looks may be further apart than batches."""
        ended = sum(sum(positions_in(source.get("endOffset")).values()) for source in sources)
        if self._first is None and sources:
            self._first = sum(sum(positions_in(source.get("startOffset")).values()) for source in sources)
        if self._first is not None:
            self._done = max(ended - self._first, self._done)

    def _rate(self) -> float:
        now = time.monotonic()
        self._samples.append((now, self._done))
        while len(self._samples) > 2 and now - self._samples[1][0] >= RATE_SECONDS:
            self._samples.popleft()
        began, done = self._samples[0]
        return (self._done - done) / (now - began) if now > began else 0.0


def positions_in(offset: Any) -> dict[TopicPartition, int]:
    """Offsets as a progress tells them: text or JSON by topic, and what is no topic left out."""
    told = json.loads(offset) if isinstance(offset, str) else offset
    if not isinstance(told, dict):
        return {}
    return {
        TopicPartition(topic, int(number)): int(at)
        for topic, partitions in told.items()
        if topic
        for number, at in partitions.items()
    }


def days_present(spark: SparkSession, pipeline: Pipeline, place: Place) -> list[date]:
    """Every day (UTC) on which a record arrived that is still there."""
    arrived = Topics(spark, place, is_stream=False)(pipeline.topics_in)
    day = F.floor(F.unix_millis("timestamp") / 86_400_000).alias("day")
    numbers = sorted(row.day for row in arrived.select(day).distinct().collect())
    return [datetime.fromtimestamp(number * 86_400, UTC).date() for number in numbers]


def load_day(
    spark: SparkSession, pipeline: Pipeline, place: Place, day: date, *, may_replace: bool = False
) -> dict[str, int]:
    """The rows of each table. Raises `RecordsAreGone` rather than replace a day by less of it."""
    read = Topics(spark, place, is_stream=False)
    return pipeline.batch(read, place.lake, day, replace=may_replace)


__all__ = [
    "LOCAL_SETTINGS",
    "SETTINGS",
    "Place",
    "RecordsAreGone",
    "Run",
    "Topics",
    "days_present",
    "load_day",
]
