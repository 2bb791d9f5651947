"""From the columns of Spark's Kafka source to parsed rows, and back to key and value.

A record is read by an explicit schema and then judged by itself: `fault` says why it cannot be used, `late`
whether it arrived too long after it happened. Both depend on the record alone, not on Spark's watermark, so
that a stream and a batch judge alike and every record that is not counted is found again in a topic.

**Invariant:** no record makes a query fail: what cannot be read becomes a fault. With records read in the
order of arrival, the watermark of `Tolerance` never drops one that was not judged late before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody imports it)

KAFKA_COLUMNS = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
UNREADABLE = "_unreadable"
TIME_MS_MAX = 253_402_300_799_999
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
    """How long after it happened a record may arrive, and how far a producer's clock may run ahead."""

    late: timedelta = timedelta(minutes=10)
    early: timedelta = timedelta(minutes=5)

    @property
    def watermark(self) -> str:
        """Enough for Spark's own watermark: what is newest may be early, what is oldest late."""
        return f"{int((self.late + self.early).total_seconds() * 1000)} milliseconds"


def decoded(raw: DataFrame, schema: str) -> DataFrame:
    """The record with its `parsed` value, and `time` as a timestamp."""
    text = F.try_validate_utf8(F.col("value").cast("string"))
    options = {"columnNameOfCorruptRecord": UNREADABLE, "mode": "PERMISSIVE"}
    value = F.from_json(text, f"{schema}, {UNREADABLE} STRING", options)
    # Exploding an array of one keeps Spark from parsing again for every field that a filter asks for.
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
    """Whether one of these fields of the value is absent or null."""
    first, *others = (F.col(f"parsed.{field}").isNull() for field in fields)
    for other in others:
        first = first | other
    return first


def sound(judged_frame: DataFrame) -> DataFrame:
    """All that can be read, late or not: for a batch, which waits for everybody."""
    return judged_frame.where(F.col("fault").isNull())


def punctual(judged_frame: DataFrame, tolerance: Tolerance) -> DataFrame:
    """What a stream counts: sound, not late, and with the watermark that follows from it."""
    on_time = judged_frame.where(F.col("fault").isNull() & ~F.col("late"))
    return on_time.withWatermark("time", tolerance.watermark) if on_time.isStreaming else on_time


def rejected(judged_frame: DataFrame, dead_letters: str, late: str, counters: str) -> DataFrame:
    """The records that a stream does not count, as they came, with the topic each goes to and why in its
    headers.

    How many of what there were is told with the progress of the query, under the name `counters`.
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
    """Headers that tell where a record was and what was wrong with it."""
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
    """Faulty records as a table, by the day of their arrival: they have no other."""
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
