"""The activity pipeline as streams and as a nightly load, against plain Python and against each other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.spark.pipelines.activity import oracle
from tests.spark.pipelines.inputs import Arriving, Row, Topics, at_the_end, run_to_end
from tests.spark.pipelines.test_lake import contents
from tidelog.spark.pipelines.activity.flow import TABLES, load_day, streams
from tidelog.spark.pipelines.activity.pages import PAGES
from tidelog.spark.pipelines.activity.pairs import best
from tidelog.spark.pipelines.activity.report import gather
from tidelog.spark.pipelines.activity.topics import (
    ALSO_BOUGHT,
    ALSO_VIEWED,
    DEAD_LETTERS,
    FUNNEL,
    LATE,
    SESSIONS,
    TOP_PAGES,
    TOPICS_OUT,
)
from tidelog.spark.pipelines.lake import RecordsAreGone
from tidelog.spark.pipelines.pipeline import Stream
from tidelog.spark.pipelines.registry import PIPELINES

MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)
CLOSING = (
    b'{"user":"closing","time":TIME,"page":"/","item":null,"query":"q","order":"o","total":1,'
    b'"items":[{"item":"closing","quantity":1,"price":1}]}'
)
Value = dict[str, Any]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return oracle.some_rows(11, events=1_500, hours=9)


@pytest.fixture
def queries(spark: SparkSession, rows: list[Row], tmp_path: Path) -> dict[str, Stream]:
    arriving = Arriving(spark, [*rows, *at_the_end(rows, b"closing", CLOSING)], tmp_path / "in", files=3)
    return {stream.name: stream for stream in streams(arriving, str(tmp_path / "lake"))}


def values(stream: Stream, folder: Path) -> list[Value]:
    """What a query sent to its topic; nothing may have been lost to Spark's own watermark."""
    sent, progress = run_to_end(stream, folder)
    states: list[Value] = [state for batch in progress for state in batch["stateOperators"]]  # type: ignore[attr-defined]
    assert sum(state["numRowsDroppedByWatermark"] for state in states) == 0
    told = [json.loads(str(row["value"])) for row in sent]
    assert all(
        str(row["key"]) == str(one.get("user", one.get("item", one["start"])))
        for row, one in zip(sent, told, strict=True)
    )
    return told


def on_time(rows: Sequence[Row]) -> list[oracle.Event]:
    return [event for event in oracle.read(rows)[0] if not event.late]


def test_streamed_sessions_are_those_of_everything_that_came_in_time(
    queries: dict[str, Stream], rows: list[Row], tmp_path: Path
) -> None:
    found = values(queries[SESSIONS], tmp_path)
    expected = oracle.sessions(on_time(rows))
    assert sorted(
        (one["user"], one["start"], one["end"], one["step"], one["items"]) for one in found
    ) == sorted(
        (session.user, session.start, session.end, session.step, session.items) for session in expected
    )
    assert sum(one["revenue"] for one in found) == sum(session.revenue for session in expected) > 0


def test_streamed_funnels_count_every_session_once(
    queries: dict[str, Stream], rows: list[Row], tmp_path: Path
) -> None:
    found = values(queries[FUNNEL], tmp_path)
    told = {(one["start"], one["sessions"], one["viewed"], one["engaged"], one["ordered"]) for one in found}
    assert len(told) == len(found)
    assert told == oracle.funnel(oracle.sessions(on_time(rows)))


def test_streamed_top_pages_are_those_of_each_hour(
    queries: dict[str, Stream], rows: list[Row], tmp_path: Path
) -> None:
    found = values(queries[TOP_PAGES], tmp_path)
    told = {one["start"]: [(page["page"], page["views"]) for page in one["pages"]] for one in found}
    assert told == oracle.top_pages(on_time(rows), PAGES)


def test_streamed_pairs_add_up_to_what_a_batch_counts(
    spark: SparkSession, queries: dict[str, Stream], rows: list[Row], tmp_path: Path
) -> None:
    in_time = on_time(rows)
    viewed, bought = values(queries[ALSO_VIEWED], tmp_path), values(queries[ALSO_BOUGHT], tmp_path)
    assert counted(viewed) == oracle.viewed(oracle.sessions(in_time))
    assert counted(bought) == oracle.bought(in_time)
    told = spark.createDataFrame(viewed, "item STRING, other STRING, count BIGINT")
    firsts = {row.item: (row.other, row["count"], row.share) for row in best(told, 1).collect()}
    expected = oracle.best(oracle.viewed(oracle.sessions(in_time)), 1)
    assert firsts == {item: others[0] for item, others in expected.items()}


def counted(found: list[Value]) -> Counter[tuple[int, str, str]]:
    counts = Counter({(one["start"], one["item"], one["other"]): one["count"] for one in found})
    assert len(counts) == len(found)
    return counts


def test_what_a_stream_does_not_count_goes_to_topics_and_is_counted_there(
    queries: dict[str, Stream], rows: list[Row], tmp_path: Path
) -> None:
    sent, progress = run_to_end(queries["activity.rejected"], tmp_path)
    events, broken = oracle.read(rows)
    late = sum(event.late for event in events)
    assert Counter(row["topic"] for row in sent) == {LATE: late, DEAD_LETTERS: len(broken)} and late > 5
    observed: list[Value] = [batch["observedMetrics"] for batch in progress]  # type: ignore[misc]
    told = [one["activity"] for one in observed if one]
    assert sum(one["late"] for one in told) == late
    assert sum(one["dead_letters"] for one in told) == len(broken)
    assert sum(one["records"] for one in told) >= len(rows)


def test_every_query_appends_to_a_topic_of_the_pipeline(queries: dict[str, Stream]) -> None:
    topics = [topic for stream in queries.values() for topic in stream.sink.topics]  # type: ignore[union-attr]
    assert sorted(topics) == sorted(TOPICS_OUT)
    assert {stream.output_mode for stream in queries.values()} == {"append"}


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
