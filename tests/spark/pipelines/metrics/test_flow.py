"""The metrics pipeline as streams and as a nightly load, against plain Python."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines.inputs import Arriving, Row, Topics, at_the_end, run_to_end
from tests.spark.pipelines.metrics import oracle
from tests.spark.pipelines.metrics.test_aggregates import agree, collected
from tests.spark.pipelines.test_lake import contents
from tidelog.spark.pipelines.lake import RecordsAreGone
from tidelog.spark.pipelines.metrics.flow import TABLES, load_day, streams
from tidelog.spark.pipelines.metrics.report import SERIES_DRAWN, gather
from tidelog.spark.pipelines.metrics.topics import AGGREGATES, DEAD_LETTERS, LATE
from tidelog.spark.pipelines.pipeline import Stream
from tidelog.spark.pipelines.registry import PIPELINES

MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)
CLOSING = b'{"name":"closing","tags":{},"value":1,"time":TIME}'


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return oracle.some_rows(11, events=1_500)


@pytest.fixture
def queries(spark: SparkSession, rows: list[Row], tmp_path: Path) -> dict[str, Stream]:
    arriving = Arriving(spark, [*rows, *at_the_end(rows, b"closing", CLOSING)], tmp_path / "in", files=3)
    return {stream.name: stream for stream in streams(arriving, str(tmp_path / "lake"))}


def in_time(rows: list[Row]) -> dict[tuple[str, int], oracle.Window]:
    return oracle.windows(one for one in oracle.read(rows)[0] if not one.late)


def test_streamed_windows_are_those_of_everything_that_came_in_time(
    queries: dict[str, Stream], rows: list[Row], tmp_path: Path
) -> None:
    sent, progress = run_to_end(queries[AGGREGATES], tmp_path)
    agree([{"series": row["key"], **json.loads(str(row["value"]))} for row in sent], in_time(rows))
    dropped = [state["numRowsDroppedByWatermark"] for batch in progress for state in batch["stateOperators"]]  # type: ignore[attr-defined]
    assert sum(dropped) == 0 and len(progress) >= 3


def test_the_streamed_table_has_the_same_windows_by_day(
    spark: SparkSession, queries: dict[str, Stream], rows: list[Row], tmp_path: Path
) -> None:
    run_to_end(queries["metrics.live"], tmp_path)
    live = spark.read.parquet(str(tmp_path / "lake" / "metrics" / "live"))
    agree(collected(live), in_time(rows))
    assert {row.day for row in live.select("day").distinct().collect()} == {MONDAY, TUESDAY}


def test_late_and_unreadable_measurements_go_to_topics_and_are_counted_there(
    queries: dict[str, Stream], rows: list[Row], tmp_path: Path
) -> None:
    sent, progress = run_to_end(queries["metrics.rejected"], tmp_path)
    measured, broken = oracle.read(rows)
    late = [one.row.value for one in measured if one.late]
    assert Counter(bytes(row["value"]) for row in sent if row["topic"] == LATE) == Counter(late)  # type: ignore[call-overload]
    assert sum(row["topic"] == DEAD_LETTERS for row in sent) == len(broken) > 0
    told = [batch["observedMetrics"]["metrics"] for batch in progress if batch["observedMetrics"]]  # type: ignore[index]
    assert sum(one["late"] for one in told) == len(late) > 5


@pytest.fixture(scope="module")
def loaded(
    spark: SparkSession, rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[dict[str, int]]]:
    """A lake with both days, and how many rows each load told."""
    lake = tmp_path_factory.mktemp("lake")
    return lake, [load_day(Topics(spark, rows), str(lake), day) for day in (MONDAY, TUESDAY)]


def test_a_nightly_load_counts_late_ones_too_and_says_how_many(
    spark: SparkSession, rows: list[Row], loaded: tuple[Path, list[dict[str, int]]]
) -> None:
    lake, counts = loaded
    measured, broken = oracle.read(rows)
    found = collected(spark.read.parquet(str(lake / "metrics" / "aggregates")))
    agree(found, oracle.windows(measured))
    assert sum(int(str(one["late"])) for one in found) == sum(one.late for one in measured)
    assert sum(tables["dead-letters"] for tables in counts) == len(broken)
    offsets = spark.read.parquet(str(lake / "metrics" / "loaded")).collect()
    assert sum(row.rows for row in offsets) == len(measured)


def test_a_report_is_drawn_from_the_lake(
    spark: SparkSession, rows: list[Row], loaded: tuple[Path, list[dict[str, int]]], tmp_path: Path
) -> None:
    lake, _ = loaded
    everything = gather(spark, str(lake))
    assert len(everything.series) == SERIES_DRAWN
    wanted = everything.series[-1]
    one = gather(spark, str(lake), [wanted])
    measured, _ = oracle.read(rows)
    assert one.series == [wanted] and one.totals == everything.totals
    assert one.totals["measurements"] == len(measured)
    assert one.windows["count"].sum() == sum(each.series == wanted for each in measured)
    assert PIPELINES["metrics"].report(spark, str(lake), tmp_path).exists()


def test_a_day_of_metrics_loaded_twice_is_the_same_and_never_less(
    spark: SparkSession, rows: list[Row], loaded: tuple[Path, list[dict[str, int]]]
) -> None:
    lake, counts = loaded
    before = {name: counts_of(lake / "metrics" / name) for name in counts[0]}
    assert load_day(Topics(spark, rows), str(lake), MONDAY) == counts[0]
    assert {name: counts_of(lake / "metrics" / name) for name in counts[0]} == before
    with pytest.raises(RecordsAreGone):
        load_day(Topics(spark, rows[300:]), str(lake), MONDAY)
    load_day(Topics(spark, rows[300:]), str(lake), MONDAY, replace=True)
    assert counts_of(lake / "metrics" / "loaded") != before["loaded"]
    assert set(before) | {"live"} == set(TABLES)


def counts_of(table: Path) -> list[object]:
    """File contents; of sums only what does not depend on the order of adding up."""
    return [
        [tuple(round(value, 6) if isinstance(value, float) else str(value) for value in row) for row in rows]
        for files in contents(table).values()
        for rows in files
    ]
