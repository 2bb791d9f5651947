"""The problems of a cluster, their meaning, and their remedy.

**Invariant:** a partition is listed under its most serious problem only, so that one cause is reported once;
a preferred replica that could lead and does not is reported in addition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tidelog.cli.cluster_partitions import Partition, Picture
from tidelog.cli.failure import Failure
from tidelog.cli.nodes import Node
from tidelog.cli.remote import RemoteBroker

_NAMES_SHOWN_MAX = 10  # in a line; the others are counted


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem; `kind` is for programs, the rest for people."""

    kind: str
    summary: str
    meaning: str
    remedy: str
    partitions: tuple[Partition, ...] = ()
    broker_id: int | None = None

    def facts(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "summary": self.summary,
            "meaning": self.meaning,
            "remedy": self.remedy,
            "broker_id": self.broker_id,
            "partitions": [{"topic": found.topic, "partition": found.number} for found in self.partitions],
        }


def find_problems(picture: Picture) -> list[Problem]:
    """The most serious problem first."""
    return [*_offline(picture), *_in_sync(picture), *_brokers(picture), *_preferred(picture)]


def print_problems(picture: Picture, problems: list[Problem]) -> None:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    print(f"cluster {picture.cluster.id} has {count}")
    for problem in problems:
        print(f"\n{problem.summary}")
        if problem.partitions:
            print(f"  partitions  {_names(problem.partitions)}")
        print(f"  meaning     {problem.meaning}")
        print(f"  to do       {problem.remedy}")


def _offline(picture: Picture) -> Iterator[Problem]:
    found = picture.where(lambda partition: partition.is_offline)
    if found:
        safe = {broker_id for partition in found for broker_id in partition.complete}
        yield Problem(
            "no_leader",
            f"{_count(found)} without a leader",
            "they can be neither written nor read",
            f"start {_brokers_named(safe - picture.live)}, which had all records; if that is gone "
            "for good, 'tidelog cluster elect --unclean' lets another replica lead, and may lose records",
            found,
        )


def _in_sync(picture: Picture) -> Iterator[Problem]:
    led = picture.where(lambda partition: not partition.is_offline)
    below = tuple(partition for partition in led if partition.is_under_min_in_sync)
    if below:
        yield Problem(
            "under_min_in_sync",
            f"{_count(below)} with fewer replicas in sync than min.insync.replicas",
            "producers with acks=all are refused (NOT_ENOUGH_REPLICAS); acknowledged records can be read",
            _bring_back(picture, below),
            below,
        )
    behind = tuple(part for part in led if part.is_under_replicated and not part.is_under_min_in_sync)
    if behind:
        yield Problem(
            "under_replicated",
            f"{_count(behind)} with replicas that are not in sync",
            "all can be written and read, but with fewer copies than configured",
            _bring_back(picture, behind),
            behind,
        )


def _bring_back(picture: Picture, partitions: Iterable[Partition]) -> str:
    missing = {replica for partition in partitions for replica in partition.missing}
    gone, there = missing - picture.live, missing & picture.live
    words = [f"start {_brokers_named(gone)}"] if gone else []
    words += [f"check the log of {_brokers_named(there)}: online, but its replica lags"] if there else []
    return "; ".join(words)


def _brokers(picture: Picture) -> Iterator[Problem]:
    if picture.cluster.controller_id < 0:
        yield Problem(
            "no_controller",
            "no broker is the controller",
            "no leader can be elected, no topic created or deleted, no setting changed",
            "wait some seconds for an election; then check that ZooKeeper runs, and the brokers' logs",
        )
    named = {replica for partition in picture.partitions for replica in partition.replicas}
    for broker_id in sorted(named - picture.live):
        held = picture.on(broker_id)
        yield Problem(
            "broker_missing",
            f"broker {broker_id} is not in the cluster, and {_count(held)} should have a replica on it",
            "it has stopped, is fenced, or cannot reach the other brokers",
            f"start broker {broker_id} again with its log.dirs, or check its log",
            held,
            broker_id,
        )
    for node in picture.cluster.nodes:
        if not node.is_fenced and not _answers(node):
            yield Problem(
                "broker_silent",
                f"broker {node.id} does not answer at {node.address}",
                "clients here cannot reach its partitions, although the cluster lists it as online",
                "check that it runs, can be reached from here, and advertises the right listener",
                broker_id=node.id,
            )


def _answers(node: Node) -> bool:
    try:
        RemoteBroker(node.address).close()
        return True
    except Failure:
        return False


def _preferred(picture: Picture) -> Iterator[Problem]:
    found = picture.where(lambda partition: partition.is_led_by_another)
    if found:
        yield Problem(
            "not_preferred",
            f"{_count(found)} led by another replica than the preferred one",
            "no copies are missing, but the load of the brokers may be uneven",
            "run 'tidelog cluster elect --preferred', or wait if auto.leader.rebalance.enable is on",
            found,
        )


def _count(partitions: tuple[Partition, ...]) -> str:
    return "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"


def _names(partitions: tuple[Partition, ...]) -> str:
    shown = ", ".join(partition.name for partition in partitions[:_NAMES_SHOWN_MAX])
    left = len(partitions) - _NAMES_SHOWN_MAX
    return shown if left <= 0 else f"{shown} and {left} more (--format json lists all)"


def _brokers_named(ids: Iterable[int]) -> str:
    numbers = sorted(ids)
    if not numbers:
        return "the brokers that were in sync"
    return ("broker " if len(numbers) == 1 else "brokers ") + ", ".join(map(str, numbers))
