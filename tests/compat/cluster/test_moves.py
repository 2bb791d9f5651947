"""Replicas move to and fro under producers and consumers: nothing lost, doubled or reordered (R11)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.reading import check_topic
from tests.chaos.workload import COMPRESSED, IDEMPOTENT
from tests.compat.cluster.load import ReplicatedLoad
from tests.compat.cluster.raw import ask, part
from tests.differential.entities import milliseconds
from tests.soak import is_soak
from tests.testing.watching import Watcher, watch
from tidelog.protocol.errors import ErrorCode
from tidelog.testing import Cluster

ALTER, LIST = (45, 1), (46, 0)
SOON = milliseconds(20_000)
PARTITIONS = 3
NODES = (1, 2, 3, 4)
Targets = dict[int, tuple[int, ...] | None]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {"log.dirs": str(tmp_path), "log.segment.bytes": str(256 * 1024)}
    with Cluster(4, None, **settings) as cluster:
        yield cluster


def move(cluster: Cluster, topic: str, targets: Targets, node_id: int = 1) -> list[ErrorCode]:
    wanted = tuple(
        part(ALTER, "ReassignablePartition", partition_index=index, replicas=target)
        for index, target in targets.items()
    )
    asked = part(ALTER, "ReassignableTopic", name=topic, partitions=wanted)
    answer = ask(cluster[node_id], ALTER, topics=(asked,), timeout=SOON, allow_replication_factor_change=True)
    assert answer.error_code == ErrorCode.none
    return [row.error_code for row in answer.responses[0].partitions]


def moving(cluster: Cluster, node_id: int = 1) -> dict[tuple[str, int], tuple[int, ...]]:
    """What is on its way, and who is being added."""
    answer = ask(cluster[node_id], LIST, topics=None, timeout=SOON)
    return {
        (topic.name, row.partition_index): tuple(row.adding_replicas)
        for topic in answer.topics
        for row in topic.partitions
    }


def until_moved(cluster: Cluster, watcher: Watcher, topic: str, targets: Targets) -> None:
    def are_there() -> bool:
        seen = watcher.partitions(topic)
        return not moving(cluster) and all(
            seen[index].replicas == target and seen[index].in_sync_replicas == {*(target or ())}
            for index, target in targets.items()
        )

    watcher.until(are_there, f"{topic} has not moved to {targets}", topic)


def folders(tmp_path: Path, topic: str) -> dict[int, list[int]]:
    """Which broker has which partitions on its disk."""
    found = {node_id: (tmp_path / str(node_id)).glob(f"{topic}-*") for node_id in NODES}
    return {
        node_id: sorted(int(path.name.rpartition("-")[2]) for path in paths if path.name[-1].isdecimal())
        for node_id, paths in found.items()
    }


def until_only_replicas_have_it(watcher: Watcher, tmp_path: Path, topic: str) -> None:
    def is_so() -> bool:
        replicas = [each.replicas for each in watcher.partitions(topic)]
        expected = {n: [index for index, each in enumerate(replicas) if n in each] for n in NODES}
        return folders(tmp_path, topic) == expected

    watcher.until(is_so, "somebody has what is not its", topic)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_partitions_move_to_and_fro_and_their_producers_notice_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    chance, watcher = random.Random(8), watch(cluster)
    writers = {"idempotent": IDEMPOTENT, "compressed": COMPRESSED}
    with ReplicatedLoad(cluster, "moved", PARTITIONS, writers) as load:
        load.resume()
        for _ in range(40 if is_soak() else 6):
            load.await_acknowledged(chance.randrange(500, 3_000))
            targets: Targets = {
                index: tuple(chance.sample(NODES, chance.choice((2, 3, 3)))) for index in range(PARTITIONS)
            }
            node_id = chance.choice(NODES)
            assert move(cluster, "moved", targets, node_id) == [ErrorCode.none] * PARTITIONS
            if chance.random() < 0.5:
                again: Targets = {0: tuple(chance.sample(NODES, 3))}
                assert move(cluster, "moved", again, node_id) == [ErrorCode.none]
                targets |= again
            until_moved(cluster, watcher, "moved", targets)
        load.finish()
        findings = check_topic(cluster.bootstrap_servers, load)
    assert findings.is_clean, findings
    until_only_replicas_have_it(watcher, tmp_path, "moved")


@pytest.mark.timeout(300)
def test_a_move_that_cannot_go_on_waits_is_cancelled_and_its_broker_cleans_up_when_it_is_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    watcher = watch(cluster)
    with ReplicatedLoad(cluster, "held", 1, {"idempotent": IDEMPOTENT}) as load:
        assert move(cluster, "held", {0: (1, 2, 3)}) == [ErrorCode.none]
        until_moved(cluster, watcher, "held", {0: (1, 2, 3)})
        cluster.kill(4)
        assert move(cluster, "held", {0: (4, 1, 2)}) == [ErrorCode.none]
        load.resume()
        load.await_acknowledged(500)
        assert moving(cluster, 2) == {("held", 0): (4,)}
        assert watcher.partitions("held")[0].replicas == (4, 1, 2, 3)
        assert move(cluster, "held", {0: None}, 3) == [ErrorCode.none]
        assert move(cluster, "held", {0: None}, 3) == [ErrorCode.no_reassignment_in_progress]
        until_moved(cluster, watcher, "held", {0: (1, 2, 3)})
        assert move(cluster, "held", {0: (4, 1, 2)}) == [ErrorCode.none]
        cluster.start(4)
        until_moved(cluster, watcher, "held", {0: (4, 1, 2)})
        cluster.stop(4)
        assert move(cluster, "held", {0: (3, 1, 2)}) == [ErrorCode.none]
        until_moved(cluster, watcher, "held", {0: (3, 1, 2)})
        assert folders(tmp_path, "held")[4] == [0]
        cluster.start(4)
        until_only_replicas_have_it(watcher, tmp_path, "held")
        load.finish()
        findings = check_topic(cluster.bootstrap_servers, load)
    assert findings.is_clean, findings
