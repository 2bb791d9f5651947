"""The activity pipeline as streams, against plain Python."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines.activity import oracle
from tests.spark.pipelines.inputs import Arriving, Row, at_the_end, run_to_end
from tidelog.spark.pipelines.activity.flow import streams
from tidelog.spark.pipelines.activity.pages import PAGES
from tidelog.spark.pipelines.activity.pairs import best
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
from tidelog.spark.pipelines.pipeline import Stream

CLOSING = (
    b'{"user":"closing","time":TIME,"page":"/","item":null,"query":"q","order":"o","total":1,'
    b'"items":[{"item":"closing","quantity":1,"price":1}]}'
)
Value = dict[str, Any]


@pytest.fixture(scope="module")
def queries(
    spark: SparkSession, rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Stream]:
    folder = tmp_path_factory.mktemp("queries")
    arriving = Arriving(spark, [*rows, *at_the_end(rows, b"closing", CLOSING)], folder / "in", files=2)
    return {stream.name: stream for stream in streams(arriving, str(folder / "lake"))}


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
