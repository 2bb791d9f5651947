"""Runs a pipeline: reads its topics by `format("tidelog")`, starts its queries, watches them, loads days.

The caller decides when to poll and when to stop; nothing here knows of a terminal or of signals. Below the
directory of a run:

| path | what |
|---|---|
| `lake/` | the tables of all pipelines |
| `checkpoints/<query>/` | the position of each query |
| `status/<pipeline>.json` | the status of a run, see `status` |

**Invariant:** lag is measured against the present ends on the brokers, not against the ends that a query saw
at the start of its last batch.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from tidelog.client.cluster import LATEST, Cluster
from tidelog.client.errors import ClientError, TopicPartition
from tidelog.spark.pipelines.failures import explained
from tidelog.spark.pipelines.generated import millis
from tidelog.spark.pipelines.lake import RecordsAreGone
from tidelog.spark.pipelines.pipeline import Destination, Pipeline, Stream, start
from tidelog.spark.pipelines.status import QueryStatus

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT = "tidelog"
LOOK_TIMEOUT_MS = 2_000
RATE_SECONDS = 10.0
"""The interval over which rows per second are measured."""
START_SECONDS_MAX = 120.0  # until a query is initialised
RESTARTS_MAX = 20  # of a query whose Python workers connect too late
NAP_SECONDS = 0.05
TOO_SLOW = "Python worker failed to connect back"
SETTINGS = {
    "spark.sql.streaming.stopTimeout": "30s",
    # Failures are reported in one line by the caller.
    "spark.log.level": "OFF",
}
LOCAL_SETTINGS = {
    # Spark's default of 200 is for clusters; each is a state store with its own files.
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
        """The options as properties of a client."""
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
        # Topics that a query writes have rows of attempts that were given up.
        begin = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
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
        self._waiting = [Watched(stream, place.destination, is_once=is_once) for stream in streams]
        self._queries: list[Watched] = []
        self._is_stopped = False
        self._ends = Ends(place.properties, pipeline.topics_in)

    def start(self) -> Iterator[str]:
        """Start one query after the other; yields the name of each when it runs."""
        for query in self._waiting:
            self._queries.append(query)
            query.start()
            yield query.name

    def look(self) -> list[QueryStatus]:
        """The present state of every query."""
        for query in self._queries if not self._is_stopped else ():
            query.mend()
        ends = self._ends.ask()
        return [query.look(ends) for query in self._queries]

    @property
    def is_active(self) -> bool:
        return any(query.is_active for query in self._queries)

    @property
    def failure(self) -> str:
        """The first failure of a query in one line; empty without a failure."""
        return next((error for query in self._queries if (error := query.failure)), "")

    def settle(self) -> None:
        """Wait until all present records are processed, including finished windows, or a query failed."""
        for query in self._queries:
            query.settle()

    def stop(self) -> None:
        """Stop the queries; each continues from its checkpoint at the next start."""
        self._is_stopped = True
        for query in self._queries:
            query.stop()
        self._ends.close()


def is_initialising(query: StreamingQuery) -> bool:
    return str(query.status["message"]).startswith("Initializing")


class Ends:
    """The ends of all partitions of some topics; the last known ones while no broker answers."""

    def __init__(self, properties: Mapping[str, str], topics: Sequence[str]) -> None:
        self._topics = topics
        self._cluster = Cluster({**properties, "default.api.timeout.ms": str(LOOK_TIMEOUT_MS)})
        self._known: dict[TopicPartition, int] = {}
        self._is_closed = False

    def ask(self) -> dict[TopicPartition, int]:
        if self._is_closed:
            return self._known
        try:
            partitions = [
                TopicPartition(topic.name, number)
                for topic in self._cluster.describe(self._topics).values()
                for number in topic.partitions
            ]
            found = self._cluster.list_offsets(dict.fromkeys(partitions, LATEST))
            self._known = {partition: end.offset for partition, end in found.items()}
        except ClientError:
            pass  # the query itself reports problems of the broker
        return self._known

    def close(self) -> None:
        self._is_closed = True
        self._cluster.close()


class Watched:
    """A query, and its progress since it was started.

    Spark gives the Python process of a source or sink ten seconds to start, and otherwise fails the query.
    That may happen at any time on a busy machine; such a query continues from its checkpoint.
    """

    def __init__(self, stream: Stream, to: Destination, *, is_once: bool) -> None:
        self.name = stream.name
        self._stream = stream
        self._to = to
        self._is_once = is_once
        self._query: StreamingQuery | None = None
        self._restarts = 0
        self._done = 0
        self._first: int | None = None
        self._samples: deque[tuple[float, int]] = deque([(time.monotonic(), 0)], maxlen=1_000)

    def start(self) -> None:
        """Start the query; returns when its source runs, so that later starts do not slow it down."""
        self._query = start(self._stream, self._to, self._is_once)
        deadline = time.monotonic() + START_SECONDS_MAX
        while self._query.isActive and is_initialising(self._query) and time.monotonic() < deadline:
            time.sleep(NAP_SECONDS)
        self.mend()

    def mend(self) -> None:
        """Restart the query if it ended only because of that timeout."""
        if self._is_mendable():
            self._restarts += 1
            self.start()

    @property
    def is_active(self) -> bool:
        return self._query is not None and (bool(self._query.isActive) or self._is_mendable())

    def _is_mendable(self) -> bool:
        return TOO_SLOW in self._error() and self._restarts < RESTARTS_MAX

    @property
    def failure(self) -> str:
        error = self._error()
        return f"query {self.name}: {explained(error)}" if error and not self._is_mendable() else ""

    def _error(self) -> str:
        error = self._query.exception() if self._query is not None else None
        return "" if error is None else str(error)

    def settle(self) -> None:
        while self._query is not None and not self.failure:
            try:
                self._query.processAllAvailable()
                return
            except PySparkException:
                self.mend()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def look(self, ends: Mapping[TopicPartition, int]) -> QueryStatus:
        told = self._query.lastProgress if self._query is not None else None
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
            name=self.name,
            is_active=self.is_active,
            rows=self._done,
            rows_per_second=self._rate(),
            lag=sum(lags) if lags else None,
            restarts=self._restarts,
            batch=progress.get("batchId"),
            batch_ms=millis(datetime.fromisoformat(progress["timestamp"])) if progress else None,
            error=self.failure,
        )

    def _count(self, sources: Sequence[Mapping[str, Any]]) -> None:
        """Count rows by offsets: batches may be more frequent than polls."""
        if self._first is None and sources:
            self._first = self._begun_at()
        if self._first is not None:
            self._done = max(sum(ends_of(sources)) - self._first, self._done)

    def _begun_at(self) -> int:
        """The sum of the offsets before the first batch of this run."""
        assert self._query is not None, "it was looked at before it was started"
        sources = json.loads(self._query.recentProgress[0].json)["sources"]
        return sum(ends_of(sources)) - sum(int(source["numInputRows"]) for source in sources)

    def _rate(self) -> float:
        now = time.monotonic()
        self._samples.append((now, self._done))
        while len(self._samples) > 2 and now - self._samples[1][0] >= RATE_SECONDS:
            self._samples.popleft()
        began, done = self._samples[0]
        return (self._done - done) / (now - began) if now > began else 0.0


def ends_of(sources: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    for source in sources:
        yield from positions_in(source.get("endOffset")).values()


def positions_in(offset: Any) -> dict[TopicPartition, int]:
    """The offsets in a progress report: text or JSON by topic, without entries that are no topics."""
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
    """Every day (UTC) on which an existing record arrived."""
    arrived = Topics(spark, place, is_stream=False)(pipeline.topics_in)
    day = F.floor(F.unix_millis("timestamp") / 86_400_000).alias("day")
    numbers = sorted(row.day for row in arrived.select(day).distinct().collect())
    return [datetime.fromtimestamp(number * 86_400, UTC).date() for number in numbers]


def load_day(
    spark: SparkSession, pipeline: Pipeline, place: Place, day: date, *, may_replace: bool = False
) -> dict[str, int]:
    """The rows of each table. Raises `RecordsAreGone` instead of replacing a day by fewer records."""
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
