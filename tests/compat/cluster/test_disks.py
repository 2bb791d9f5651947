"""One of a broker's directories fails: others lead what was in it, and the broker goes on with the rest."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.reading import check_topic
from tests.chaos.workload import IDEMPOTENT
from tests.compat.cluster.load import ReplicatedLoad
from tests.testing.watching import watch
from tidelog.base.files import Buffer, DiskFile
from tidelog.cluster import controller
from tidelog.cluster.store import Check, Operation
from tidelog.testing import Cluster

PARTITIONS = 6


def test_a_new_disk_takes_its_broker_s_place_though_the_store_refuses_it_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = controller.decide_registration, 0

    def decide(*arguments: Any) -> list[Operation]:
        nonlocal asked
        asked += 1
        return [*real(*arguments), *([Check("/nowhere")] if asked == 1 else [])]

    with Cluster(3, None, **{"log.dirs": str(tmp_path)}) as cluster:
        watcher = watch(cluster)
        watcher.create("t", PARTITIONS)
        watcher.until_in_sync("t")
        cluster.kill(1)
        shutil.rmtree(tmp_path / "1")
        monkeypatch.setattr(controller, "decide_registration", decide)
        cluster.start(1)
        watcher.until_in_sync("t")
    assert asked == 2


def test_what_a_failed_directory_had_is_led_by_others_and_waited_for_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    broken = tmp_path / "a" / "1"
    real = DiskFile.append
    is_broken = False

    def append(self: DiskFile, data: Buffer) -> int:
        if is_broken and self._directory.path.startswith(str(broken)):
            raise OSError(errno.EIO, "Input/output error")
        return real(self, data)

    monkeypatch.setattr(DiskFile, "append", append)
    settings = {"log.dirs": folders, "replica.lag.time.max.ms": "600000"}
    writers = {"idempotent": IDEMPOTENT}
    with Cluster(3, None, **settings) as cluster, ReplicatedLoad(cluster, "t", PARTITIONS, writers) as load:
        watcher = watch(cluster)
        watcher.create("idle", PARTITIONS)
        watcher.until_in_sync("t", "idle")
        lost = {int(path.name.rpartition("-")[2]) for path in broken.glob("t-*")}
        kept = {*range(PARTITIONS)} - lost
        leaders = [each.leader for each in watcher.partitions("t")]
        assert {leaders[index] for index in lost} == {leaders[index] for index in kept} == {1, 2, 3}
        load.resume()
        load.await_acknowledged(1_000)
        is_broken = True

        def is_left() -> bool:
            seen = watcher.partitions("t")
            return all(seen[index].in_sync_replicas == {2, 3} for index in lost) and all(
                seen[index].leader in (2, 3) for index in lost
            )

        watcher.until(is_left, "broker 1 has not left what it cannot have", "t")
        idle_lost = {int(path.name.rpartition("-")[2]) for path in broken.glob("idle-*")}
        watcher.until(
            lambda: all(watcher.partitions("idle")[index].in_sync_replicas == {2, 3} for index in idle_lost),
            "broker 1 has not left what nobody writes to",
            "idle",
        )
        idle_left = watcher.partitions("idle")
        assert idle_lost
        load.await_acknowledged(1_000)
        seen = watcher.partitions("t")
        assert [index for index in kept if seen[index].leader == 1]
        assert all(seen[index].in_sync_replicas == {1, 2, 3} for index in kept)
        idle = watcher.partitions("idle")
        assert [each.in_sync_replicas for each in idle] == [each.in_sync_replicas for each in idle_left]
        load.finish()
        findings = check_topic(cluster.bootstrap_servers, load)
    assert findings.is_clean, findings
