"""Spark: `format("tidelog")` and Spark's own Kafka connector, in one session, on one Tidelog broker.

The column that has Kafka's figures elsewhere has those of the connector here.

**Invariant:** a read is timed only after both connectors were seen to read the same; of what is written, the
log end offset is checked each time.
"""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.arena import Sample, Topic, fresh_topic, median_sample
from bench.cases import spark_latency
from bench.load.admin import Admin
from bench.load.batches import HEADER, build_batch
from bench.load.pipeline import BadAnswer, Span
from bench.load.produce import produce_volume
from bench.load.spark_process import SparkProcess, spark_process
from bench.load.spark_queries import HEAP, MASTER, offsets_text
from bench.peers import spark_kafka
from bench.peers.process import PeerMissing, RunningBroker, machine_cpu_seconds
from bench.peers.tidelog import Tidelog
from bench.report import Row, Target
from bench.run import Run, Scale

CONNECTORS = {"Tidelog": "tidelog", "Kafka": "kafka"}
PARTITION_COUNT = 4
BATCH_BYTES = 64_000
WARM_UP_SHARE = 4
WARM_UP_RUNS_MIN = 8
WARM_UP_RUNS_MAX = 12
FASTER = 1.05
MICRO_BATCHES_OF_A_TOPIC = 5
MICRO_BATCHES = 3
METHOD = (
    f"Spark: PySpark, {MASTER}, {HEAP} of heap, the settings of `tidelog.spark.session`; the column of Kafka"
    f" is spark-sql-kafka {spark_kafka.VERSION} in the same session and on the same broker, a Tidelog of its"
    " own; no Apache Kafka takes part; both have the same options, which are the defaults",
    f"Spark: both are warm: each case runs in turns with 1/{WARM_UP_SHARE} of the rows, each connector until"
    f" it gets no more than {FASTER - 1:.0%} faster, {WARM_UP_RUNS_MIN} to {WARM_UP_RUNS_MAX} times; then"
    " they take turns with all rows; the client's CPU is that of driver, JVM and Python workers",
    f"Spark, reads: {PARTITION_COUNT} partitions, filled once with batches of {BATCH_BYTES:,} B before"
    " compression, values something like events in JSON, no keys; sink noop; before that each connector"
    " counts the rows of the topic, adds up their offsets and the bytes of their values, and must agree with"
    " what was produced; MB are those of values, unpacked",
    "Spark, streaming: AvailableNow, maxOffsetsPerTrigger a fifth of the topic (2 M rows of 100 B, 200 k of"
    f" 1,000 B), {MICRO_BATCHES} micro-batches; rows over triggerExecution of all but the first, from the"
    " query's progress",
    f"Spark, writes: {PARTITION_COUNT} tasks, rows computed beforehand and cached, into a topic made for it;"
    " the log end offset is checked; the connector writes at least once beside both guarantees of Tidelog",
    *spark_latency.METHOD,
)


@dataclass(frozen=True)
class Shape:
    """The records of a case: the size of their values, and how many there are for the scale's number."""

    value_size: int
    share: float
    codec: str = "none"

    def rows(self, scale: Scale) -> int:
        return int(scale.spark_rows * self.share)

    @property
    def words(self) -> str:
        return f"{self.value_size:,} B" + (f", {self.codec}" if self.codec != "none" else "")


SMALL, LARGE = Shape(100, 1), Shape(1_000, 0.1)
READS = (
    (SMALL, Target(ratio_min=4)),
    (LARGE, Target(ratio_min=3)),
    (Shape(100, 0.3, "lz4"), None),
    (Shape(100, 0.3, "zstd"), None),
)
STREAMS = ((SMALL, Target(ratio_min=3)), (LARGE, None))
ONCE = Target(ratio_min=1)  # exactly once, beside at least once
WRITES = ((Shape(100, 0.2), Target(ratio_min=1.5)), (Shape(1_000, 0.02), None))
Query = Callable[[str, int], Span]  # by a connector's format, with about so many rows
_numbers = itertools.count()


def require() -> None:
    """Raises `PeerMissing` if there is no PySpark, no Java, or no jar of the connector."""
    if importlib.util.find_spec("pyspark") is None:
        raise PeerMissing("PySpark is not installed: run `make setup`")
    from tidelog.spark.java import JavaMissing, find_java

    try:
        find_java()
    except JavaMissing as problem:
        raise PeerMissing(str(problem)) from problem
    spark_kafka.session_settings()


def run(run: Run) -> list[Row]:
    require()
    with _broker(run) as broker, spark_process(broker.site.directory) as spark:
        contest = Contest(run.scale, broker, spark)
        rows: list[Row] = []
        topics: dict[Shape, Topic] = {}
        for shape, target in READS:
            topics[shape] = contest.fill(shape)
            rows += contest.read_rows(shape, topics[shape], target)
        for shape, target in STREAMS:
            rows += contest.stream_rows(shape, topics[shape], target)
        for shape, target in WRITES:
            rows += contest.write_rows(shape, target)
        return rows + spark_latency.rows(spark, broker, CONNECTORS, run.scale.spark_seconds)


@contextmanager
def _broker(run: Run) -> Iterator[RunningBroker]:
    broker = Tidelog().prepare(run.directory / "spark-Tidelog", {}).spawn()
    try:
        broker.wait_ready()
        yield broker
    finally:
        broker.kill()


class Contest:
    """The two connectors in one session, and a broker for them."""

    def __init__(self, scale: Scale, broker: RunningBroker, spark: SparkProcess) -> None:
        self._scale = scale
        self._broker = broker
        self._spark = spark
        self._bootstrap = f"{broker.host}:{broker.port}"
        self._prepared = (0, 0)

    def fill(self, shape: Shape) -> Topic:
        """A topic with at least the rows that are read of it, as many in each partition."""
        count = (BATCH_BYTES - HEADER.size) // (shape.value_size + 12)
        batch = build_batch(count, shape.value_size, shape.codec)
        topic = Topic(f"spark-{shape.value_size}-{shape.codec}", PARTITION_COUNT, self._broker)
        with Admin(*topic.address) as admin:
            admin.create_topic(topic.name, PARTITION_COUNT)
        batches_each = -(-shape.rows(self._scale) // (PARTITION_COUNT * batch.record_count))
        produce_volume(topic, batch, batches_each * PARTITION_COUNT)
        return topic

    def read_rows(self, shape: Shape, topic: Topic, target: Target | None) -> list[Row]:
        check = partial(self._check_counts, shape, topic)
        samples = self._compare(partial(self._read, topic), shape.rows(self._scale), check)
        return rows_of(f"Spark batch read, {shape.words}", shape, samples, target)

    def stream_rows(self, shape: Shape, topic: Topic, target: Target | None) -> list[Row]:
        samples = self._compare(partial(self._stream, topic), shape.rows(self._scale))
        return rows_of(f"Spark streaming read, {shape.words}", shape, samples, target)

    def write_rows(self, shape: Shape, target: Target | None) -> list[Row]:
        """With Tidelog's guarantee, beside the connector's, which is always at least once."""
        found: list[Row] = []
        for guarantee, least in (("at-least-once", target), ("exactly-once", ONCE)):
            write = partial(self._write, shape.value_size, guarantee)
            samples = self._compare(write, shape.rows(self._scale))
            found += rows_of(f"Spark batch write, {guarantee}, {shape.words}", shape, samples, least)
        return found

    def _compare(
        self, query: Query, rows: int, check: Callable[[], None] = lambda: None
    ) -> dict[str, Sample]:
        """The median sample of each connector, by the name of its column."""
        warm_up(query, rows // WARM_UP_SHARE)
        check()
        taken: dict[str, list[Sample]] = {name: [] for name in CONNECTORS}
        for round_index in range(self._scale.rounds):
            ordered = list(CONNECTORS) if round_index % 2 == 0 else list(CONNECTORS)[::-1]
            for name in ordered:
                taken[name].append(self._timed(query, CONNECTORS[name], rows))
        return {name: median_sample(samples) for name, samples in taken.items()}

    def _timed(self, query: Query, connector: str, rows: int) -> Sample:
        machine, broker, client = machine_cpu_seconds(), self._broker.cpu_seconds(), self._spark.cpu_seconds()
        started = time.perf_counter()
        span = query(connector, rows)
        seconds = time.perf_counter() - started
        machine = machine_cpu_seconds() - machine
        broker, client = self._broker.cpu_seconds() - broker, self._spark.cpu_seconds() - client
        others = max(0.0, machine - broker - client)
        return Sample(span.frames_per_second, client / seconds, broker / seconds, others / seconds)

    def _check_counts(self, shape: Shape, topic: Topic) -> None:
        rows = topic.end_offset()
        each = rows // PARTITION_COUNT
        offsets = PARTITION_COUNT * (each * (each - 1) // 2)
        expected = {"rows": rows, "offsets": offsets, "bytes": rows * shape.value_size}
        for connector in CONNECTORS.values():
            answer = self._ask("count", connector, topic)
            if {name: answer[name] for name in expected} != expected:
                raise BadAnswer(f"{connector} read {answer} of {topic.name}, which has {expected}")

    def _read(self, topic: Topic, connector: str, rows: int) -> Span:
        each = rows // PARTITION_COUNT
        ending = offsets_text(topic.name, [each] * PARTITION_COUNT)
        answer = self._ask("read", connector, topic, options={"endingOffsets": ending})
        return Span(each * PARTITION_COUNT, answer["seconds"], 0.0)

    def _stream(self, topic: Topic, connector: str, rows: int) -> Span:
        """The last micro-batches of the topic, as many as the rows allow."""
        end_each = topic.end_offset() // PARTITION_COUNT
        size_each = end_each // MICRO_BATCHES_OF_A_TOPIC
        count = max(2, min(MICRO_BATCHES, rows // (size_each * PARTITION_COUNT)))
        starting = offsets_text(topic.name, [end_each - count * size_each] * PARTITION_COUNT)
        answer = self._ask(
            "stream",
            connector,
            topic,
            checkpoint=str(self._broker.site.directory / f"checkpoint-{next(_numbers)}"),
            options={"startingOffsets": starting, "maxOffsetsPerTrigger": size_each * PARTITION_COUNT},
        )
        return steady_span(answer["batches"], count * size_each * PARTITION_COUNT)

    def _write(self, value_size: int, guarantee: str, connector: str, rows: int) -> Span:
        if self._prepared != (value_size, rows):
            self._spark.ask("prepare", rows=rows, size=value_size, tasks=PARTITION_COUNT)
            self._prepared = (value_size, rows)
        with fresh_topic(self._broker, PARTITION_COUNT) as topic:
            options = {"deliveryGuarantee": guarantee} if connector == CONNECTORS["Tidelog"] else {}
            answer = self._ask("write", connector, topic, options=options)
            markers_max = PARTITION_COUNT**2 if guarantee == "exactly-once" and options else 0
            if not rows <= topic.end_offset() <= rows + markers_max:
                raise BadAnswer(f"{connector} wrote {rows} rows, and the topic has {topic.end_offset()}")
        return Span(rows, answer["seconds"], 0.0)

    def _ask(self, do: str, connector: str, topic: Topic, **more: Any) -> Mapping[str, Any]:
        return self._spark.ask(do, format=connector, bootstrap=self._bootstrap, topic=topic.name, **more)


def warm_up(query: Query, rows: int) -> None:
    """Run in turns until no connector gets faster any more."""
    rates: dict[str, list[float]] = {connector: [] for connector in CONNECTORS.values()}
    for _ in range(WARM_UP_RUNS_MAX):
        for connector, seen in rates.items():
            if not is_warm(seen):
                seen.append(query(connector, rows).frames_per_second)
        if all(is_warm(seen) for seen in rates.values()):
            return


def is_warm(rates: Sequence[float]) -> bool:
    return len(rates) >= WARM_UP_RUNS_MIN and rates[-1] <= FASTER * max(rates[:-1])


def steady_span(batches: Sequence[tuple[int, float]], expected_rows: int) -> Span:
    """Rows and seconds of all micro-batches but the first."""
    if sum(rows for rows, _ in batches) != expected_rows or len(batches) < 2:
        raise BadAnswer(f"a stream of {expected_rows} rows had micro-batches (rows, seconds) {batches}")
    return Span(sum(rows for rows, _ in batches[1:]), sum(seconds for _, seconds in batches[1:]), 0.0)


def rows_of(case: str, shape: Shape, samples: Mapping[str, Sample], target: Target | None) -> list[Row]:
    """One row as rows, one as bytes."""
    megabytes = {name: Sample(each.value * shape.value_size / 1e6) for name, each in samples.items()}
    return [
        Row(case, "rows/s", samples["Tidelog"], samples["Kafka"], target),
        Row(case, "MB/s", megabytes["Tidelog"], megabytes["Kafka"]),
    ]
