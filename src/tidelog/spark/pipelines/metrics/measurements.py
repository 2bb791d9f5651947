"""Measurements as rows: name, tags in one order, value, time."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidelog.spark.pipelines.records import Fault, Tolerance, decoded, judged, missing

SCHEMA = "name STRING, tags MAP<STRING, STRING>, value DOUBLE, time BIGINT"


def judged_measurements(raw: DataFrame, tolerance: Tolerance) -> DataFrame:
    """Every record with name, `labels` (its tags as sorted entries), number, `fault` and `late`."""
    tags = F.map_entries("parsed.tags")
    parsed = decoded(raw, SCHEMA).withColumns(
        {
            "name": F.col("parsed.name"),
            "labels": F.array_sort(F.coalesce(tags, F.array_repeat(no_label(), 0))),
            "number": F.col("parsed.value"),
        }
    )
    return judged(parsed, faults(), tolerance)


def no_label() -> Column:
    return F.struct(F.lit("").alias("key"), F.lit("").alias("value"))


def faults() -> list[Fault]:
    keys = F.map_keys("parsed.tags")
    number = F.col("parsed.value")
    return [
        ("name is missing", missing("name")),
        ("value is missing", missing("value")),
        ("value is not finite", F.isnan(number) | (F.abs(number) == F.lit(float("inf")))),
        ("a tag has no value", F.exists(F.map_values("parsed.tags"), lambda value: value.isNull())),
        ("a tag stands twice", F.size(F.array_distinct(keys)) < F.size(keys)),
    ]


def series_name(name: str, labels: str) -> Column:
    """`name{tag=value,…}`: what a series is called in a topic and under a plot."""
    told = F.transform(labels, lambda label: F.concat(label["key"], F.lit("="), label["value"]))
    return F.concat(F.col(name), F.lit("{"), F.array_join(told, ","), F.lit("}"))
