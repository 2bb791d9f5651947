"""A page about website activity: sessions over time, the funnel, top pages, what goes together.

`gather` takes the small results out of the lake, `pictures` draws them, `write` puts the page and its PNGs
into a folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidelog.spark.pipelines.activity.flow import table
from tidelog.spark.pipelines.activity.pairs import best, merged
from tidelog.spark.pipelines.document import Section, Table, page
from tidelog.spark.pipelines.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    VIOLET,
    Picture,
    count_axis,
    moments,
    picture,
    ranked_bars,
    short_number,
    stacked_bars,
    time_axis,
)
from tidelog.spark.pipelines.lake import read_days

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
HOURLY_BARS_MAX = 96  # four days; of more, a bar is a day
PAGES_DRAWN = 15
PAIRS_DRAWN = 12
ITEMS_LISTED = 15
STEPS = (
    ("sessions", "sessions"),
    ("viewed", "viewed a page"),
    ("engaged", "clicked or searched"),
    ("ordered", "ordered"),
)


@dataclass(frozen=True)
class Results:
    """What the page shows, small enough for one machine. Times are in milliseconds."""

    totals: dict[str, int]
    """events, users, dead_letters, revenue (cents) and seconds (median length of a session)."""
    hours: pd.DataFrame
    """start, sessions, viewed, engaged, ordered"""
    pages: pd.DataFrame
    """page, views"""
    viewed: pd.DataFrame
    """item, rank, other, count, share"""
    bought: pd.DataFrame
    """The same."""


def gather(spark: SparkSession, lake: str) -> Results:
    def days(name: str) -> DataFrame:
        return read_days(spark, table(lake, name))

    length = F.median(F.unix_millis("end") - F.unix_millis("start")) / 1000
    visits = days("sessions").agg(
        F.count_distinct("user"), F.coalesce(F.sum("revenue"), F.lit(0)), F.coalesce(length, F.lit(0))
    )
    users, revenue, seconds = visits.collect()[0]
    steps = [name for name, _ in STEPS]
    hours = days("funnel").select(F.unix_millis("start").alias("start"), *steps).orderBy("start")
    pages = (
        days("events").where(F.col("kind") == "view").groupBy("page").agg(F.count(F.lit(1)).alias("views"))
    )
    counts = {"events": days("events").count(), "dead_letters": days("dead-letters").count()}
    return Results(
        counts | {"users": users, "revenue": revenue, "seconds": int(seconds)},
        hours.toPandas(),
        pages.orderBy(F.desc("views"), "page").limit(PAGES_DRAWN).toPandas(),
        strongest(days("also-viewed")).toPandas(),
        strongest(days("also-bought")).toPandas(),
    )


def strongest(counts: DataFrame) -> DataFrame:
    """The best companions of the most frequent items."""
    alone = merged(counts).where(F.col("item") == F.col("other"))
    listed = (
        alone.orderBy(F.desc("count"), "item").limit(ITEMS_LISTED).select("item", F.col("count").alias("all"))
    )
    return best(counts, 3).join(listed, "item").orderBy(F.desc("all"), "item", "rank").drop("all")


def write(results: Results, folder: Path) -> Path:
    """The page; beside it a PNG of every picture."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = pictures(results)
    for one in drawn.values():
        one.write(folder)
    path = folder / "activity.html"
    path.write_text(document(results, drawn), "utf-8")
    return path


def report(spark: SparkSession, lake: str, folder: Path) -> Path:
    return write(gather(spark, lake), folder)


def pictures(results: Results) -> dict[str, Picture]:
    drawn = (
        picture(
            "activity-sessions", "Sessions over time", (10, 3.4), lambda f: draw_sessions(f, results.hours)
        ),
        picture("activity-funnel", "Funnel", (10, 2.3), lambda f: draw_funnel(f, results.hours)),
        picture("activity-pages", "Top pages", (10, 4.2), lambda f: draw_pages(f, results.pages)),
        picture(
            "activity-also-viewed",
            "Viewed together",
            (10, 3.6),
            lambda f: draw_pairs(f, results.viewed, VIOLET),
        ),
        picture(
            "activity-also-bought",
            "Bought together",
            (10, 3.6),
            lambda f: draw_pairs(f, results.bought, ORANGE),
        ),
    )
    return {one.name: one for one in drawn}


def draw_sessions(figure: Figure, hours: pd.DataFrame) -> None:
    axes = figure.add_subplot()
    width_ms = HOUR_MS if len(hours) <= HOURLY_BARS_MAX else DAY_MS
    gathered = hours.groupby(hours["start"] // width_ms * width_ms).sum()
    parts = (
        ("looked", gathered["sessions"] - gathered["engaged"], BLUE),
        ("clicked or searched", gathered["engaged"] - gathered["ordered"], GREEN),
        ("ordered", gathered["ordered"], ORANGE),
    )
    times = moments(gathered.index.to_numpy(np.int64))
    stacked_bars(
        axes, times, width_ms, [(label, heights.to_numpy(), colour) for label, heights, colour in parts]
    )
    time_axis(axes, times)
    count_axis(axes, f"sessions that closed, by {'hour' if width_ms == HOUR_MS else 'day'}")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0, handlelength=1)


def draw_funnel(figure: Figure, hours: pd.DataFrame) -> None:
    counts = [int(hours[name].sum()) for name, _ in STEPS]
    shares = [f"{short_number(count)}   {percent(count, counts[0])}" for count in counts]
    ranked_bars(figure.add_subplot(), [label for _, label in STEPS], counts, shares, BLUE)


def draw_pages(figure: Figure, pages: pd.DataFrame) -> None:
    views = [int(count) for count in pages["views"]]
    ranked_bars(
        figure.add_subplot(), list(pages["page"]), views, [short_number(count) for count in views], BLUE
    )


def draw_pairs(figure: Figure, pairs: pd.DataFrame, colour: str) -> None:
    rows = strongest_pairs(pairs)
    labels = [f"{item} + {other}" for item, other, _, _ in rows]
    told = [f"{short_number(count)}   {share:.0%}" for _, _, count, share in rows]
    ranked_bars(figure.add_subplot(), labels, [count for _, _, count, _ in rows], told, colour)


def strongest_pairs(pairs: pd.DataFrame) -> list[tuple[str, str, int, float]]:
    """Every pair once, the most frequent first, with the larger of its two shares."""
    found: dict[frozenset[str], tuple[str, str, int, float]] = {}
    columns = (pairs["item"], pairs["other"], pairs["count"], pairs["share"])
    for item, other, count, share in zip(*columns, strict=True):
        known = found.get(frozenset((item, other)))
        if known is None or share > known[3]:
            found[frozenset((item, other))] = (item, other, int(count), float(share))
    return sorted(found.values(), key=lambda row: (-row[2], row[0], row[1]))[:PAIRS_DRAWN]


def percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def companions(pairs: pd.DataFrame, what: str) -> Table:
    """A row for each item, its companions beside each other."""
    rows = [
        (
            str(item),
            *(f"{row.other} ({row.share:.0%})" for row in theirs.sort_values("rank").itertuples()),
        )
        for item, theirs in pairs.groupby("item", sort=False)
    ]
    return Table((what, "first", "second", "third"), [tuple([*row, "", "", ""][:4]) for row in rows])


def document(results: Results, drawn: dict[str, Picture]) -> str:
    hours = results.hours
    sessions, ordered = int(hours["sessions"].sum()), int(hours["ordered"].sum())
    facts = [
        ("events", f"{results.totals['events']:,}"),
        ("users", f"{results.totals['users']:,}"),
        ("sessions", f"{sessions:,}"),
        ("ended with an order", percent(ordered, sessions)),
        ("revenue", f"{results.totals['revenue'] / 100:,.0f}"),
        ("median session", f"{results.totals['seconds'] // 60} min {results.totals['seconds'] % 60} s"),
        ("unreadable records", f"{results.totals['dead_letters']:,}"),
    ]
    return page("Website activity", span(hours), facts, sections(results, drawn))


def span(hours: pd.DataFrame) -> str:
    if hours.empty:
        return "No sessions yet."
    first, last = moments([int(hours["start"].min()), int(hours["start"].max()) + HOUR_MS])
    return f"{str(first)[:16].replace('T', ' ')} to {str(last)[:16].replace('T', ' ')}"


def sections(results: Results, drawn: dict[str, Picture]) -> Sequence[Section]:
    funnel = [(label, int(results.hours[name].sum())) for name, label in STEPS]
    steps = [(label, f"{count:,}", percent(count, funnel[0][1])) for label, count in funnel]
    return (
        Section(
            "Sessions over time",
            "A session ends with half an hour of silence and is counted where it closed.",
            drawn["activity-sessions"],
        ),
        Section(
            "Funnel",
            "How far sessions came, step after step.",
            drawn["activity-funnel"],
            Table(("step", "sessions", "of all"), steps, frozenset({1, 2})),
        ),
        Section("Top pages", "Most views.", drawn["activity-pages"]),
        Section(
            "People who viewed this also viewed",
            "Sessions with both, and in which share of those with the first the second was seen too.",
            drawn["activity-also-viewed"],
            companions(results.viewed, "viewed"),
        ),
        Section(
            "Also bought",
            "Orders with both, and in which share of those with the first the second was bought too.",
            drawn["activity-also-bought"],
            companions(results.bought, "bought"),
        ),
    )
