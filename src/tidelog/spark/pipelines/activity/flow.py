"""The activity pipeline put together: its streaming queries, and the load of one day into the lake.

The stream leaves out what arrives more than ten minutes late and sends it to a topic of its own; the
nightly load counts it. Run a day again when more of it has come: the second load replaces the first.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidelog.spark.pipelines.activity.events import fields, judged_events
from tidelog.spark.pipelines.activity.pages import top_pages
from tidelog.spark.pipelines.activity.pairs import bought_together, viewed_together
from tidelog.spark.pipelines.activity.sessions import COUNTED, funnel, sessions
from tidelog.spark.pipelines.activity.topics import (
    ALSO_BOUGHT,
    ALSO_VIEWED,
    DEAD_LETTERS,
    FUNNEL,
    LATE,
    ORDERS,
    PAGE_VIEWS,
    SESSIONS,
    TOP_PAGES,
    TOPICS_IN,
)
from tidelog.spark.pipelines.lake import POSITION, read_days, read_with_day_before, refuse_to_lose, write_day
from tidelog.spark.pipelines.pipeline import Read, Stream, TopicSink
from tidelog.spark.pipelines.records import (
    Tolerance,
    as_records,
    day_of,
    dead_letters_by_day,
    punctual,
    rejected,
    sound,
)

TOLERANCE = Tolerance()
EVENT_FILES = 4
PAIR = ("start", "end", "item", "other", "count")
TABLES = {
    "events": "every event with its topic, partition and offset",
    "dead-letters": "records that cannot be read, and why, by the day they arrived",
    "sessions": "sessions by the day they closed",
    "top-pages": "the most viewed pages of each hour",
    "funnel": "how far the sessions that closed in each hour came",
    "also-viewed": "pairs of items viewed in one session, with counts",
    "also-bought": "pairs of items in one order, with counts",
}


def table(lake: str, name: str) -> str:
    return f"{lake}/activity/{name}"


def streams(read: Read, lake: str) -> tuple[Stream, ...]:
    """Everything goes to topics; the lake is filled by night."""
    judged = judged_events(read(TOPICS_IN), TOLERANCE)
    visits = sessions(events_on_time(read, TOPICS_IN))
    pages = top_pages(events_on_time(read, (PAGE_VIEWS,)))
    bought = bought_together(events_on_time(read, (ORDERS,)))
    visit = ("user", "start", "end", *COUNTED, "revenue", "step", "items")
    steps = ("start", "end", "sessions", "viewed", "engaged", "ordered")
    return (
        to_topic(SESSIONS, as_records(visits, "user", *visit)),
        to_topic(TOP_PAGES, as_records(pages, "start", "start", "end", "pages")),
        to_topic(FUNNEL, as_records(funnel(visits), "start", *steps)),
        to_topic(ALSO_VIEWED, as_records(viewed_together(visits), "item", *PAIR)),
        to_topic(ALSO_BOUGHT, as_records(bought, "item", *PAIR)),
        Stream(
            "activity.rejected",
            rejected(judged, DEAD_LETTERS, LATE, "activity"),
            TopicSink((DEAD_LETTERS, LATE)),
        ),
    )


def to_topic(topic: str, frame: DataFrame) -> Stream:
    return Stream(topic, frame, TopicSink((topic,)))


def events_on_time(read: Read, topics: tuple[str, ...]) -> DataFrame:
    return fields(punctual(judged_events(read(topics), TOLERANCE), TOLERANCE))


def load_day(read: Read, lake: str, day: date, replace: bool = False) -> dict[str, int]:
    """Loads the events that happened on a day, and what follows from them and the day before."""
    since = datetime.combine(day, time(), UTC) - TOLERANCE.early
    judged = judged_events(read(TOPICS_IN, since), TOLERANCE)
    happened = fields(sound(judged)).where(day_of("time") == F.lit(day))
    unreadable = dead_letters_by_day(judged).where(F.col("day") == F.lit(day)).drop("day")
    if not replace:
        refuse_to_lose(happened, table(lake, "events"), day)
    spread = POSITION[:2]
    rows = {
        "events": write_day(happened, table(lake, "events"), day, spread, POSITION, EVENT_FILES),
        "dead-letters": write_day(unreadable, table(lake, "dead-letters"), day, spread, POSITION),
    }
    return rows | derive_day(happened, lake, day)


def derive_day(happened: DataFrame, lake: str, day: date) -> dict[str, int]:
    """The tables that are made from the lake's own events."""
    spark = happened.sparkSession
    recent = read_with_day_before(spark, table(lake, "events"), day).drop("day")
    closed = sessions(recent).where(day_of("closed") == F.lit(day))
    rows = {"sessions": write_day(closed, table(lake, "sessions"), day, ("user",), ("user", "start"))}
    visits = read_days(spark, table(lake, "sessions"), day, day).drop("day")
    today = read_days(spark, table(lake, "events"), day, day).drop("day")
    pairs = ("start", "item", "other")
    for name, frame, order in (
        ("funnel", funnel(visits), ("start",)),
        ("top-pages", top_pages(today), ("start",)),
        ("also-viewed", viewed_together(visits), pairs),
        ("also-bought", bought_together(today), pairs),
    ):
        rows[name] = write_day(frame, table(lake, name), day, order[:1], order)
    return rows
