"""Brokers of today and ZooKeeper on what an older cluster has left behind, before and after the level of
`tidelog.version` is raised (0008, "The way up")."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.chaos.awaiting import await_that
from tests.chaos.truth import NOBODY, Truth
from tests.testing.watching import TIMEOUT_S
from tests.upgrade.looking import (
    FORMER_PLACES,
    NEWEST_LEVEL,
    append,
    check_records,
    committed,
    group_places,
    have_moved,
    raise_level,
)
from tests.upgrade.stored import (
    CLUSTER,
    CLUSTER_SETTINGS,
    COMMITTED,
    FLUSHED,
    GROUPS_PARTITIONS,
    GROUPS_TOPIC,
    NODE_IDS,
    RECORDS,
    SINGLE,
    SINGLE_ON,
    TIDES,
    as_on_this_machine,
    log_of,
    places,
    unpack,
)
from tidelog.cli.cluster_start import CHROOT
from tidelog.cli.zookeeper_process import ZooKeeperProcess
from tidelog.testing.process import BrokerProcess

pytestmark = pytest.mark.usefixtures("needs_zookeeper")

REPLICATED = [*places(TIDES, FLUSHED), *((GROUPS_TOPIC, index) for index in range(GROUPS_PARTITIONS))]
LOST, KEPT = (SINGLE, 0), (SINGLE, 1)
ALL_FLUSHED = 2  # as the node of a partition says it


class Upgraded:
    """Today's brokers, not started yet, on a copy of the data."""

    def __init__(self, folder: Path, connect: str) -> None:
        self._folder = folder
        self.truth = Truth(connect)
        self.before = {place: self._longest(place) for place in REPLICATED}
        shared = CLUSTER_SETTINGS | {"zookeeper.connect": connect}
        self._brokers = [
            BrokerProcess(folder / f"broker-{node_id}", shared | {"node.id": str(node_id)})
            for node_id in NODE_IDS
        ]

    def _longest(self, place: tuple[str, int]) -> bytes:
        return max((log_of(self.data(node_id, place)) for node_id in NODE_IDS), key=len)

    def data(self, node_id: int, place: tuple[str, int]) -> Path:
        return self._folder / f"broker-{node_id}" / "data" / "{}-{}".format(*place)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self._brokers)

    def start(self) -> None:
        with ThreadPoolExecutor(len(self._brokers)) as together:
            list(together.map(BrokerProcess.start, self._brokers))

    def kill(self) -> None:
        for broker in self._brokers:
            if broker.is_running:
                broker.kill()

    def leaders(self) -> dict[tuple[str, int], int]:
        return {(each.topic, each.partition): each.leader for each in self.truth.partitions()}

    def level(self) -> int:
        node = self.truth.node("/features")
        assert node is not None
        (level,) = node["levels"].values()
        return int(level)

    def flush(self, topic: str) -> int:
        """Whether all that is committed in its first partition is flushed, as the store has it."""
        named = self.truth.node(f"/names/{topic}")
        node = self.truth.node(f"/topics/{named['id']}/0") if named is not None else None
        return int(node.get("flush", 0)) if node is not None else 0

    def check_disks(self) -> None:
        """Every replica has what was there before, and the same as the others."""
        with ThreadPoolExecutor(len(self._brokers)) as together:
            assert [*together.map(BrokerProcess.stop, self._brokers)] == [0] * len(self._brokers)
        for place, before in self.before.items():
            logs = {log_of(self.data(node_id, place)) for node_id in NODE_IDS}
            assert len(logs) == 1, f"replicas of {place} differ"
            assert logs.pop().startswith(before), place


@contextmanager
def upgraded(folder: Path) -> Iterator[Upgraded]:
    unpack(CLUSTER, folder)
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperProcess(folder / "zookeeper"))
        cluster = Upgraded(folder, zookeeper.connect + CHROOT)
        stack.callback(cluster.truth.close)
        stack.callback(cluster.kill)
        yield cluster


def test_a_cluster_that_was_killed_goes_on_and_up_a_level(tmp_path: Path) -> None:
    with upgraded(tmp_path) as cluster:
        as_on_this_machine(tmp_path)
        cluster.start()
        cluster.truth.await_whole({*NODE_IDS})
        servers = cluster.bootstrap_servers
        assert cluster.level() == 1
        assert group_places(servers) == FORMER_PLACES
        check_all(cluster, 0)
        raise_level(servers)
        assert cluster.level() == NEWEST_LEVEL
        await_that(lambda: have_moved(servers), "groups do not move", TIMEOUT_S)
        append(servers, places(), RECORDS)
        cluster.kill()
        cluster.start()
        cluster.truth.await_whole({*NODE_IDS})
        assert have_moved(servers)
        check_all(cluster, 1)
        cluster.check_disks()


def check_all(cluster: Upgraded, more: int) -> None:
    check_records(cluster.bootstrap_servers, places(), more)
    assert committed(cluster.bootstrap_servers) == {group: {offset} for group, offset in COMMITTED.items()}


def test_a_cluster_that_lost_power_waits_for_the_level_and_then_for_nobody(tmp_path: Path) -> None:
    with upgraded(tmp_path) as cluster:
        leader = next(each for each in cluster.truth.partitions(TIDES)).leader
        for place, node_id in ((LOST, SINGLE_ON), ((TIDES, 0), leader)):
            shutil.rmtree(cluster.data(node_id, place))
        cluster.start()
        alone = {LOST: NOBODY, KEPT: SINGLE_ON}
        await_that(
            lambda: cluster.leaders() == dict.fromkeys(REPLICATED, NOBODY) | alone,
            lambda: f"somebody leads who may have lost records: {cluster.leaders()}",
            TIMEOUT_S,
        )
        check_records(cluster.bootstrap_servers, [KEPT])
        raise_level(cluster.bootstrap_servers)
        await_that(lambda: is_whole(cluster), lambda: str(cluster.truth.partitions()), TIMEOUT_S)
        servers = cluster.bootstrap_servers
        check_records(servers, [KEPT, *places(TIDES, FLUSHED)])
        await_that(lambda: have_moved(servers), "groups do not move", TIMEOUT_S)
        assert committed(servers) == {group: {offset} for group, offset in COMMITTED.items()}
        assert cluster.leaders()[LOST] == NOBODY
        await_that(
            lambda: cluster.flush(FLUSHED) == ALL_FLUSHED, "the next loss of power is not excused", TIMEOUT_S
        )
        cluster.check_disks()


def is_whole(cluster: Upgraded) -> bool:
    found = {(each.topic, each.partition): each.is_whole for each in cluster.truth.partitions()}
    return found == dict.fromkeys(found, True) | {LOST: False}
