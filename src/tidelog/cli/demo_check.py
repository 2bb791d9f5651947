"""The demo's results compared with the truth: tables in the lake, and topics that the streams wrote.

Tables are written exactly once: a row too many or too few fails the demo. The sink writes to topics at least
once: a duplicate record is reported, a missing one fails the demo.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidelog.cli import demo_truth as truth
from tidelog.cli.demo_truth import Sent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.spark.pipelines.runner import Place

TOLERANCE = 1e-9  # of a sum of floats, which depends on the order


@dataclass(frozen=True, slots=True)
class Finding:
    """One number, expected and actual."""

    what: str
    expected: int | float
    found: int | float
    doubled: int = 0
    may_double: bool = False

    @property
    def is_well(self) -> bool:
        is_same = abs(self.found - self.expected) <= TOLERANCE * abs(self.expected)
        return is_same and (self.may_double or self.doubled == 0)


def checked(spark: SparkSession, place: Place, activity: Sent, metrics: Sent) -> Iterator[Finding]:
    yield from check_activity(spark, place, activity)
    yield from check_metrics(spark, place, metrics)


def check_activity(spark: SparkSession, place: Place, sent: Sent) -> Iterator[Finding]:
    lake = f"{place.lake}/activity"
    events = spark.read.parquet(f"{lake}/events")
    counts = {row.topic: row for row in by_topic(events).collect()}
    for topic, expected in sorted(sent.by_topic.items()):
        row = counts.get(topic)
        rows, places = (row.rows, row.places) if row is not None else (0, 0)
        yield Finding(f"table events: {topic}", expected, places, rows - places)
    unreadable = spark.read.parquet(f"{lake}/dead-letters")
    yield Finding("table dead-letters", sent.unreadable.total(), unreadable.count())
    sessions = truth.sessions(sent.events)
    totals = spark.read.parquet(f"{lake}/sessions").selectExpr(
        "count(*) rows", "count(distinct user, start) visits", "sum(revenue)", "count_if(step = 3)"
    )
    rows, visits, revenue, ordered = totals.collect()[0]
    yield Finding("table sessions", len(sessions), visits, rows - visits)
    yield Finding("  revenue in cents", sum(session.revenue for session in sessions), revenue)
    yield Finding("  ended with an order", sum(session.step == 3 for session in sessions), ordered)
    over = truth.closed(truth.sessions(sent.punctual), sent.watermark_ms)
    yield in_topic(spark, place, "activity.sessions", len(over))
    yield in_topic(spark, place, "activity.late", sent.late_count)
    yield in_topic(spark, place, "activity.dead-letters", sent.unreadable.total())


def check_metrics(spark: SparkSession, place: Place, sent: Sent) -> Iterator[Finding]:
    lake = f"{place.lake}/metrics"
    nightly = truth.windows(sent.events)
    live = truth.closed_windows(truth.windows(sent.punctual), sent.watermark_ms)
    for name, windows in (("aggregates", nightly), ("live", live)):
        totals = spark.read.parquet(f"{lake}/{name}").selectExpr(
            "count(*)", "count(distinct series, start)", "sum(count)", "sum(sum)", "sum(p95)"
        )
        rows, places, count, total, p95 = totals.collect()[0]
        values = windows.values()
        yield Finding(f"table {name}: windows", len(windows), places, rows - places)
        yield Finding("  measurements", sum(map(len, values)), count)
        yield Finding("  their sum", sum(map(sum, values)), total)
        yield Finding("  sum of p95", sum(truth.percentile(each, 0.95) for each in values), p95)
    yield in_topic(spark, place, "metrics.aggregates", len(live))
    yield in_topic(spark, place, "metrics.late", sent.late_count)
    yield in_topic(spark, place, "metrics.dead-letters", sent.unreadable.total())


def by_topic(events: DataFrame) -> DataFrame:
    """Rows and distinct offsets, by topic."""
    from pyspark.sql import functions as F  # noqa: N812

    places = F.count_distinct("partition", "offset").alias("places")
    return events.groupBy("topic").agg(F.count(F.lit(1)).alias("rows"), places)


def in_topic(spark: SparkSession, place: Place, topic: str, expected: int) -> Finding:
    """The distinct records of a topic that a stream wrote.

    The headers of rejected records have their origin; two of them may be truncated to the same bytes.
    """
    from pyspark.sql import functions as F  # noqa: N812

    from tidelog.spark.pipelines.runner import Topics

    with_headers = replace(place, options=dict(place.options) | {"includeHeaders": "true"})
    records = Topics(spark, with_headers, is_stream=False)((topic,))
    origin = F.coalesce("headers", F.array())
    counted = records.agg(F.count(F.lit(1)), F.count_distinct("key", "value", origin))
    rows, different = counted.collect()[0]
    return Finding(f"topic {topic}", expected, different, rows - different, may_double=True)
