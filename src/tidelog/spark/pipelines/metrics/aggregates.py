"""Windowed count, sum, minimum, maximum and percentiles of every series.

A percentile is the smallest measured value that as many are not above. Its rank is off by at most a
ten-thousandth of the count, so that up to some ten thousand measurements in a window it is exact.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidelog.spark.pipelines.metrics.measurements import series_name

WINDOW = "1 minute"
ACCURACY = 10_000
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def aggregates(measurements: DataFrame, window: str = WINDOW) -> DataFrame:
    """series, name, tags, start, end, count, late, sum, min, max, p50, p95, p99.

    `late` tells how many of the count a stream left out: none, if it is given what a stream counts.
    """
    percentiles = F.percentile_approx("number", list(PERCENTILES.values()), ACCURACY)
    counted = measurements.groupBy(F.window("time", window), "name", "labels").agg(
        F.count(F.lit(1)).alias("count"),
        F.count_if("late").alias("late"),
        F.sum("number").alias("sum"),
        F.min("number").alias("min"),
        F.max("number").alias("max"),
        percentiles.alias("percentiles"),
    )
    return counted.select(
        series_name("name", "labels").alias("series"),
        "name",
        F.map_from_entries("labels").alias("tags"),
        "window.start",
        "window.end",
        *("count", "late", "sum", "min", "max"),
        *(F.col("percentiles")[index].alias(name) for index, name in enumerate(PERCENTILES)),
    )
