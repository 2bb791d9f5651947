"""Tables of Parquet files, one directory per day; a day can be loaded repeatedly.

A load replaces the files of its day only. The content of a row decides its file, not the division of the job,
so that a second load of the same records gives files with the same content.

**Invariant:** a day in the lake is never replaced by fewer records unless requested: when retention has
deleted records that an earlier load has read, the load is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

POSITION = ("topic", "partition", "offset")


class RecordsAreGone(Exception):
    """Retention has deleted records that the lake has for this day."""


def write_day(
    frame: DataFrame, table: str, day: date, spread: Sequence[str], order: Sequence[str], files: int = 1
) -> int:
    """Replace one day of a table; return its number of rows.

    `spread` selects the file of a row, `order` the order within a file.
    """
    counted = Observation()
    placed = frame.repartition(files, *spread).sortWithinPartitions(*order)
    dated = placed.observe(counted, F.count(F.lit(1)).alias("rows")).withColumn("day", F.lit(day))
    writer = dated.write.mode("overwrite").partitionBy("day")
    writer.option("partitionOverwriteMode", "dynamic").parquet(table)
    rows = int(counted.get["rows"])
    if rows == 0:
        # Dynamic overwriting skips a day without rows; remove the old rows explicitly.
        frame.limit(0).write.mode("overwrite").parquet(f"{table}/day={day.isoformat()}")
    return rows


def read_days(
    spark: SparkSession, table: str, first: date | None = None, last: date | None = None
) -> DataFrame:
    """The table between two days, both included."""
    frame = spark.read.parquet(table)
    if first is not None:
        frame = frame.where(F.col("day") >= F.lit(first))
    return frame if last is None else frame.where(F.col("day") <= F.lit(last))


def read_with_day_before(spark: SparkSession, table: str, day: date) -> DataFrame:
    """A day, and the records of the day before that may continue into it."""
    return read_days(spark, table, day - timedelta(days=1), day)


def refuse_to_lose(frame: DataFrame, table: str, day: date) -> None:
    """Fail if the lake has earlier records of a partition for this day than `frame`."""
    try:
        kept = read_days(frame.sparkSession, table, day, day)
    except AnalysisException:
        return  # the first load
    had = kept.groupBy("topic", "partition").agg(F.min("offset").alias("had"))
    has = frame.groupBy("topic", "partition").agg(F.min("offset").alias("has"))
    gone = had.join(has, ["topic", "partition"], "left").where(
        F.col("has").isNull() | (F.col("has") > F.col("had"))
    )
    lost = gone.orderBy("topic", "partition").limit(1).collect()
    if lost:
        topic, partition, offset, now = lost[0]
        begins = f"begin at {now}" if now is not None else "are gone"
        raise RecordsAreGone(
            f"{table} has {day} of {topic}-{partition} from offset {offset} on, but the records to load "
            f"{begins}: retention has removed them, or another topic has that name; "
            "replace the day only if you mean to lose them"
        )
