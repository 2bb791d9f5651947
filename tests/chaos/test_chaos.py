"""Five brokers and three ZooKeeper members under faults of every kind: what was acknowledged is there once,
in its place and in order, for whoever reads; and whatever must go on meanwhile, goes on.

Checked as Jepsen's Kafka workload does (`anomalies`). An hour and at least 200 faults in `make soak`; in any
other run one fault of each family, or as many as fit into TIDELOG_CHAOS_SECONDS. What was done when is told
in `story.txt` beside the logs of the brokers.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.clients import Clients
from tests.chaos.faults import Faults
from tests.chaos.machines import Machines
from tests.chaos.nemesis import Nemesis
from tests.chaos.replicas import differing_replicas
from tests.soak import Tally, choose_seed, is_soak, record, record_chaos

TOPIC, PARTITIONS = "chaos", 6
SAMPLE_S = float(os.environ.get("TIDELOG_CHAOS_SECONDS", "0"))
SOAK_S, SOAK_FAULTS = 3_600.0, 200
SENDERS: dict[str, dict[str, Any]] = {"plain": {}, "packed": {"compression.type": "lz4"}}
GROUPS: dict[str, dict[str, Any]] = {
    "classic": {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000},
    "consumer": {"group.protocol": "consumer"},
}


@pytest.mark.soak
@pytest.mark.timeout(10_000 if is_soak() else 1_800)
@pytest.mark.usefixtures("needs_zookeeper")
def test_whatever_fails_nothing_is_lost_doubled_or_reordered(tmp_path: Path) -> None:
    seed = choose_seed()
    with Machines(tmp_path) as machines:
        machines.create(TOPIC, PARTITIONS)
        with Clients(machines.bootstrap_servers, TOPIC, PARTITIONS, SENDERS, GROUPS, tmp_path) as clients:
            torment(machines, clients, seed)
        assert differing_replicas(machines) == []


def torment(machines: Machines, clients: Clients, seed: int) -> None:
    chance = random.Random(seed)
    faults = Faults(machines, TOPIC, list(GROUPS), chance)
    nemesis = Nemesis(machines, clients, faults, chance)
    nemesis.fill(faults.kinds if is_soak() or SAMPLE_S else faults.draw_families())
    outcome, found = "failed", dict[str, int]()
    try:
        clients.await_going()
        begun = time.monotonic()
        while not is_over(time.monotonic() - begun, nemesis):
            nemesis.strike()
            assert not any(clients.witness.tally.values()), clients.witness.examples
        machines.await_whole()
        clients.finish()
        found = clients.judge()
        assert not any(found.values()), clients.witness.examples
        assert clients.seen.problems == []
        outcome = "passed"
    finally:
        found = found or clients.witness.tally
        tell(nemesis, clients, found, seed)
        missing = found["lost-write"] + found["unseen"]
        counts = (nemesis.tally.total(), clients.witness.acknowledged_count, missing, found["duplicate"])
        record_chaos(nemesis.tally, nemesis.slowest_s, found)
        record("chaos: 5 brokers, 3 ZooKeeper members", Tally(outcome, *counts, seed))


def is_over(seconds: float, nemesis: Nemesis) -> bool:
    if is_soak():
        return seconds >= SOAK_S and nemesis.tally.total() >= SOAK_FAULTS
    return seconds >= SAMPLE_S if SAMPLE_S else nemesis.left_count == 0


def tell(nemesis: Nemesis, clients: Clients, found: dict[str, int], seed: int) -> None:
    print(f"seed {seed}: {nemesis.tally.total()} faults: {dict(sorted(nemesis.tally.items()))}")
    print(f"slowest, in seconds: { {kind: round(s, 1) for kind, s in sorted(nemesis.slowest_s.items())} }")
    print(f"{clients.witness.acknowledged_count} acknowledged, {clients.witness.polled_count} read: {found}")
    for example in clients.witness.examples:
        print(example)
    print(f"readers were told: {dict(clients.seen.errors)}; story in {nemesis.story.path}")
