"""From the columns of Spark's Kafka source to parsed rows, and back to key and value.

A record is parsed by an explicit schema and then judged: `fault` says why it is unusable, `late` whether it
arrived too long after it happened. Both depend on the record alone, not on Spark's watermark, so
that streams and batches give the same result, and every rejected record is in a topic.

**Invariant:** no record makes a query fail: an unreadable record gets a fault. With records read in the
order of arrival, the watermark of `Tolerance` never drops a record that is not judged late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody imports it)

KAFKA_COLUMNS = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
UNREADABLE = "_unreadable"
TIME_MS_MAX = 253_402_300_799_999  # the end of the year 9999, Python's last
"""The end of the year 9999: Spark fails a query over a time that it cannot hold."""
DAY_MS = 86_400_000
NO_VALUE = "the value is null"
NOT_TEXT = "the value is not UTF-8"
NOT_SHAPED = "the value is not JSON of the expected shape"
NO_TIME = "time is missing or out of range"
FROM_THE_FUTURE = "time is after the arrival of the record"

Fault = tuple[str, Column]
"""What is wrong, and when."""


@dataclass(frozen=True)
class Tolerance:
    """The maximum delay of a record, and how far a producer's clock may run ahead."""

    late: timedelta = timedelta(minutes=10)
    early: timedelta = timedelta(minutes=5)

    @property
    def watermark(self) -> str:
        """The watermark for Spark: the newest record may be early, the oldest late."""
        return f"{int((self.late + self.early).total_seconds() * 1000)} milliseconds"


def decoded(raw: DataFrame, schema: str) -> DataFrame:
    """The record with its `parsed` value, and `time` as a timestamp."""
    text = F.try_validate_utf8(F.col("value").cast("string"))
    options = {"columnNameOfCorruptRecord": UNREADABLE, "mode": "PERMISSIVE"}
    value = F.from_json(text, f"{schema}, {UNREADABLE} STRING", options)
    # Exploding an array of one element keeps Spark from parsing again for every field in a filter.
    parsed = raw.withColumn("parsed", F.explode(F.array(value)))
    in_range = F.col("parsed.time").between(0, TIME_MS_MAX)
    return parsed.withColumn("time", F.timestamp_millis(F.when(in_range, F.col("parsed.time"))))


def judged(decoded_frame: DataFrame, faults: Sequence[Fault], tolerance: Tolerance) -> DataFrame:
    """Adds `fault` (the first that holds, or null) and `late`."""
    arrived, happened = F.unix_millis("timestamp"), F.unix_millis("time")
    before: list[Fault] = [
        (NO_VALUE, F.col("value").isNull()),
        (NOT_TEXT, F.try_validate_utf8(F.col("value").cast("string")).isNull()),
        (NOT_SHAPED, F.col("parsed").isNull() | F.col(f"parsed.{UNREADABLE}").isNotNull()),
        (NO_TIME, F.col("time").isNull()),
        (FROM_THE_FUTURE, happened - arrived > whole_ms(tolerance.early)),
    ]
    found = [F.when(holds, F.lit(reason)) for reason, holds in [*before, *faults]]
    late = F.coalesce(arrived - happened > whole_ms(tolerance.late), F.lit(False))
    return decoded_frame.withColumn("fault", F.coalesce(*found)).withColumn("late", late)


def whole_ms(duration: timedelta) -> int:
    return int(duration / timedelta(milliseconds=1))


def missing(*fields: str) -> Column:
    """Whether one of these fields is absent or null."""
    first, *others = (F.col(f"parsed.{field}").isNull() for field in fields)
    for other in others:
        first = first | other
    return first


def sound(judged_frame: DataFrame) -> DataFrame:
    """All readable records, late or not: for a batch."""
    return judged_frame.where(F.col("fault").isNull())


def punctual(judged_frame: DataFrame, tolerance: Tolerance) -> DataFrame:
    """The records that a stream counts: readable, not late, with the resulting watermark."""
    on_time = judged_frame.where(F.col("fault").isNull() & ~F.col("late"))
    return on_time.withWatermark("time", tolerance.watermark) if on_time.isStreaming else on_time


def rejected(judged_frame: DataFrame, dead_letters: str, late: str, counters: str) -> DataFrame:
    """The rejected records of a stream, unchanged, with their destination topic and the reason in headers.

    Their number is reported in the query's progress, under the name `counters`.
    """
    is_faulty = F.col("fault").isNotNull()
    counted = judged_frame.observe(
        counters,
        F.count(F.lit(1)).alias("records"),
        F.count_if(is_faulty).alias("dead_letters"),
        F.count_if(~is_faulty & F.col("late")).alias("late"),
    )
    topic = F.when(is_faulty, F.lit(dead_letters)).otherwise(F.lit(late))
    refused = counted.where(is_faulty | F.col("late"))
    return refused.select("key", "value", origin().alias("headers"), topic.alias("topic"))


def origin() -> Column:
    """Headers with a record's origin and its fault."""
    told = {
        "tidelog.reason": F.coalesce("fault", F.lit("late")),
        "tidelog.topic": F.col("topic"),
        "tidelog.partition": F.col("partition").cast("string"),
        "tidelog.offset": F.col("offset").cast("string"),
    }
    return F.array(
        *(
            F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))
            for name, text in told.items()
        )
    )


def dead_letters_by_day(judged_frame: DataFrame) -> DataFrame:
    """Faulty records as a table, by the day of their arrival, the only known day."""
    faulty = judged_frame.where(F.col("fault").isNotNull())
    return faulty.select(
        "topic", "partition", "offset", "timestamp", "key", "value", "fault", day_of("timestamp").alias("day")
    )


def as_records(frame: DataFrame, key: str, *fields: str) -> DataFrame:
    """Key and value for a topic: the value is JSON of the fields, times in milliseconds."""
    times = [name for name, kind in frame.dtypes if kind == "timestamp"]
    told = frame.withColumns({name: F.unix_millis(name) for name in times})
    value = F.to_json(F.struct(*fields), {"ignoreNullFields": "false"})
    return told.select(F.col(key).cast("string").alias("key"), value.alias("value"))


def day_of(time: str | Column) -> Column:
    """The day in UTC, whatever the session's time zone."""
    return F.date_from_unix_date(F.floor(F.unix_millis(time) / DAY_MS).cast("int"))
