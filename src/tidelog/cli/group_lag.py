"""`tidelog group lag`: how far groups are behind the end of their partitions, once or continuously.

**Invariant:** each refresh asks each coordinator once for its groups and their offsets, and each leader once
for its ends, however many groups and partitions there are.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import Annotated, NoReturn

import typer
from confluent_kafka.admin import AdminClient
from rich.live import Live

from tidelog.cli.connection import open_admin
from tidelog.cli.failure import BadWord, Failure, raise_failures
from tidelog.cli.group_coordinators import GroupCoordinators, list_groups, no_such_group
from tidelog.cli.group_ends import End, find_offsets
from tidelog.cli.group_lag_table import GroupLag, Row, fitted_picture, picture
from tidelog.cli.group_members import Group, Partition
from tidelog.cli.group_options import SomeGroupNames
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    TableFormat,
    TableOrJson,
    unique,
)
from tidelog.cli.screen import console, print_json

_TYPES_WITH_LAG = ("classic", "consumer")


def lag(
    names: SomeGroupNames = None,
    all: Annotated[bool, typer.Option("--all", help="All groups of the cluster.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600, metavar="SECONDS", help="Refresh interval, with --watch.")
    ] = 2.0,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Show the lag of groups by partition: committed offset, end, lag, the member that reads it."""
    if all == bool(names):
        raise BadWord("no groups named; name them, or write --all")
    lookout = _Lookout(bootstrap_server, None if all else unique(names or []))
    try:
        found, failures = lookout.look()
        if not found:
            raise_failures(failures)
        if watch and format is TableFormat.TABLE and console().is_terminal:
            _watch(lookout, found, failures, interval)
        while True:
            _print(found, format)
            raise_failures(failures)
            if not watch:
                break
            sys.stdout.flush()
            time.sleep(interval)
            found, failures = lookout.look()
    finally:
        lookout.close()


class _Lookout:
    """The connections of a refresh, kept open for the next one."""

    def __init__(self, bootstrap_server: str, names: list[str] | None) -> None:
        self._bootstrap_server = bootstrap_server
        self._names = names
        self._admin: AdminClient | None = None
        self._coordinators = GroupCoordinators(bootstrap_server)

    def look(self) -> tuple[list[GroupLag], list[Failure]]:
        """The lag of the existing groups, and the failures of the others."""
        if self._admin is None:
            self._admin = open_admin(self._bootstrap_server)
        names = self._names
        unasked: list[Failure] = []
        if names is None:
            listed, unasked = list_groups(self._bootstrap_server, types=_TYPES_WITH_LAG)
            names = [group.group for group in listed]
        groups, failed = self._described(names)
        answers = self._coordinators.committed(list(groups))
        failed |= {name: answer for name, answer in answers.items() if isinstance(answer, Failure)}
        committed = {name: answer for name, answer in answers.items() if not isinstance(answer, Failure)}
        groups = {name: group for name, group in groups.items() if name in committed}
        owned = {name: group.owners() for name, group in groups.items()}
        partitions = {partition for name in groups for partition in (*committed[name], *owned[name])}
        ends = find_offsets(
            self._admin, self._bootstrap_server, dict.fromkeys(sorted(partitions), End.LATEST)
        )
        found = [GroupLag(group, _rows(group, committed[name], ends)) for name, group in groups.items()]
        return found, [*unasked, *(failed[name] for name in names if name in failed)]

    def close(self) -> None:
        """Close the connections, so that the next refresh looks up leaders again."""
        self._coordinators.close()
        self._admin = None

    def _described(self, names: list[str]) -> tuple[dict[str, Group], dict[str, Failure]]:
        """The existing groups; a named group that does not exist is a failure."""
        found: dict[str, Group] = {}
        failed: dict[str, Failure] = {}
        for name, answer in self._coordinators.describe(names).items():
            if isinstance(answer, Failure):
                failed[name] = answer
            elif answer is not None:
                found[name] = answer
            elif self._names is not None:
                failed[name] = no_such_group(self._bootstrap_server, name)
        return found, failed


def _rows(group: Group, committed: dict[Partition, int], ends: dict[Partition, int | None]) -> list[Row]:
    rows = []
    owners = group.owners()
    for partition in sorted(committed.keys() | owners.keys()):
        offset, end, member = committed.get(partition), ends[partition], owners.get(partition)
        rows.append(
            Row(
                group.name,
                partition.topic,
                partition.number,
                offset,
                end,
                None if offset is None or end is None else max(end - offset, 0),
                member.id if member else None,
                member.instance_id if member else None,
                member.client_id if member else None,
                member.host if member else None,
            )
        )
    return rows


def _print(found: list[GroupLag], format: TableFormat) -> None:
    if format is TableFormat.JSON:
        for row in (row for group in found for row in group.rows):
            print_json(asdict(row))
    else:
        console().print(picture(found))


def _watch(lookout: _Lookout, found: list[GroupLag], failures: list[Failure], interval: float) -> NoReturn:
    """Redraw the table in place; wait for unavailable brokers and missing groups."""
    screen = console()
    problem = _problem(failures)
    with Live(fitted_picture(found, screen.height, problem), console=screen, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            try:
                found, failures = lookout.look()
                problem = _problem(failures)
            except Failure as failure:
                lookout.close()
                problem = f"{failure}; trying again"
            live.update(fitted_picture(found, screen.height, problem), refresh=True)


def _problem(failures: list[Failure]) -> str:
    return "\n".join(map(str, failures))
