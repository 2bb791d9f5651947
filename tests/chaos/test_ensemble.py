"""All of ZooKeeper is gone, for longer than any session: nothing stops and nothing is lost (C5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.awaiting import await_that, let_pass
from tests.chaos.clients import Clients
from tests.chaos.machines import SESSION_MS, Machines
from tests.chaos.replicas import differing_replicas
from tests.soak import is_soak

pytestmark = pytest.mark.usefixtures("needs_zookeeper")

TOPIC, PARTITIONS = "alone", 3
GROUPS: dict[str, dict[str, Any]] = {"consumer": {"group.protocol": "consumer"}}
WAIT_S = 120.0
AWAY_S = 60.0 if is_soak() else 3 * SESSION_MS / 1_000


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_brokers_go_on_without_zookeeper_and_are_whole_when_it_is_back(tmp_path: Path) -> None:
    with (
        Machines(tmp_path, brokers=3, zookeepers=3) as machines,
        Clients(_created(machines), TOPIC, PARTITIONS, {"plain": {}}, GROUPS, tmp_path) as clients,
    ):
        clients.await_going()
        machines.await_settled()  # what is being elected now, some would hear of when it is back
        clients.await_passed(clients.mark())
        for member in machines.zookeepers.values():
            member.kill()
        _await_told(machines, "store disconnected")
        let_pass(AWAY_S)
        clients.await_passed(clients.mark())
        clients.await_read()
        for member in machines.zookeepers.values():
            member.spawn()
        for member in machines.zookeepers.values():
            member.wait_ready()
        _await_told(machines, "store connected")
        machines.await_whole()
        clients.await_passed(clients.mark())
        clients.finish()
        found = clients.judge()
        assert not any(found.values()) and clients.seen.problems == [], clients.witness.examples
        assert differing_replicas(machines) == []


def _created(machines: Machines) -> str:
    machines.create(TOPIC, PARTITIONS)
    return machines.bootstrap_servers


def _await_told(machines: Machines, event: str) -> None:
    """Until every broker has said so."""
    await_that(
        lambda: all(event in broker.stderr() for broker in machines.brokers.values()),
        f"not all have told: {event}",
        WAIT_S,
    )
