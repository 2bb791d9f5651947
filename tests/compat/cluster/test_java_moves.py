"""Kafka's own `kafka-reassign-partitions`, 4.3: plan, move with a throttle, look, call back; and its
`kafka-leader-election`: against brokers that are processes, on a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.chaos.awaiting import await_that
from tests.chaos.machines import Machines
from tests.compat.client import eventually
from tests.compat.java.jvm import Jvm
from tests.compat.java.shell import PACKAGE, Shell
from tests.testing.watching import TIMEOUT_S, Watcher

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
REASSIGN = f"{PACKAGE}.reassign.ReassignPartitionsCommand"
ELECT = f"{PACKAGE}.LeaderElectionCommand"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
SLOW, SIZE = 20_000, 2_000_000  # bytes a second, and what there is to move: it does not end by itself
SETTINGS = {"leader.imbalance.check.interval.seconds": "3600"}  # whoever leads is the tool's doing


@pytest.fixture(scope="module")
def machines(needs_zookeeper: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with Machines(tmp_path_factory.mktemp("moves"), 4, 1, SETTINGS) as started:
        yield started


@pytest.fixture
def shell(jvm: Jvm, machines: Machines) -> Shell:
    return Shell(jvm, machines.bootstrap_servers)


def filled(machines: Machines, topic: str, replicas: int = 2, **config: object) -> Watcher:
    watcher = Watcher(machines.bootstrap_servers)
    watcher.create(topic, 1, replicas, **config)
    producer = Producer({"bootstrap.servers": machines.bootstrap_servers, "log_level": 0})
    for _ in range(SIZE // 10_000):
        producer.produce(topic, bytes(10_000), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return watcher


def plan(path: Path, topic: str, *replicas: int) -> tuple[str, str]:
    """The option that names a file with the move of a topic's one partition."""
    moves = [{"topic": topic, "partition": 0, "replicas": list(replicas)}]
    path.write_text(json.dumps({"version": 1, "partitions": moves}))
    return "--reassignment-json-file", str(path)


def elsewhere(watcher: Watcher, topic: str) -> tuple[int, ...]:
    """The brokers that have none of it."""
    return tuple(sorted({1, 2, 3, 4} - {*watcher.partitions(topic)[0].replicas}))


def has_none(shell: Shell, names: Iterable[str], kind: str, entity: str) -> bool:
    """Whether none of these settings is set there, as a broker knows it that may be a little behind."""
    told = shell.configs(kind, "--entity-name", entity)
    return not any(f"  {name}=" in told for name in names)


def test_a_plan_is_proposed_carried_out_and_verified(
    machines: Machines, shell: Shell, tmp_path: Path
) -> None:
    watcher = filled(machines, "planned")
    target = elsewhere(watcher, "planned")
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "planned"}]}))
    told = shell.run(
        REASSIGN,
        "--generate",
        "--topics-to-move-json-file",
        str(topics),
        "--broker-list",
        ",".join(map(str, target)),
    )
    current, proposed = (json.loads(line)["partitions"] for line in told if line.startswith("{"))
    assert tuple(current[0]["replicas"]) == watcher.partitions("planned")[0].replicas
    assert tuple(sorted(proposed[0]["replicas"])) == target
    file = plan(tmp_path / "plan.json", "planned", *proposed[0]["replicas"])
    begun = "\n".join(shell.run(REASSIGN, "--execute", *file, "--throttle", "100000000"))
    assert "Successfully started partition reassignment for planned-0" in begun

    def is_complete() -> bool:
        verified = "\n".join(shell.run(REASSIGN, "--verify", *file, "--preserve-throttles"))
        return "Reassignment of partition planned-0 is completed." in verified

    eventually(is_complete, "the partition has not moved")
    seen = watcher.partitions("planned")[0]
    assert seen.replicas == tuple(proposed[0]["replicas"]) and seen.in_sync_replicas == {*target}
    rate = "  leader.replication.throttled.rate=100000000 "
    eventually(lambda: rate in shell.configs("brokers", "--entity-name", "1"), "no throttle is set")
    assert "Clearing broker-level throttles" in "\n".join(shell.run(REASSIGN, "--verify", *file))
    for broker in "1234":
        eventually(partial(has_none, shell, RATES, "brokers", broker), "a throttle stays")
    eventually(lambda: has_none(shell, REPLICAS, "topics", "planned"), "throttled replicas stay")


def test_a_move_under_a_throttle_is_listed_hurried_and_called_back(
    machines: Machines, shell: Shell, tmp_path: Path
) -> None:
    watcher = filled(machines, "slow")
    before, target = watcher.partitions("slow")[0].replicas, elsewhere(watcher, "slow")
    file = plan(tmp_path / "plan.json", "slow", *target)
    assert "No partition reassignments found." in shell.run(REASSIGN, "--list")
    shell.run(REASSIGN, "--execute", *file, "--throttle", str(SLOW))
    (line,) = [line for line in shell.run(REASSIGN, "--list") if line.startswith("slow-0: ")]
    assert f"adding: {','.join(map(str, target))}" in line
    assert "is still in progress" in "\n".join(shell.run(REASSIGN, "--verify", *file))
    assert "Cannot execute because there is an existing partition assignment" in shell.fail(
        REASSIGN, "--execute", *file
    )
    cancelled = "\n".join(shell.run(REASSIGN, "--cancel", *file))
    assert "Successfully cancelled partition reassignment for: slow-0" in cancelled
    watcher.until(
        lambda: sorted(watcher.partitions("slow")[0].replicas) == sorted(before), "it has not come back"
    )
    assert "No partition reassignments found." in shell.run(REASSIGN, "--list")
    eventually(lambda: has_none(shell, RATES, "brokers", "1"), "the throttle stays")
    shell.run(REASSIGN, "--execute", *file, "--throttle", str(SLOW))
    assert "slow-0: " in "\n".join(shell.run(REASSIGN, "--list"))
    shell.run(REASSIGN, "--execute", "--additional", *file, "--throttle", "100000000")
    watcher.until(lambda: watcher.partitions("slow")[0].replicas == target, "it is not faster now")
    shell.run(REASSIGN, "--verify", *file)


def test_what_cannot_be_moved_is_told(shell: Shell, machines: Machines, tmp_path: Path) -> None:
    filled(machines, "stays")
    file = plan(tmp_path / "nowhere.json", "stays", 9)
    assert "Unknown broker id 9" in shell.fail(REASSIGN, "--execute", *file)
    nothing = plan(tmp_path / "nothing.json", "stays", 1, 2)
    told = "\n".join(shell.run(REASSIGN, "--cancel", *nothing))
    assert "None of the specified partition reassignments are active" in told


def test_the_replica_that_is_now_the_first_leads_when_it_is_elected(
    machines: Machines, shell: Shell, tmp_path: Path
) -> None:
    watcher = filled(machines, "reordered")
    first, second = watcher.partitions("reordered")[0].replicas
    shell.run(REASSIGN, "--execute", *plan(tmp_path / "plan.json", "reordered", second, first))
    watcher.until(
        lambda: watcher.partitions("reordered")[0].replicas == (second, first), "the order has not changed"
    )
    assert watcher.partitions("reordered")[0].leader == first
    place = ("--topic", "reordered", "--partition", "0")
    assert shell.run(ELECT, "--election-type", "PREFERRED", *place) == [
        "Successfully completed leader election (PREFERRED) for partitions reordered-0"
    ]
    watcher.until(lambda: watcher.partitions("reordered")[0].leader == second, "the first does not lead")
    assert shell.run(ELECT, "--election-type", "UNCLEAN", *place) == [
        "Valid replica already elected for partitions reordered-0"
    ]


def test_a_replica_that_lacks_records_leads_only_when_it_is_told_to(
    machines: Machines, shell: Shell, tmp_path: Path
) -> None:
    watcher = filled(machines, "behind", min_insync_replicas=1)
    ahead, behind = watcher.partitions("behind")[0].replicas
    machines.kill(behind)
    alone = "the other one is still in sync"
    await_that(lambda: machines.truth.partitions("behind")[0].in_sync_replicas == (ahead,), alone, TIMEOUT_S)
    producer = Producer({"bootstrap.servers": machines.bootstrap_servers, "log_level": 0})
    producer.produce("behind", b"of one", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    machines.kill(ahead)
    machines.start([behind])
    led = "somebody leads"
    await_that(lambda: machines.truth.partitions("behind")[0].leader == -1, led, TIMEOUT_S)
    place = ("--topic", "behind", "--partition", "0")
    assert "PreferredLeaderNotAvailableException" in shell.fail(ELECT, "--election-type", "PREFERRED", *place)
    assert shell.run(ELECT, "--election-type", "UNCLEAN", *place) == [
        "Successfully completed leader election (UNCLEAN) for partitions behind-0"
    ]
    watcher.until(lambda: watcher.partitions("behind")[0].leader == behind, "it does not lead")
    machines.start([ahead])
    machines.await_whole()
