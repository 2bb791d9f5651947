"""The lag of groups as text: a table for each group, or as much as fits on a screen."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tidelog.cli.group_members import Group

_UNKNOWN = "-"
_LINES_AROUND = 7  # of a table with its heading and its total


@dataclass(frozen=True, slots=True)
class Row:
    """A partition with a committed offset or a member; None is unknown."""

    group: str
    topic: str
    partition: int
    committed_offset: int | None
    end_offset: int | None
    lag: int | None
    member_id: str | None
    instance_id: str | None
    client_id: str | None
    host: str | None


@dataclass(frozen=True, slots=True)
class GroupLag:
    group: Group
    rows: list[Row]

    @property
    def total(self) -> int:
        return sum(row.lag or 0 for row in self.rows)


def picture(found: list[GroupLag]) -> RenderableType:
    """A table for each group, and the total."""
    parts: list[RenderableType] = []
    for group in found:
        parts += _parts(group, group.rows)
    if len(found) != 1:
        parts.append(Text(f"{len(found)} groups, lag {sum(group.total for group in found)}"))
    return Stack(*parts)


def fitted_picture(found: list[GroupLag], height: int, problem: str = "") -> RenderableType:
    """The lag in a limited number of lines: if needed a line for each group, or the partitions with the most
    lag."""
    room = height - 3
    if sum(len(group.rows) + _LINES_AROUND for group in found) <= room:
        shown = picture(found)
    elif len(found) == 1:
        shown = _worst_partitions(found[0], max(room - _LINES_AROUND, 1))
    else:
        shown = _worst_groups(found, max(room - _LINES_AROUND, 1))
    return Stack(shown, Text(problem, style="red")) if problem else shown


def _worst_partitions(group: GroupLag, count: int) -> RenderableType:
    worst = sorted(group.rows, key=lambda row: -(row.lag or 0))[:count]
    left_out = Text(f"and {len(group.rows) - len(worst)} partitions that lag less")
    return Stack(*_parts(group, worst), left_out)


def _worst_groups(found: list[GroupLag], count: int) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=True)
    table.add_column("group", f"{len(found)} groups", overflow="fold")
    table.add_column("state")
    for name in ("members", "partitions"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("lag", str(sum(group.total for group in found)), justify="right", no_wrap=True)
    for group in sorted(found, key=lambda group: -group.total)[:count]:
        counts = (len(group.group.members), len(group.rows), group.total)
        table.add_row(Text(group.group.name), group.group.state, *map(str, counts))
    return table


def _parts(found: GroupLag, rows: list[Row]) -> list[RenderableType]:
    members = len(found.group.members)
    heading = f"group {found.group.name}: {found.group.state}, {members} member{'' if members == 1 else 's'}"
    if not rows:
        return [Text(f"{heading}, nothing committed", style="bold")]
    return [Text(heading, style="bold"), _table(rows, found.total)]


def _table(rows: list[Row], total: int) -> Table:
    """A table in which only member ids are truncated on a narrow terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=True)
    table.add_column("topic", "total", overflow="fold", min_width=12)
    for name in ("partition", "committed", "end"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("lag", str(total), justify="right", no_wrap=True)
    table.add_column("member", overflow="ellipsis")
    for row in rows:
        numbers = (row.partition, row.committed_offset, row.end_offset, row.lag)
        member = row.instance_id or row.member_id or _UNKNOWN
        table.add_row(Text(row.topic), *map(_cell, numbers), Text(member))
    return table


def _cell(value: int | None) -> str:
    return _UNKNOWN if value is None else str(value)
