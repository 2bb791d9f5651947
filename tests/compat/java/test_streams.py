"""Kafka Streams 4.3 with `exactly_once_v2`, killed while it consumes, transforms and produces.

One part of the chain keeps nothing; the other counts, in a store whose changelog is a compacted topic. With
stores in memory, a count after a restart is what the changelog has of committed transactions.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from bench.peers.kafka import fetch_jars, find_java
from bench.peers.process import PeerMissing
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compat.confluent.driver import Confluent
from tests.compat.confluent.operator import ConfluentOperator
from tests.compat.java.jars import streams
from tests.compat.java.jvm import LIGHT, compile_sources
from tests.soak import Tally, choose_seed, is_soak, record
from tests.testing.watching import Watcher

SOURCES = Path(__file__).parent / "streams"
SAMPLE_KILLS, SOAK_KILLS = 1, 20
RECORDS_A_KILL = 400
KEYS, PARTITIONS = 7, 2
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Runs the chain, but for its arguments."""
    folder = tmp_path_factory.mktemp("streams")
    try:
        java = find_java()
        classpath = ":".join(map(str, [*streams(), *sorted(fetch_jars().glob("*.jar"))]))
        compile_sources(SOURCES, java, classpath, folder)
    except PeerMissing as missing:
        pytest.skip(str(missing))
    return [java, *LIGHT, "-cp", f"{folder}:{classpath}", "Chain"]


class Follower:
    """What a reader of committed records has seen of a partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "never-joined", "enable.auto.commit": False}
        self._consumer = Consumer(settings | {"isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.seen: list[tuple[str, str]] = []

    def await_count(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.seen) < count:
            message = self._consumer.poll(0.5)
            if message is None:
                assert time.monotonic() < deadline, f"{len(self.seen)} of {count} records came"
                continue
            assert message.error() is None, message.error()
            self.seen.append(((message.key() or b"").decode(), (message.value() or b"").decode()))

    def close(self) -> None:
        self._consumer.close()


class Run:
    """A chain on topics of its own, and those who read what it commits."""

    def __init__(self, bootstrap: str, command: list[str], folder: Path) -> None:
        self.name = f"streams-{uuid4().hex[:8]}"
        self.source, self.target, self.counts = (f"{self.name}-{each}" for each in ("in", "turned", "counts"))
        self.watcher = Watcher(bootstrap)
        self.watcher.create(self.source, PARTITIONS)
        self.watcher.create(self.target)
        self.watcher.create(self.counts)
        self.bootstrap, self.log = bootstrap, folder / "streams.log"
        self._command = [*command, bootstrap, self.name, str(folder / "state")]
        self._command += [self.source, self.target, self.counts]
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self.sent, self.kills = 0, 0

    def send(self) -> None:
        for number in range(self.sent, self.sent + RECORDS_A_KILL):
            self._producer.produce(self.source, f"value {number}", key=f"key {number % KEYS}")
        assert self._producer.flush(PATIENCE_S) == 0
        self.sent += RECORDS_A_KILL

    @contextmanager
    def streaming(self) -> Iterator[subprocess.Popen[bytes]]:
        with (
            self.log.open("ab") as log,
            subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=log, stderr=log) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def kill_after(self, follower: Follower, count: int) -> None:
        """After so many records more, of those that it has not consumed yet."""
        self.send()
        with self.streaming() as process:
            follower.await_count(len(follower.seen) + count)
            process.send_signal(signal.SIGKILL)
        self.kills += 1

    def end(self, *followers: Follower) -> None:
        """It ends by itself, when everybody has seen everything."""
        self.send()
        with self.streaming() as process:
            for each in followers:
                each.await_count(self.sent)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(PATIENCE_S) == 0

    def seen(self, topic: str) -> list[tuple[str, str]]:
        records = Confluent(self.bootstrap).read_to_end(topic, committed_only=True)
        return [((each.key or b"").decode(), (each.value or b"").decode()) for each in records]


@pytest.mark.soak
@pytest.mark.timeout(7_200 if is_soak() else 900)
def test_streams_killed_in_the_middle_make_each_output_once(
    group_bootstrap: str, command: list[str], tmp_path: Path
) -> None:
    seed, outcome, doubled, missing = choose_seed(), "failed", 0, 0
    chance = random.Random(seed)
    run = Run(group_bootstrap, command, tmp_path)
    try:
        with (
            closing(Follower(group_bootstrap, run.target)) as turned,
            closing(Follower(group_bootstrap, run.counts)) as counted,
        ):
            for _ in range(SOAK_KILLS if is_soak() else SAMPLE_KILLS):
                run.kill_after(turned, chance.randrange(1, RECORDS_A_KILL // 2))
            run.end(turned, counted)
        values = [value for _, value in run.seen(run.target)]
        missing, doubled = run.sent - len(set(values)), len(values) - len(set(values))
        assert (missing, doubled) == (0, 0)
        check_order(run.seen(run.target))
        check_counts(run.seen(run.counts))
        changelog = ConfluentOperator(group_bootstrap).settings("TOPIC", f"{run.name}-counted-changelog")
        assert changelog["cleanup.policy"].value == "compact"
        outcome = "passed"
    finally:
        print(run.log.read_text()[-3_000:] if run.log.exists() else "")
        tally = Tally(outcome, run.kills, run.sent, missing, doubled, seed)
        record("SIGKILL of Kafka Streams, exactly once", tally)


def check_order(seen: list[tuple[str, str]]) -> None:
    """Records of one key stand in one partition, and come in its order."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for key, value in seen:
        numbers[key].append(int(value[::-1].removeprefix("value ")))
    assert all(each == sorted(each) for each in numbers.values())


def check_counts(seen: list[tuple[str, str]]) -> None:
    """Each record of a key counts one."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for key, value in seen:
        numbers[key].append(int(value))
    assert all(each == list(range(1, len(each) + 1)) for each in numbers.values())
