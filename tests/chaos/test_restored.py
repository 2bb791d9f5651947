"""ZooKeeper is restored from a backup under a cluster: brokers refuse it until an operator says so.

Nothing that was acknowledged since the backup is lost (R16)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.chaos.awaiting import await_that
from tests.chaos.machines import Machines
from tests.chaos.reading import check_topic
from tests.chaos.replicas import differing_replicas
from tests.chaos.truth import Truth
from tests.chaos.workload import IDEMPOTENT, Load
from tests.cli.forks import run
from tests.soak import is_soak
from tidelog.testing.process import BrokerDidNotStart

pytestmark = pytest.mark.usefixtures("needs_zookeeper")

TOPIC, PARTITIONS = "kept", 3
GONE = 3  # since the backup
RECORDS = 20_000 if is_soak() else 2_000
WRITERS = {"idempotent": IDEMPOTENT}
WAIT_S = 120.0


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_store_that_was_restored_loses_nothing_once_somebody_has_said_so(tmp_path: Path) -> None:
    with Machines(tmp_path, 3, 1) as machines:
        machines.create("first", 1)  # by which all brokers are known to each other
        machines.await_whole()
        with Load(machines.bootstrap_servers, TOPIC, PARTITIONS, WRITERS, replicas=3) as load:
            load.resume()
            load.await_acknowledged(RECORDS)
            backup = _back_up(machines, tmp_path)
            machines.kill(GONE)
            await_that(lambda: _is_out(machines), "who is gone stays in the ISR", WAIT_S)
            seen = machines.truth.last_notice()
            await_that(lambda: _noted(machines) >= seen, "the position is not noted", WAIT_S)
            load.await_acknowledged(2 * RECORDS)
            load.finish()
            for node_id in machines.brokers:
                machines.kill(node_id)
            _restore(machines, backup)
            with pytest.raises(BrokerDidNotStart, match="tidelog cluster restored"):
                machines.start([1])
            outcome = run(["cluster", "restored", *_store_of(machines), "--yes"], os.environ, b"")
            assert outcome.exit_code == 0, outcome
            machines.start(machines.brokers)
            machines.truth = Truth(machines.connect)  # the last one has seen the newer store
            machines.await_whole()
            findings = check_topic(machines.bootstrap_servers, load)
            assert findings.is_clean, findings
            assert differing_replicas(machines) == []
            machines.truth.close()


def test_a_cluster_whose_brokers_run_is_not_declared_restored(tmp_path: Path) -> None:
    with Machines(tmp_path, 1, 1) as machines:
        outcome = run(["cluster", "restored", *_store_of(machines), "--yes"], os.environ, b"")
    assert outcome.exit_code == 1
    assert "brokers are registered (1 at 127.0.0.1:" in outcome.error


def _store_of(machines: Machines) -> list[str]:
    words = [f"zookeeper.connect={machines.connect}", "zookeeper.session.timeout.ms=4000"]
    return [word for each in words for word in ("-o", each)]


def _noted(machines: Machines) -> int:
    """The last change of the store that the first broker has on its disk; a checkpoint writes it."""
    noted: int = json.loads((machines.data(1) / ".tidelog-store").read_bytes())["change"]
    return noted


def _is_out(machines: Machines) -> bool:
    return all(GONE not in each.in_sync_replicas for each in machines.truth.partitions(TOPIC))


def _back_up(machines: Machines, folder: Path) -> Path:
    """As an operator does it who can do without ZooKeeper for a moment."""
    (member,) = machines.zookeepers.values()
    member.stop()
    shutil.copytree(member.directory, folder / "backup")
    member.start()
    return folder / "backup"


def _restore(machines: Machines, backup: Path) -> None:
    (member,) = machines.zookeepers.values()
    member.kill()
    shutil.rmtree(member.directory)
    shutil.copytree(backup, member.directory)
    member.start()
