"""The Java client under kills of brokers that are processes, on a real ZooKeeper: an idempotent producer, and
members of groups of both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.machines import OFFSETS_PARTITIONS, Machines
from tests.chaos.truth import coordinator_partition
from tests.compat.java.conftest import QUICK_GROUPS
from tests.compat.java.group_history import Event, check_deliveries, check_generations
from tests.compat.java.jvm import Jvm
from tests.compat.java.members import RANGE, UNIFORM, Group, fed
from tests.soak import is_soak

pytestmark = pytest.mark.java
PARTITIONS = 6
KINDS = (RANGE, UNIFORM)
SESSION_MS = 30_000
"""Nobody is expelled for being slow on a busy machine."""
SETTINGS = QUICK_GROUPS | {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "leader.imbalance.check.interval.seconds": "3600",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.max.session.timeout.ms": str(2 * SESSION_MS),
}


@pytest.fixture
def machines(needs_zookeeper: None, tmp_path: Path) -> Iterator[Machines]:
    with Machines(tmp_path, 3, 1, SETTINGS) as started:
        yield started


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_java_members_notice_nothing_of_a_broker_s_death_but_a_retry(
    machines: Machines, jvm: Jvm, tmp_path: Path
) -> None:
    machines.create("fed", PARTITIONS)
    groups = [
        Group(kind.name, machines.bootstrap_servers, jvm, tmp_path / kind.name, SESSION_MS) for kind in KINDS
    ]
    with fed(jvm, machines.bootstrap_servers, "fed", PARTITIONS) as ends:
        for group, kind in zip(groups, KINDS, strict=True):
            for number in range(2):
                group.start(f"{kind.name}-{number}", "fed", kind)
            group.await_balance(PARTITIONS)
        shared = [changes(group) for group in groups]
        for _ in range(5 if is_soak() else 1):
            for group in groups:
                replace(machines, groups, coordinator(machines, group.name))
            replace(machines, groups, machines.truth.controller())
    for group, had in zip(groups, shared, strict=True):
        group.await_committed(ends)
        assert changes(group) == had, f"{group.name} was rebalanced"
        group.close_all()
        check_deliveries(group.history(), ends)
        check_generations(group.history())


def coordinator(machines: Machines, group: str) -> int:
    index = coordinator_partition(group, OFFSETS_PARTITIONS)
    return machines.truth.partitions("__consumer_offsets")[index].leader


def replace(machines: Machines, groups: list[Group], victim: int) -> None:
    """Kill a broker and start it again, each time until every group has read on."""
    for end in (machines.kill, lambda node_id: machines.start([node_id])):
        before = [len(group.history()) for group in groups]
        end(victim)
        for group, count in zip(groups, before, strict=True):
            group.await_that(partial(has_committed, group, count), "does not read on")
    machines.await_whole()


def has_committed(group: Group, after: int) -> bool:
    return any(event.event == "committed" for event in group.history()[after:])


def changes(group: Group) -> list[Event]:
    return [event for event in group.history() if event.event in ("assigned", "revoked", "lost", "failed")]
