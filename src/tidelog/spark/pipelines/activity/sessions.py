"""Sessions: what one person did without a pause of half an hour, and how far down the funnel it led.

A session is counted in the window in which it *closed*, half an hour after its last event. So a stream can
count it once and for all, and the load of a day needs the day before, never the day after. A night's load
sees the beginning of a session up to a day back.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

PAUSE = "30 minutes"
WINDOW = "1 hour"
SESSION_ITEMS_MAX = 50
"""Of a session only so many items are paired: a robot that views thousands would make millions of pairs."""
STEPS = {"view": 1, "click": 2, "search": 2, "order": 3}
"""Viewed, then engaged, then ordered."""
COUNTED = {"views": "view", "clicks": "click", "searches": "search", "orders": "order"}


def sessions(events: DataFrame) -> DataFrame:
    """user, start, end, closed, views, clicks, searches, orders, revenue, step and the items viewed.

    Works on a batch and, with a watermark on `time`, on a stream in append mode.
    """
    step = F.coalesce(*(F.when(F.col("kind") == kind, F.lit(number)) for kind, number in STEPS.items()))
    event = F.struct("time", step.alias("step"), "kind", "item")
    gathered = events.groupBy("user", F.session_window("time", PAUSE)).agg(
        F.max("time").alias("end"),
        *(F.count_if(F.col("kind") == kind).alias(name) for name, kind in COUNTED.items()),
        F.coalesce(F.sum("total"), F.lit(0)).alias("revenue"),
        F.sort_array(F.collect_list(event)).alias("events"),
    )
    return gathered.select(
        "user",
        F.col("session_window.start").alias("start"),
        "end",
        F.window_time("session_window").alias("closed"),
        *COUNTED,
        "revenue",
        reached("events").alias("step"),
        items_viewed("events").alias("items"),
    )


def reached(events: str) -> Column:
    """The last step of the funnel that was taken in order: 0 for none."""

    def take(so_far: Column, event: Column) -> Column:
        return F.when(event["step"] == so_far + 1, event["step"]).otherwise(so_far)

    return F.aggregate(events, F.lit(0), take)


def items_viewed(events: str) -> Column:
    """Distinct items in the order in which they were first viewed."""
    views = F.filter(events, lambda event: (event["kind"] == "view") & event["item"].isNotNull())
    return F.slice(F.array_distinct(F.transform(views, lambda event: event["item"])), 1, SESSION_ITEMS_MAX)


def funnel(session_frame: DataFrame, window: str = WINDOW) -> DataFrame:
    """How many sessions that closed in each window came how far."""
    counted = session_frame.groupBy(F.window("closed", window)).agg(
        F.count(F.lit(1)).alias("sessions"),
        F.count_if(F.col("step") >= 1).alias("viewed"),
        F.count_if(F.col("step") >= 2).alias("engaged"),
        F.count_if(F.col("step") >= 3).alias("ordered"),
    )
    return counted.select("window.start", "window.end", "sessions", "viewed", "engaged", "ordered")
