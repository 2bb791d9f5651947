"""Output of the commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

PIPE_WIDTH = 240  # a file or a pipe has no width; truncated columns would lose data


def console() -> Console:
    """A console on stdout that does not truncate tables when stdout is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """Print a table: numbers right-aligned, text left-aligned."""
    rows = [list(row) for row in rows]
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(columns)
    )
    for index, column in enumerate(columns):
        is_numeric = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        table.add_column(column, justify="right" if is_numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console().print(table)


def size_text(size: int) -> str:
    """A byte count in readable units; empty if unknown."""
    if size < 0:
        return ""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def fits_screen(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> bool:
    """Whether a table of these rows fits without folding a cell."""
    widths = [
        max(len(column), *(len(str(row[index])) for row in rows)) for index, column in enumerate(columns)
    ]
    return sum(widths) + 3 * len(widths) <= console().width


def json_line(value: Any) -> str:
    """One line of JSON, with non-ASCII characters if the terminal can show UTF-8."""
    return json.dumps(value, ensure_ascii=False)


def print_json(value: Any) -> None:
    print(json_line(value))
