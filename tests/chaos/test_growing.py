"""A broker is added to a cluster that is written and read, gets its share, and is given up again (R11)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.clients import Clients
from tests.chaos.machines import Machines
from tests.chaos.replicas import differing_replicas
from tests.cli.conftest import COMMAND

pytestmark = pytest.mark.usefixtures("needs_zookeeper")

TOPIC, PARTITIONS, ADDED = "growing", 4, 4
GROUPS: dict[str, dict[str, Any]] = {"consumer": {"group.protocol": "consumer"}}


@pytest.mark.timeout(600)
def test_a_broker_that_is_added_gets_its_share_and_gives_it_back(tmp_path: Path) -> None:
    with Machines(tmp_path, brokers=3, zookeepers=1) as machines:
        machines.create(TOPIC, PARTITIONS)
        with Clients(
            machines.bootstrap_servers, TOPIC, PARTITIONS, {"plain": {}}, GROUPS, tmp_path
        ) as clients:
            clients.await_going()
            machines.add(ADDED)
            machines.await_whole()
            assert held(machines) == 0, "nothing moves by itself"
            reassign(machines, "--rebalance", "--topic", TOPIC)
            assert held(machines) == PARTITIONS * 3 // len(machines.brokers)
            clients.await_passed(clients.mark())
            reassign(machines, "--decommission", str(ADDED))
            assert held(machines) == 0
            clients.await_passed(clients.mark())
            clients.finish()
            found = clients.judge()
            assert not any(found.values()) and clients.seen.problems == [], clients.witness.examples
        machines.await_whole()
        assert differing_replicas(machines) == []


def held(machines: Machines) -> int:
    return sum(ADDED in each.replicas for each in machines.truth.partitions(TOPIC))


def reassign(machines: Machines, *words: str) -> None:
    command = [*COMMAND, "cluster", "reassign", *words, "--yes"]
    subprocess.run([*command, "--bootstrap-server", machines.bootstrap_servers], check=True)
