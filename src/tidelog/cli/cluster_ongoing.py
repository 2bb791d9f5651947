"""Moves under way: listed, watched, verified against a plan, cancelled.

**Invariant:** a throttle is removed only when nothing in the cluster moves any more.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer

from tidelog.cli.cluster_layout import Place
from tidelog.cli.cluster_moves import Move, ask_disks, list_moves, request_moves
from tidelog.cli.cluster_partitions import Picture, take_picture
from tidelog.cli.cluster_progress import watch
from tidelog.cli.cluster_throttle import clear_throttle
from tidelog.cli.failure import Failure
from tidelog.cli.options import TableFormat
from tidelog.cli.screen import print_json, print_table, size_text

NOT_DONE = 1
_NEWS_S_MAX, _NEWS_POLL_S = 10.0, 0.1
IsChosen = Callable[[Place], bool]
Plan = Mapping[Place, Sequence[int]]


def list_ongoing(bootstrap_server: str, is_chosen: IsChosen, format: TableFormat) -> None:
    moves = _moves(bootstrap_server, is_chosen)
    if format is TableFormat.JSON:
        print_json({"partitions": [_facts(move) for move in moves]})
    elif not moves:
        print("nothing is moving")
    else:
        cluster = take_picture(bootstrap_server).cluster
        everybody = {node.id for node in cluster.nodes}
        disks = ask_disks(cluster, everybody, [move.place for move in moves])
        rows = []
        for move in moves:
            there = [max(disks.size_of(move.place, [broker]), 0) for broker in move.adding]
            size = disks.size_of(move.place, move.before)
            copied = f"{size_text(sum(there))} of {size_text(size * len(there))}" if size >= 0 else ""
            rows.append((move.topic, move.number, ids(move.before), ids(move.after), copied))
        print_table(("topic", "partition", "from", "to", "copied"), rows)


def watch_ongoing(bootstrap_server: str, is_chosen: IsChosen) -> None:
    moves = _moves(bootstrap_server, is_chosen)
    if moves:
        watch(bootstrap_server, _with_sizes(bootstrap_server, moves))
        print(f"moved: {count(len(moves), 'partition')}")
    else:
        print("nothing is moving")
    finish(bootstrap_server)


def verify(bootstrap_server: str, plan: Plan | None, is_chosen: IsChosen, format: TableFormat) -> None:
    """Check whether a plan is complete; without a plan, whether nothing moves. Exit code 1 if not."""
    moving = {move.place: move for move in _moves(bootstrap_server, is_chosen)}
    picture = take_picture(bootstrap_server)
    held = {(found.topic, found.number): found.replicas for found in picture.partitions}
    wanted: Plan = {move.place: move.after for move in moving.values()} if plan is None else plan
    rows = [
        (*place, list(held.get(place, ())), list(wanted[place]), _state(place, wanted[place], held, moving))
        for place in sorted(wanted)
        if is_chosen(place)
    ]
    is_done = all(row[-1] == "done" for row in rows)
    if format is TableFormat.JSON:
        keys = ("topic", "partition", "replicas", "to", "state")
        print_json({"is_done": is_done, "partitions": [dict(zip(keys, row, strict=True)) for row in rows]})
    elif is_done:
        print(
            f"done: {count(len(rows), 'partition')} as planned" if plan is not None else "nothing is moving"
        )
    else:
        shown = [(topic, number, ids(now), ids(to), state) for topic, number, now, to, state in rows]
        print_table(("topic", "partition", "replicas", "to", ""), [row for row in shown if row[-1] != "done"])
    if not is_done:
        raise typer.Exit(NOT_DONE)
    finish(bootstrap_server, is_quiet=format is TableFormat.JSON)


def cancel(bootstrap_server: str, is_chosen: IsChosen, format: TableFormat) -> None:
    """Cancel the moves: restore the original replicas."""
    moves = _moves(bootstrap_server, is_chosen)
    outcomes = request_moves(bootstrap_server, {move.place: None for move in moves}) if moves else {}
    if format is TableFormat.JSON:
        print_json({"partitions": [_facts(move) | {"error": outcomes[move.place]} for move in moves]})
    elif moves:
        rows = [
            (move.topic, move.number, ids(move.before), outcomes[move.place] or "cancelled") for move in moves
        ]
        print_table(("topic", "partition", "back to", ""), rows)
    else:
        print("nothing is moving")
    finish(bootstrap_server, is_quiet=format is TableFormat.JSON)
    failed = sum(outcome is not None for outcome in outcomes.values())
    if failed:
        raise Failure(f"{failed} of {len(moves)} moves were not cancelled; see 'tidelog cluster health'")


def finish(bootstrap_server: str, is_quiet: bool = False, is_throttled: bool = False) -> None:
    """Remove throttles if nothing moves any more; `is_throttled`: there must be a throttle."""
    if list_moves(bootstrap_server):
        if is_throttled:
            print(
                "tidelog: other partitions are still moving; run --watch to remove the throttle at the end",
                file=sys.stderr,
            )
        return
    picture = take_picture(bootstrap_server)
    if (
        clear_throttle(bootstrap_server, picture, {found.topic for found in picture.partitions})
        and not is_quiet
    ):
        print("the throttle is removed")


def await_arrival(bootstrap_server: str, moves: Sequence[Move]) -> Picture:
    """The cluster with all of these moves complete: brokers learn of it later than the controller."""
    end = time.monotonic() + _NEWS_S_MAX
    while True:
        picture = take_picture(bootstrap_server)
        held = {(found.topic, found.number): found.replicas for found in picture.partitions}
        others = [move for move in moves if held.get(move.place, move.after) != move.after]
        if not others:
            return picture
        if time.monotonic() > end:
            first = others[0]
            raise Failure(
                f"{count(len(others), 'partition')} are not as planned: {first.name} has replicas "
                f"{ids(held[first.place])} and not {ids(first.after)}; the move was cancelled or replaced"
            )
        time.sleep(_NEWS_POLL_S)


def ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _moves(bootstrap_server: str, is_chosen: IsChosen) -> list[Move]:
    return [move for move in list_moves(bootstrap_server) if is_chosen(move.place)]


def _with_sizes(bootstrap_server: str, moves: Sequence[Move]) -> list[Move]:
    cluster = take_picture(bootstrap_server).cluster
    disks = ask_disks(cluster, {node.id for node in cluster.nodes}, [move.place for move in moves])
    return [
        Move(move.topic, move.number, move.before, move.after, disks.size_of(move.place, move.before))
        for move in moves
    ]


def _state(place: Place, wanted: Sequence[int], held: Plan, moving: Mapping[Place, Move]) -> str:
    if place in moving:
        return "moving" if moving[place].after == tuple(wanted) else "moving elsewhere"
    if place not in held:
        return "no such partition"
    return "done" if tuple(held[place]) == tuple(wanted) else "not moved"


def _facts(move: Move) -> dict[str, Any]:
    return {"topic": move.topic, "partition": move.number, "from": list(move.before), "to": list(move.after)}
