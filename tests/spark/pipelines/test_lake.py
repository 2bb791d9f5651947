"""Days of the lake, loaded once and again."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tidelog.spark.pipelines.lake import (
    POSITION,
    RecordsAreGone,
    read_days,
    read_with_day_before,
    refuse_to_lose,
    write_day,
)

MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)


def records(spark: SparkSession, *offsets: int) -> DataFrame:
    rows = [("t", offset % 2, offset, f"v{offset}") for offset in offsets]
    return spark.createDataFrame(rows, "topic STRING, partition INT, offset BIGINT, value STRING")


def load(frame: DataFrame, table: Path, day: date) -> int:
    return write_day(frame, str(table), day, POSITION[:2], POSITION, files=2)


def contents(table: Path) -> dict[str, list[list[tuple[object, ...]]]]:
    """What the files of each day hold, file by file, row by row, whatever the files are called."""
    spark = SparkSession.active()
    return {
        folder.name: sorted(
            [tuple(row) for row in spark.read.parquet(str(file)).collect()]
            for file in folder.glob("*.parquet")
        )
        for folder in sorted(table.glob("day=*"))
    }


def test_a_day_loaded_twice_has_files_with_the_same_content(spark: SparkSession, tmp_path: Path) -> None:
    assert load(records(spark, *range(100)).repartition(5), tmp_path, MONDAY) == 100
    first = contents(tmp_path)
    assert load(records(spark, *reversed(range(100))).repartition(3), tmp_path, MONDAY) == 100
    assert contents(tmp_path) == first
    assert sum(map(len, first["day=2026-03-02"])) == 100


def test_loading_a_day_leaves_the_others_alone(spark: SparkSession, tmp_path: Path) -> None:
    load(records(spark, 1, 2), tmp_path, MONDAY)
    kept = {file: file.stat().st_mtime_ns for file in tmp_path.glob("day=2026-03-02/*.parquet")}
    load(records(spark, 3, 4), tmp_path, TUESDAY)
    load(records(spark, 3, 5), tmp_path, TUESDAY)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.glob("day=2026-03-02/*.parquet")} == kept
    both = read_with_day_before(spark, str(tmp_path), TUESDAY).collect()
    assert sorted((row.day, row.offset) for row in both) == [
        (MONDAY, 1),
        (MONDAY, 2),
        (TUESDAY, 3),
        (TUESDAY, 5),
    ]


def test_a_day_that_turned_out_empty_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    load(records(spark, 1, 2), tmp_path, MONDAY)
    assert load(records(spark, 1).limit(0), tmp_path, MONDAY) == 0
    assert read_days(spark, str(tmp_path)).count() == 0


def test_a_day_is_not_replaced_by_less_of_it(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path)
    refuse_to_lose(records(spark, 2), f"{table}/new", MONDAY)
    load(records(spark, 2, 3, 4, 5), tmp_path, MONDAY)
    refuse_to_lose(records(spark, 2, 3, 4, 5, 6), table, MONDAY)
    refuse_to_lose(records(spark, 0, 1), table, MONDAY)
    refuse_to_lose(records(spark, 4, 5), table, TUESDAY)
    with pytest.raises(RecordsAreGone, match=r"2026-03-02 of t-0 from offset 2 on.*begin at 4"):
        refuse_to_lose(records(spark, 4, 5), table, MONDAY)
    with pytest.raises(RecordsAreGone, match=r"t-1 from offset 3 on.*are gone"):
        refuse_to_lose(records(spark, 2, 4), table, MONDAY)
