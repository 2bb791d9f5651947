"""A progress bar of moving replicas, in bytes if brokers report sizes.

**Invariant:** watching changes nothing. When a user stops it, the output says that the moves continue, and
how to watch them again or cancel them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tidelog.cli.cluster_layout import Place
from tidelog.cli.cluster_moves import Move, ask_disks, list_moves
from tidelog.cli.failure import Failure
from tidelog.cli.nodes import describe_cluster

HOW_TO_GO_ON = (
    "it goes on by itself: 'tidelog cluster reassign --watch' watches it, "
    "'tidelog cluster reassign --cancel' takes it back"
)
_POLL_S_MIN, _POLL_S_MAX = 0.1, 2.0
_SILENCE_S_MAX = 60.0  # the cluster may be unavailable this long, while brokers restart


def watch(bootstrap_server: str, moves: Sequence[Move]) -> None:
    """Return when none of these moves is under way any more."""
    try:
        with _bar(moves) as (progress, task):
            for left in _polls(bootstrap_server, {move.place for move in moves}):
                done = _done(bootstrap_server, moves, left) if not progress.disable else 0
                progress.update(task, completed=done, left=len(left))
    except KeyboardInterrupt:
        typer.echo(f"stopped watching; {HOW_TO_GO_ON}", err=True)
        raise


def _polls(bootstrap_server: str, places: Collection[Place]) -> Iterator[set[Place]]:
    """The remaining partitions, polled until there are none."""
    pause, heard = _POLL_S_MIN, time.monotonic()
    while True:
        try:
            left = {move.place for move in list_moves(bootstrap_server) if move.place in places}
            heard = time.monotonic()
            yield left
            if not left:
                return
        except Failure as failure:
            if time.monotonic() - heard > _SILENCE_S_MAX:
                raise Failure(f"{failure}; when the cluster is available, {HOW_TO_GO_ON}") from None
        time.sleep(pause)
        pause = min(pause * 1.5, _POLL_S_MAX)


def _total(moves: Sequence[Move]) -> int:
    """The bytes to copy; 0 if a size is unknown, or there are none."""
    sizes = [move.copied_size for move in moves]
    return 0 if any(size < 0 for size in sizes) else sum(sizes)


def _done(bootstrap_server: str, moves: Sequence[Move], left: Collection[Place]) -> int:
    """The bytes copied; partitions if bytes are unknown."""
    if not _total(moves):
        return len(moves) - len(left)
    done = sum(move.copied_size for move in moves if move.place not in left)
    if left:
        moving = [move for move in moves if move.place in left]
        takers = {broker for move in moving for broker in move.adding}
        disks = ask_disks(describe_cluster(bootstrap_server), takers, left)
        for move in moving:
            sizes = [max(disks.size_of(move.place, [broker]), 0) for broker in move.adding]
            done += sum(min(size, move.size) for size in sizes)
    return done


@contextmanager
def _bar(moves: Sequence[Move]) -> Iterator[tuple[Progress, TaskID]]:
    terminal = Console(stderr=True)
    columns: list[ProgressColumn] = [TextColumn("moving"), BarColumn()]
    columns.append(TextColumn("{task.fields[left]} of {task.fields[count]} partitions left"))
    total = _total(moves)
    if total:
        columns += [DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn()]
    else:
        columns.append(TimeElapsedColumn())
    with Progress(*columns, console=terminal, disable=not terminal.is_terminal, transient=True) as progress:
        count = len(moves)
        yield progress, progress.add_task("moving", total=total or count, left=count, count=count)
