"""Runs of pipelines as text: live, or from their status files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidelog.cli.screen import console

if TYPE_CHECKING:
    from tidelog.spark.pipelines.status import QueryStatus, RunStatus

UNKNOWN = "-"
BAR_WIDTH = 20
COLOURS = {"running": "green", "failed": "red", "killed": "red"}


def print_status(found: Sequence[RunStatus]) -> None:
    """Print every run: a heading, its queries, its error."""
    for run in found:
        console().print(picture(run, has_bars=False))


def picture(run: RunStatus, *, has_bars: bool = True, note: str = "") -> RenderableType:
    parts: list[RenderableType] = [heading(run), queries_table(run.queries, has_bars=has_bars)]
    if run.error:
        parts.append(Text(run.error, style="red"))
    if note:
        parts.append(Text(note, style="dim"))
    return Group(*parts)


def heading(run: RunStatus) -> Text:
    text = Text(f"{run.pipeline}: ", style="bold")
    text.append(run.state, style=COLOURS.get(run.state, ""))
    where = f" ({run.mode}), process {run.pid} on {run.host}, {run.bootstrap_servers}"
    seconds = (run.updated_ms - run.started_ms) // 1000
    text.append(f"{where}, for {duration(seconds)}", style="not bold")
    if run.state == "running":
        text.append(f", {run.doing}", style="not bold")
    elif run.state == "killed":
        ago = max(int(time.time() - run.updated_ms / 1000), 0)
        text.append(f", last heard of {duration(ago)} ago", style="not bold")
    return text


def queries_table(queries: Sequence[QueryStatus], *, has_bars: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("query", overflow="fold", min_width=12)
    if has_bars:
        table.add_column("", width=BAR_WIDTH)
    for name in ("rows", "rows/s", "lag", "batch"):
        table.add_column(name, justify="right", no_wrap=True)
    for query in queries:
        bar = [bar_of(query)] if has_bars else []
        numbers = (query.rows, round(query.rows_per_second), query.lag, query.batch)
        table.add_row(Text(query.name, style="red" if query.error else ""), *bar, *map(cell, numbers))
    return table


def bar_of(query: QueryStatus) -> ProgressBar:
    """The share of the present records that has been read; it pulses while the end is unknown."""
    total = None if query.lag is None else float(max(query.rows + query.lag, 1))
    done = float(query.rows) if query.lag else (total or 0.0)
    return ProgressBar(total=total, completed=done, width=BAR_WIDTH, pulse=total is None and query.is_active)


def line(run: RunStatus) -> str:
    """The run in one line, for a log."""
    rows = sum(query.rows for query in run.queries)
    speed = sum(query.rows_per_second for query in run.queries)
    lags = [query.lag for query in run.queries]
    lag = UNKNOWN if None in lags else f"{sum(each or 0 for each in lags):,}"
    active = sum(query.is_active for query in run.queries)
    return f"{run.pipeline}: {active} queries active, {rows:,} rows, {speed:,.0f} rows/s, lag {lag}"


def cell(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def duration(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
