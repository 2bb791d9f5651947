"""Windows of measurements against plain Python."""

from __future__ import annotations

import math

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.spark.pipelines.inputs import frame_of
from tests.spark.pipelines.metrics import oracle
from tidelog.spark.pipelines.metrics.aggregates import PERCENTILES, aggregates
from tidelog.spark.pipelines.metrics.measurements import judged_measurements
from tidelog.spark.pipelines.records import Tolerance, sound


def agree(found: list[dict[str, object]], expected: dict[tuple[str, int], oracle.Window]) -> None:
    assert {(one["series"], one["start"]) for one in found} == set(expected)
    assert len(found) == len(expected)
    for one in found:
        window = expected[str(one["series"]), int(str(one["start"]))]
        assert one["count"] == len(window.numbers)
        assert (one["min"], one["max"]) == (min(window.numbers), max(window.numbers))
        assert math.isclose(float(str(one["sum"])), math.fsum(window.numbers), rel_tol=1e-9)
        for name, share in PERCENTILES.items():
            assert one[name] == window.percentile(share), name


def collected(windows: DataFrame) -> list[dict[str, object]]:
    told = windows.withColumns({"start": F.unix_millis("start"), "end": F.unix_millis("end")})
    return [row.asDict(recursive=True) for row in told.collect()]


@pytest.mark.parametrize(("seed", "minutes"), [(1, 1), (2, 60)])
def test_windows_are_those_that_plain_python_finds(spark: SparkSession, seed: int, minutes: int) -> None:
    rows = oracle.some_rows(seed)
    measured = sound(judged_measurements(frame_of(spark, rows), Tolerance()))
    found = collected(aggregates(measured, f"{minutes} minutes"))
    expected = oracle.windows(oracle.read(rows)[0], minutes * oracle.MINUTE_MS)
    agree(found, expected)
    assert sum(int(str(one["late"])) for one in found) == sum(window.late for window in expected.values()) > 5
    assert all(list(one["tags"]) == sorted(one["tags"]) for one in found)  # type: ignore[call-overload]


def test_a_percentile_of_very_many_is_off_by_a_ten_thousandth_of_ranks_at_most(spark: SparkSession) -> None:
    count = 200_000
    numbers = spark.range(count).select(
        F.timestamp_millis(F.lit(0)).alias("time"),
        F.lit("n").alias("name"),
        F.array().cast("array<struct<key:string,value:string>>").alias("labels"),
        ((F.col("id") * 7_919) % count).cast("double").alias("number"),
        F.lit(False).alias("late"),
    )
    (window,) = aggregates(numbers).collect()
    for name, share in PERCENTILES.items():
        assert abs(window[name] - share * count) <= count / 10_000 + 1
