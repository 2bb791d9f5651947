"""The metrics pipeline put together: its streaming queries, and the load of one day into the lake.

The stream leaves out what arrives more than ten minutes late and sends it to a topic of its own; the
nightly load counts it and says how many there were in each window.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidelog.spark.pipelines.lake import POSITION, refuse_to_lose, write_day
from tidelog.spark.pipelines.metrics.aggregates import PERCENTILES, aggregates
from tidelog.spark.pipelines.metrics.measurements import judged_measurements
from tidelog.spark.pipelines.metrics.topics import AGGREGATES, DEAD_LETTERS, LATE, TOPICS_IN
from tidelog.spark.pipelines.pipeline import ParquetSink, Read, Stream, TopicSink
from tidelog.spark.pipelines.records import (
    Tolerance,
    as_records,
    day_of,
    dead_letters_by_day,
    punctual,
    rejected,
    sound,
)

TOLERANCE = Tolerance()
AGGREGATE = ("name", "tags", "start", "end", "count", "sum", "min", "max", *PERCENTILES)
TABLES = {
    "live": "windows as the stream closes them, without what came too late",
    "aggregates": "windows as the nightly load sees them, with all that came",
    "loaded": "which offsets of each partition a day was made from",
    "dead-letters": "records that cannot be read, and why, by the day they arrived",
}


def table(lake: str, name: str) -> str:
    return f"{lake}/metrics/{name}"


def streams(read: Read, lake: str) -> tuple[Stream, ...]:
    judged = judged_measurements(read(TOPICS_IN), TOLERANCE)
    windows = aggregates(punctual(judged, TOLERANCE))
    dated = windows.drop("late").withColumn("day", day_of("start"))
    return (
        Stream(AGGREGATES, as_records(windows, "series", *AGGREGATE), TopicSink((AGGREGATES,))),
        Stream("metrics.live", dated, ParquetSink(table(lake, "live"), ("day",))),
        Stream(
            "metrics.rejected",
            rejected(judged, DEAD_LETTERS, LATE, "metrics"),
            TopicSink((DEAD_LETTERS, LATE)),
        ),
    )


def load_day(read: Read, lake: str, day: date, replace: bool = False) -> dict[str, int]:
    """Aggregates what was measured on a day, late or not."""
    since = datetime.combine(day, time(), UTC) - TOLERANCE.early
    judged = judged_measurements(read(TOPICS_IN, since), TOLERANCE)
    measured = sound(judged).where(day_of("time") == F.lit(day))
    unreadable = dead_letters_by_day(judged).where(F.col("day") == F.lit(day)).drop("day")
    if not replace:
        refuse_to_lose(measured, table(lake, "loaded"), day)
    series, spread = ("series", "start"), POSITION[:2]
    return {
        "aggregates": write_day(aggregates(measured), table(lake, "aggregates"), day, ("series",), series),
        "loaded": write_day(positions(measured), table(lake, "loaded"), day, spread, spread),
        "dead-letters": write_day(unreadable, table(lake, "dead-letters"), day, spread, POSITION),
    }


def positions(measured: DataFrame) -> DataFrame:
    """topic, partition, first `offset`, `last_offset` and rows."""
    return measured.groupBy("topic", "partition").agg(
        F.min("offset").alias("offset"),
        F.max("offset").alias("last_offset"),
        F.count(F.lit(1)).alias("rows"),
    )
