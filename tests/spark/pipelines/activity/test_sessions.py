"""Sessions and funnels against plain Python."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.spark.pipelines.activity import oracle
from tests.spark.pipelines.inputs import Row, frame_of
from tidelog.spark.pipelines.activity.events import fields, judged_events
from tidelog.spark.pipelines.activity.sessions import SESSION_ITEMS_MAX, funnel, sessions
from tidelog.spark.pipelines.activity.topics import CLICKS, ORDERS, PAGE_VIEWS, SEARCHES
from tidelog.spark.pipelines.records import Tolerance, sound

MINUTE_MS = 60_000


def found_by_spark(spark: SparkSession, rows: list[Row]) -> set[tuple[object, ...]]:
    visits = sessions(fields(sound(judged_events(frame_of(spark, rows), Tolerance()))))
    return {
        tuple(tuple(value) if isinstance(value, list) else value for value in row)
        for row in visits.select(
            "user",
            F.unix_millis("start"),
            F.unix_millis("end"),
            *("views", "clicks", "searches", "orders", "revenue", "step", "items"),
        ).collect()
    }


def found_by_hand(rows: list[Row]) -> set[tuple[object, ...]]:
    return {
        (
            session.user,
            session.start,
            session.end,
            *(session.count(kind) for kind in ("view", "click", "search", "order")),
            session.revenue,
            session.step,
            tuple(session.items),
        )
        for session in oracle.sessions(oracle.read(rows)[0])
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_sessions_are_those_that_plain_python_finds(spark: SparkSession, seed: int) -> None:
    rows = oracle.some_rows(seed)
    expected = found_by_hand(rows)
    assert len(expected) > 100 and len({session[8] for session in expected}) >= 3
    assert found_by_spark(spark, rows) == expected


@pytest.mark.parametrize("seed", [1, 2])
def test_a_funnel_counts_the_sessions_that_closed_in_each_hour(spark: SparkSession, seed: int) -> None:
    rows = oracle.some_rows(seed)
    visits = sessions(fields(sound(judged_events(frame_of(spark, rows), Tolerance()))))
    counted = funnel(visits).select(F.unix_millis("start"), "sessions", "viewed", "engaged", "ordered")
    assert {tuple(row) for row in counted.collect()} == oracle.funnel(oracle.sessions(oracle.read(rows)[0]))


def row_at(topic: str, minute: int, **more: object) -> Row:
    value = {"user": "a", "time": minute * MINUTE_MS, "page": "/", "item": None, "element": "x", "query": "q"}
    if topic == ORDERS:
        value |= {"order": "1", "items": [{"item": "i", "quantity": 1, "price": 5}], "total": 5}
    return Row(topic, 0, minute, b"a", json.dumps(value | more).encode(), minute * MINUTE_MS)


def test_a_pause_of_exactly_half_an_hour_does_not_end_a_session(spark: SparkSession) -> None:
    together = [row_at(PAGE_VIEWS, 0), row_at(PAGE_VIEWS, 30)]
    apart = [row_at(PAGE_VIEWS, 0), row_at(PAGE_VIEWS, 31)]
    assert found_by_spark(spark, together) == found_by_hand(together)
    assert found_by_spark(spark, apart) == found_by_hand(apart)
    assert len(found_by_hand(together)) == 1 and len(found_by_hand(apart)) == 2


FUNNELS = {
    (PAGE_VIEWS,): 1,
    (PAGE_VIEWS, SEARCHES): 2,
    (PAGE_VIEWS, CLICKS, ORDERS): 3,
    (PAGE_VIEWS, ORDERS): 1,
    (CLICKS, PAGE_VIEWS, ORDERS): 1,
    (CLICKS, ORDERS): 0,
    (ORDERS, PAGE_VIEWS, CLICKS): 2,
}


def test_the_steps_of_a_funnel_count_in_their_order_only(spark: SparkSession) -> None:
    rows = [
        row_at(topic, minute, user=str(number))
        for number, topics in enumerate(FUNNELS)
        for minute, topic in enumerate(topics)
    ]
    steps = {session[0]: session[8] for session in found_by_spark(spark, rows)}
    assert steps == {str(number): step for number, step in enumerate(FUNNELS.values())}


def test_a_robot_s_session_is_paired_up_to_a_bound(spark: SparkSession) -> None:
    rows = [row_at(PAGE_VIEWS, minute, item=f"i{minute}") for minute in range(SESSION_ITEMS_MAX + 20)]
    (session,) = found_by_spark(spark, rows)
    assert session[9] == tuple(f"i{minute}" for minute in range(SESSION_ITEMS_MAX))
