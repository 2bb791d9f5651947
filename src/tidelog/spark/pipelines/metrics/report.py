"""A page about measurements: percentiles of the busiest series over time, and a plot of any one.

`gather` takes the windows of some series out of the lake, `series_picture` draws one, `write` puts the page
and its PNGs into a folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidelog.spark.pipelines.document import Section, Table, page
from tidelog.spark.pipelines.drawing import (
    BLUE,
    FAINT,
    ORANGE,
    Moments,
    Picture,
    count_axis,
    moments,
    picture,
    short_number,
    stacked_bars,
    time_axis,
)
from tidelog.spark.pipelines.generated import Floats
from tidelog.spark.pipelines.lake import read_days
from tidelog.spark.pipelines.metrics.aggregates import PERCENTILES
from tidelog.spark.pipelines.metrics.flow import table

SERIES_DRAWN = 8
WINDOWS_DRAWN_MAX = 240
"""With more windows than this on one picture, neighbours are drawn as one."""
NUMBERS = ("count", "late", "sum", "min", "max", "p50", "p95", "p99")


@dataclass(frozen=True)
class Results:
    """What the page shows, small enough for one machine."""

    totals: dict[str, int]
    """series, windows, measurements, late and dead_letters"""
    windows: pd.DataFrame
    """series, start and end in milliseconds, then the numbers: of the series that are drawn"""

    @property
    def series(self) -> list[str]:
        return list(dict.fromkeys(self.windows["series"]))


def gather(spark: SparkSession, lake: str, series: Sequence[str] = ()) -> Results:
    """The given series; without any, the busiest of each name in turn."""
    aggregates = read_days(spark, table(lake, "aggregates"))
    known = aggregates.groupBy("name", "series").agg(
        F.sum("count").alias("count"), F.sum("late").alias("late"), F.count(F.lit(1)).alias("windows")
    )
    counted: pd.DataFrame = known.toPandas()
    wanted = list(series) or busiest(counted)
    times = (F.unix_millis("start").alias("start"), F.unix_millis("end").alias("end"))
    rows = aggregates.where(F.col("series").isin(wanted)).select("series", *times, *NUMBERS).orderBy("start")
    windows: pd.DataFrame = rows.toPandas()
    order = windows["series"].map({name: place for place, name in enumerate(wanted)})
    totals = {
        "series": len(counted),
        "windows": int(counted["windows"].sum()),
        "measurements": int(counted["count"].sum()),
        "late": int(counted["late"].sum()),
        "dead_letters": read_days(spark, table(lake, "dead-letters")).count(),
    }
    return Results(totals, windows.iloc[np.argsort(order.to_numpy(np.int64), kind="stable")])


def busiest(counted: pd.DataFrame) -> list[str]:
    """The first of every name, then the second of every name, as long as there is room."""
    ranked = counted.sort_values(["count", "series"], ascending=[False, True])
    turn = ranked.groupby("name").cumcount()
    picked = ranked.assign(turn=turn).sort_values(["turn", "name"]).head(SERIES_DRAWN)
    return [str(series) for series in picked.sort_values(["name", "turn"])["series"]]


def report(spark: SparkSession, lake: str, folder: Path) -> Path:
    return write(gather(spark, lake), folder)


def write(results: Results, folder: Path) -> Path:
    """The page; beside it a PNG of every series."""
    folder.mkdir(parents=True, exist_ok=True)
    sections = []
    for series in results.series:
        windows = results.windows[results.windows["series"] == series]
        drawn = series_picture(series, windows)
        drawn.write(folder)
        sections.append(Section(series, summary(windows), drawn))
    sections.append(Section("In figures", "Over all windows that are drawn.", None, figures(results)))
    facts = [(name.replace("_", " "), f"{count:,}") for name, count in results.totals.items()]
    path = folder / "metrics.html"
    path.write_text(page("Metrics", span(results.windows), facts, sections), "utf-8")
    return path


def series_picture(series: str, windows: pd.DataFrame) -> Picture:
    """Median with the band up to the 95th percentile, the 99th above, and how much was measured below."""
    name = "metrics-" + re.sub(r"[^a-z0-9]+", "-", series.lower()).strip("-")
    return picture(name, series, (10, 3.6), lambda figure: draw_series(figure, windows))


def draw_series(figure: Figure, windows: pd.DataFrame) -> None:
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1])
    shown = thinned(windows)
    times = moments(shown["start"].to_numpy(np.int64))
    draw_percentiles(upper, times, *(shown[name].to_numpy(np.float64) for name in PERCENTILES))
    width_ms = int((shown["end"] - shown["start"]).median())
    on_time = (shown["count"] - shown["late"]).to_numpy(np.float64)
    parts = (("in time", on_time, FAINT), ("late", shown["late"].to_numpy(np.float64), ORANGE))
    stacked_bars(lower, times, width_ms, parts)
    count_axis(lower, "count")
    lower.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True))
    time_axis(lower, times)
    upper.grid(visible=False, axis="x")


def draw_percentiles(axes: Axes, times: Moments, p50: Floats, p95: Floats, p99: Floats) -> None:
    where: Any = times
    axes.plot(where, p50, color=BLUE, linewidth=1.6, marker="o" if len(times) < 3 else "", label="median")
    axes.fill_between(where, p50, p95, color=BLUE, alpha=0.35, linewidth=0, label="up to p95")
    axes.fill_between(where, p95, p99, color=BLUE, alpha=0.15, linewidth=0, label="up to p99")
    axes.plot(where, p99, color=BLUE, linewidth=0.5, alpha=0.6)
    axes.set_ylim(bottom=min(0.0, float(np.nanmin(p50))), top=ceiling(p99))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0, handlelength=1.2)


def ceiling(p99: Floats) -> float | None:
    """A few outliers leave the picture at the top rather than press everything else to the bottom."""
    usual = float(np.nanpercentile(p99, 98)) * 1.3
    return usual if usual > 0 else None


def thinned(windows: pd.DataFrame) -> pd.DataFrame:
    """At most so many windows: neighbours become one, with the mean of their percentiles by count.

    A window in which nothing was measured has counts of 0 and no percentiles: a gap, not a line across it.
    """
    step_ms = int((windows["end"] - windows["start"]).median())
    first, last = int(windows["start"].min()), int(windows["end"].max())
    width_ms = step_ms * max(1, -(-(last - first) // (step_ms * WINDOWS_DRAWN_MAX)))
    weighted = windows[list(PERCENTILES)].mul(windows["count"], axis=0).join(windows[["count", "late"]])
    summed = weighted.groupby((windows["start"] // width_ms * width_ms).rename("start")).sum()
    summed[list(PERCENTILES)] = summed[list(PERCENTILES)].div(summed["count"], axis=0)
    every = np.arange(int(summed.index.min()), int(summed.index.max()) + 1, width_ms)
    whole = summed.reindex(every).rename_axis("start").reset_index()
    return whole.fillna({"count": 0, "late": 0}).assign(end=lambda frame: frame["start"] + width_ms)


def summary(windows: pd.DataFrame) -> str:
    count = int(windows["count"].sum())
    mean = float(windows["sum"].sum()) / count
    least, most = float(windows["min"].min()), float(windows["max"].max())
    told = f"{count:,} measurements, mean {short_number(mean)}"
    return f"{told}, from {short_number(least)} to {short_number(most)}"


def figures(results: Results) -> Table:
    rows = []
    for series in results.series:
        windows = results.windows[results.windows["series"] == series]
        count = int(windows["count"].sum())
        numbers = (
            float(windows["sum"].sum()) / count,
            *(float(windows[name].median()) for name in ("p50", "p95", "p99")),
            float(windows["max"].max()),
        )
        rows.append((series, f"{count:,}", f"{int(windows['late'].sum()):,}", *map(short_number, numbers)))
    columns = ("series", "count", "late", "mean", "p50 (median window)", "p95", "p99", "max")
    return Table(columns, rows, frozenset(range(1, len(columns))))


def span(windows: pd.DataFrame) -> str:
    if windows.empty:
        return "Nothing measured yet."
    first, last = moments([int(windows["start"].min()), int(windows["end"].max())])
    return f"{str(first)[:16].replace('T', ' ')} to {str(last)[:16].replace('T', ' ')}"
