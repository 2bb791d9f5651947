"""The Java client under kills: an idempotent producer, and members of groups of both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.compat.cluster.victims import OFFSETS_TOPIC, coordinator
from tests.compat.java.conftest import QUICK_GROUPS
from tests.compat.java.group_history import Event, check_deliveries, check_generations
from tests.compat.java.jvm import Jvm
from tests.compat.java.members import RANGE, UNIFORM, Group, fed
from tests.soak import is_soak
from tests.testing.watching import watch
from tidelog.testing import Cluster

pytestmark = pytest.mark.java
PARTITIONS = 6
KINDS = (RANGE, UNIFORM)
SESSION_MS = 30_000
"""Nobody is expelled for being slow on a busy machine."""
SETTINGS = QUICK_GROUPS | {
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.max.session.timeout.ms": str(2 * SESSION_MS),
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, None, **SETTINGS) as cluster:
        yield cluster


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_java_members_notice_nothing_of_a_broker_s_death_but_a_retry(
    cluster: Cluster, jvm: Jvm, tmp_path: Path
) -> None:
    watcher = watch(cluster)
    watcher.create("fed", PARTITIONS)
    groups = [
        Group(kind.name, cluster.bootstrap_servers, jvm, tmp_path / kind.name, SESSION_MS) for kind in KINDS
    ]
    with fed(jvm, cluster.bootstrap_servers, "fed", PARTITIONS) as ends:
        for group, kind in zip(groups, KINDS, strict=True):
            for number in range(2):
                group.start(f"{kind.name}-{number}", "fed", kind)
            group.await_balance(PARTITIONS)
        shared = [changes(group) for group in groups]
        for _ in range(5 if is_soak() else 1):
            for group in groups:
                replace(cluster, groups, coordinator(cluster, watcher, group.name))
            replace(cluster, groups, watcher.controller())
    for group, had in zip(groups, shared, strict=True):
        group.await_committed(ends)
        assert changes(group) == had, f"{group.name} was rebalanced"
        group.close_all()
        check_deliveries(group.history(), ends)
        check_generations(group.history())


def replace(cluster: Cluster, groups: list[Group], victim: int) -> None:
    """Kill a broker and start it again, each time until every group has read on."""
    for end in (cluster.kill, cluster.start):
        before = [len(group.history()) for group in groups]
        end(victim)
        for group, count in zip(groups, before, strict=True):
            group.await_that(partial(has_committed, group, count), "does not read on")
    watch(cluster).until_in_sync("fed", OFFSETS_TOPIC)


def has_committed(group: Group, after: int) -> bool:
    return any(event.event == "committed" for event in group.history()[after:])


def changes(group: Group) -> list[Event]:
    return [event for event in group.history() if event.event in ("assigned", "revoked", "lost", "failed")]
