"""One of a broker's directories is on a disk that is full: others lead what is in it, the broker goes on with
the rest, and has all of it again when there is room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.awaiting import await_that
from tests.chaos.clients import Clients
from tests.chaos.machines import Machines
from tests.chaos.truth import Led

pytestmark = pytest.mark.usefixtures("needs_zookeeper")

TOPIC, PARTITIONS, FULL = "doubled", 6, 1
GROUPS: dict[str, dict[str, Any]] = {"consumer": {"group.protocol": "consumer"}}
WAIT_S = 120.0


@pytest.mark.timeout(600)
def test_a_broker_goes_on_without_the_directory_whose_disk_is_full(tmp_path: Path) -> None:
    with Machines(tmp_path, 3, 1, has_second_directories=True) as machines:
        if FULL not in machines.disks:
            pytest.skip("the system does not let users have namespaces: no disk of one's own")
        machines.create(TOPIC, PARTITIONS)
        machines.await_whole()
        disk, broker = machines.disks[FULL], machines.brokers[FULL]
        # The store lists a replica as in sync from the start, also before its broker has made the folder.
        folders = (disk.seen / "data", Path(broker.properties["log.dirs"].split(",")[1]))
        await_that(
            lambda: sum(len(partitions_in(each)) for each in folders) == PARTITIONS, "folders lack", WAIT_S
        )
        lost = partitions_in(folders[0])
        assert lost and lost != {*range(PARTITIONS)}
        with Clients(
            machines.bootstrap_servers, TOPIC, PARTITIONS, {"plain": {}}, GROUPS, tmp_path
        ) as clients:
            clients.await_going()
            disk.fill()
            await_that(
                lambda: (
                    [has_left(each) for each in machines.truth.partitions(TOPIC)]
                    == [index in lost for index in range(PARTITIONS)]
                ),
                "it is in sync with what it cannot write, or is not with what it can",
                WAIT_S,
            )
            clients.await_passed(clients.mark())
            assert broker.is_running and "directory offline" in broker.stderr()
            disk.empty()
            assert broker.stop() == 0
            machines.start([FULL])
            machines.await_whole()
            clients.await_passed(clients.mark())
            assert clients.failures == []
            clients.finish()
            found = clients.judge()
            assert not any(found.values()) and clients.seen.problems == [], clients.witness.examples


def partitions_in(data: Path) -> set[int]:
    return {int(path.name.rpartition("-")[2]) for path in data.glob(f"{TOPIC}-*")}


def has_left(led: Led) -> bool:
    return led.leader not in (FULL, -1) and FULL not in led.in_sync_replicas
