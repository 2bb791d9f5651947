"""The activity pipeline as a nightly load of two days, against plain Python and against itself."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.spark.pipelines.activity import oracle
from tests.spark.pipelines.inputs import Row, Topics
from tests.spark.pipelines.test_lake import contents
from tidelog.spark.pipelines.activity.flow import TABLES, load_day
from tidelog.spark.pipelines.activity.report import gather
from tidelog.spark.pipelines.lake import RecordsAreGone
from tidelog.spark.pipelines.registry import PIPELINES

MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)


@pytest.fixture(scope="module")
def loaded(
    spark: SparkSession, rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[dict[str, int]]]:
    """A lake with both days, and how many rows each load told."""
    lake = tmp_path_factory.mktemp("lake")
    return lake, [load_day(Topics(spark, rows), str(lake), day) for day in (MONDAY, TUESDAY)]


def positions(spark: SparkSession, lake: Path) -> list[tuple[str, int, int]]:
    table = spark.read.parquet(str(lake / "activity" / "events"))
    return sorted((row.topic, row.partition, row.offset) for row in table.collect())


def test_a_load_of_each_day_puts_every_event_into_the_lake_once(
    spark: SparkSession, rows: list[Row], loaded: tuple[Path, list[dict[str, int]]]
) -> None:
    lake, counts = loaded
    events, broken = oracle.read(rows)
    assert positions(spark, lake) == sorted(event.row.position for event in events)
    assert sum(tables["dead-letters"] for tables in counts) == len(broken)
    assert set(counts[0]) == set(TABLES)


def test_sessions_over_midnight_are_in_the_lake_once_and_whole(
    spark: SparkSession, rows: list[Row], loaded: tuple[Path, list[dict[str, int]]]
) -> None:
    lake, _ = loaded
    visits = spark.read.parquet(str(lake / "activity" / "sessions"))
    found = visits.select("user", F.unix_millis("start"), F.unix_millis("end")).collect()
    expected = oracle.sessions(oracle.read(rows)[0])
    assert sorted(tuple(row) for row in found) == sorted((one.user, one.start, one.end) for one in expected)
    assert any(session.start < midnight_of(TUESDAY) <= session.end for session in expected)
    funnel = spark.read.parquet(str(lake / "activity" / "funnel"))
    steps = funnel.select(F.unix_millis("start"), "sessions", "viewed", "engaged", "ordered").collect()
    assert {tuple(row) for row in steps} == oracle.funnel(expected)


def midnight_of(day: date) -> int:
    return (day - date(1970, 1, 1)) // timedelta(milliseconds=1)


def test_a_report_is_drawn_from_the_lake(
    spark: SparkSession, rows: list[Row], loaded: tuple[Path, list[dict[str, int]]], tmp_path: Path
) -> None:
    lake, _ = loaded
    events, broken = oracle.read(rows)
    results = gather(spark, str(lake))
    assert (results.totals["events"], results.totals["dead_letters"]) == (len(events), len(broken))
    assert results.hours["sessions"].sum() == len(oracle.sessions(events))
    views = Counter(event.value["page"] for event in events if event.kind == "view")
    first = min(views, key=lambda page: (-views[page], page))
    assert (results.pages["page"].iloc[0], results.pages["views"].iloc[0]) == (first, views[first])
    bought = oracle.best(oracle.bought(events), 3)
    told = zip(results.bought["item"], results.bought["other"], results.bought["count"], strict=True)
    assert all((other, count) in [pair[:2] for pair in bought[item]] for item, other, count in told)
    assert PIPELINES["activity"].report(spark, str(lake), tmp_path).exists()


def test_a_day_loaded_twice_has_the_same_content_in_every_table(
    spark: SparkSession, rows: list[Row], loaded: tuple[Path, list[dict[str, int]]]
) -> None:
    lake, counts = loaded
    before = {name: contents(lake / "activity" / name) for name in TABLES}
    assert load_day(Topics(spark, rows), str(lake), MONDAY) == counts[0]
    assert {name: contents(lake / "activity" / name) for name in TABLES} == before
    assert all(sum(map(len, days["day=2026-03-02"])) for days in before.values())


def test_a_day_whose_records_retention_removed_is_kept(
    spark: SparkSession, rows: list[Row], loaded: tuple[Path, list[dict[str, int]]]
) -> None:
    lake, _ = loaded
    kept = positions(spark, lake)
    with pytest.raises(RecordsAreGone):
        load_day(Topics(spark, rows[200:]), str(lake), MONDAY)
    assert positions(spark, lake) == kept
