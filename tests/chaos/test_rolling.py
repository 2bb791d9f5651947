"""Brokers restarted one after the other under load, as an upgrade does it: nobody is told of an error, nobody
misses a record. And a broker that does not know what the others have agreed on does not join them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.chaos.clients import Clients
from tests.chaos.machines import Machines
from tests.soak import Tally, is_soak, record
from tidelog.testing.process import BrokerDidNotStart

pytestmark = pytest.mark.usefixtures("needs_zookeeper")

TOPIC, PARTITIONS = "rolling", 6
SOAK_ROUNDS = 10
SENDERS: dict[str, dict[str, Any]] = {"plain": {}, "packed": {"compression.type": "lz4"}}
GROUPS: dict[str, dict[str, Any]] = {
    "classic": {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 1_000},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 30_000,
        "heartbeat.interval.ms": 1_000,
    },
    "consumer": {"group.protocol": "consumer"},
}
SETTINGS = {"group.consumer.session.timeout.ms": "30000"}


@pytest.mark.soak
@pytest.mark.timeout(6_000 if is_soak() else 600)
def test_restarting_every_broker_in_turn_costs_no_error_and_no_record(tmp_path: Path) -> None:
    outcome, restarts, found = "failed", 0, dict[str, int]()
    with Machines(tmp_path, settings=SETTINGS) as machines:
        machines.create(TOPIC, PARTITIONS)
        with Clients(machines.bootstrap_servers, TOPIC, PARTITIONS, SENDERS, GROUPS, tmp_path) as clients:
            try:
                clients.await_going()
                clients.await_shared()
                shared = dict(clients.seen.placed_counts)
                for _ in range(SOAK_ROUNDS if is_soak() else 1):
                    restarts += restart_all(machines, clients)
                machines.await_settled()
                clients.finish()
                found = clients.judge()
                assert not any(found.values()), clients.witness.examples
                assert clients.seen.problems == []
                assert clients.seen.placed_counts == shared, "a group was rebalanced"
                outcome = "passed"
            finally:
                found = found or clients.witness.tally
                print(f"{restarts} restarts, {clients.witness.acknowledged_count} acknowledged: {found}")
                missing = found["lost-write"] + found["unseen"]
                counts = (restarts, clients.witness.acknowledged_count, missing, found["duplicate"])
                record("rolling restarts of 5 brokers", Tally(outcome, *counts, seed=0))


def restart_all(machines: Machines, clients: Clients) -> int:
    """Each in turn, the next when all is in sync again and records have gone to every partition."""
    for node_id, broker in machines.brokers.items():
        mark = clients.mark()
        assert broker.stop() == 0
        clients.await_passed(mark)
        machines.start([node_id])
        machines.await_whole()
        assert clients.failures == []
    return len(machines.brokers)


def test_a_broker_that_does_not_know_a_level_in_use_stays_out_until_it_does(tmp_path: Path) -> None:
    with Machines(tmp_path, brokers=2, zookeepers=1) as machines:
        broker = machines.brokers[2]
        assert broker.stop() == 0
        known = machines.truth.node("/features")
        assert known is not None
        name, level = next(iter(known["levels"].items()))
        finalize(machines.connect, known | {"levels": known["levels"] | {name: level + 1}})
        with pytest.raises(
            BrokerDidNotStart, match=f"level {level + 1} of {name}, which this version does not"
        ):
            machines.start([2])
        assert machines.truth.brokers() == {1}
        finalize(machines.connect, known)
        machines.start([2])
        assert machines.truth.brokers() == {1, 2}


def finalize(connect: str, fields: dict[str, Any]) -> None:
    """As a controller of a later version would."""
    client = KazooClient(connect)
    client.start()
    client.set("/features", json.dumps(fields).encode())
    client.stop()
    client.close()
