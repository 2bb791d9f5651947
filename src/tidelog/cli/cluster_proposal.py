"""From a requested plan to the necessary moves, checked against the present cluster.

**Invariant:** a plan that cannot be carried out is refused as a whole, with what to do about it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidelog.cli.cluster_layout import Place
from tidelog.cli.cluster_moves import Disks, Move, ask_disks
from tidelog.cli.cluster_partitions import Partition, Picture
from tidelog.cli.cluster_rebalance import plan_departure, plan_rebalance
from tidelog.cli.connection import no_such_topic
from tidelog.cli.failure import Failure
from tidelog.cli.screen import size_text

Plan = Mapping[Place, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A given plan; or brokers to empty, or to rebalance over (None: all available ones)."""

    plan: Plan | None
    brokers: frozenset[int] | None
    leaving: frozenset[int]
    topics: tuple[str, ...]


def propose(picture: Picture, proposal: Proposal, moving: Collection[Move]) -> tuple[list[Move], Disks]:
    """The necessary moves, by name, and the sizes on the brokers' disks."""
    parts = {(part.topic, part.number): part for part in picture.partitions}
    for topic in proposal.topics:
        if all(part.topic != topic for part in picture.partitions):
            raise no_such_topic(topic)
    chosen = [part for part in picture.partitions if not proposal.topics or part.topic in proposal.topics]
    if proposal.plan is not None:
        plan = proposal.plan
        for place in sorted(plan):
            _check_entry(picture, parts.get(place), place, plan[place])
    else:
        plan = _make_plan(picture, proposal, chosen)
    concerned = set(plan) if proposal.plan is not None else {(part.topic, part.number) for part in chosen}
    _check_still([move for move in moving if move.place in concerned])
    changed = {place: plan[place] for place in sorted(plan) if tuple(plan[place]) != parts[place].replicas}
    disks = ask_disks(picture.cluster, picture.live, changed) if changed else Disks()
    moves = [
        Move(*place, parts[place].replicas, tuple(after), disks.size_of(place, parts[place].in_sync))
        for place, after in changed.items()
    ]
    for move in moves:
        if move.adding and parts[move.place].is_offline:
            raise Failure(f"{move.name} has no leader to copy from; see 'tidelog cluster health' first")
    return moves, disks


def free_space_problems(moves: Collection[Move], disks: Disks) -> Iterator[str]:
    """Brokers without enough free space for the plan."""
    for broker, free in sorted(disks.free.items()):
        size = sum(max(move.size, 0) for move in moves if broker in move.adding)
        if size > free:
            yield f"broker {broker} would get {size_text(size)} and has {size_text(free)} free"


def _make_plan(picture: Picture, proposal: Proposal, chosen: Sequence[Partition]) -> Plan:
    wanted = picture.live if proposal.brokers is None else proposal.brokers
    for broker in sorted(wanted - picture.live):
        picture.cluster.node(broker)
        raise Failure(f"broker {broker} is fenced and cannot get replicas; start it first, or leave it out")
    racks = {
        node.id: node.rack or "" for node in picture.cluster.nodes if node.id in wanted - proposal.leaving
    }
    if proposal.brokers is None:
        _check_all_there(picture, proposal.leaving, chosen)
    for part in chosen:
        if len(part.replicas) > len(racks):
            raise Failure(
                f"topic {part.topic!r} has {len(part.replicas)} replicas, and only {len(racks)} brokers "
                "can hold them; start another broker first, or reduce the replicas with --file"
            )
    before = {(part.topic, part.number): part.replicas for part in chosen}
    if not racks:
        return {}
    return plan_departure(before, racks) if proposal.leaving else plan_rebalance(before, racks)


def _check_all_there(picture: Picture, leaving: Collection[int], chosen: Sequence[Partition]) -> None:
    """Refuse a plan while a broker is down: a short outage is no reason to copy all its replicas."""
    for part in chosen:
        for broker in part.replicas:
            if broker not in picture.live and broker not in leaving:
                raise Failure(
                    f"broker {broker} is offline and has a replica of {part.name}; start it first, or move "
                    f"its replicas away with --decommission {broker}"
                )


def _check_entry(picture: Picture, part: Partition | None, place: Place, after: Sequence[int]) -> None:
    topic, number = place
    if part is None:
        last = max((found.number for found in picture.partitions if found.topic == topic), default=None)
        if last is None:
            raise no_such_topic(topic)
        raise Failure(f"topic {topic!r} has no partition {number}; its last one is {last}")
    for broker in after:
        if broker not in part.replicas and broker not in picture.live:
            picture.cluster.node(broker)
            raise Failure(f"broker {broker} is fenced and cannot get {part.name}; start it first")


def _check_still(moving: Sequence[Move]) -> None:
    if moving:
        more = f" and {len(moving) - 1} more" if len(moving) > 1 else ""
        raise Failure(
            f"{moving[0].name}{more} is moving already; wait with 'tidelog cluster reassign --watch', "
            "or cancel it with --cancel"
        )
