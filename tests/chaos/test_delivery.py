"""At most once, at least once and exactly once, each broken at the worst moment (P7).

A consumer is killed between its commit and its work, or the other way round; another one of the group goes
on. What is promised is seen in the rows that both have left: one record missing, one twice, or neither.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.chaos.consuming import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, SESSION_MS
from tests.chaos.workload import create_topic
from tidelog.testing.process import BrokerProcess

RECORDS = 200
DIES_AT = 77
WAIT_S = 120
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "100",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("delivery"), SETTINGS) as running:
        yield running


def produce(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(topic, str(number))
    assert producer.flush(WAIT_S) == 0


def consume(broker: BrokerProcess, mode: str, protocol: str, topic: str, store: Path, dies_at: int) -> int:
    """How the consumer ended."""
    words = [mode, broker.bootstrap_servers, protocol, f"{topic}-group", topic, str(store), str(RECORDS)]
    command = [sys.executable, "-m", "tests.chaos.consuming", *words, str(dies_at)]
    return subprocess.run(command, timeout=WAIT_S, check=False).returncode


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(("mode", "times"), [(AT_MOST_ONCE, 0), (AT_LEAST_ONCE, 2), (EXACTLY_ONCE, 1)])
def test_a_consumer_killed_at_the_worst_moment_costs_what_was_agreed(
    broker: BrokerProcess, tmp_path: Path, mode: str, times: int, protocol: str
) -> None:
    topic, store = f"{mode}-{protocol}", tmp_path / "works.sqlite"
    produce(broker, topic)
    assert consume(broker, mode, protocol, topic, store, DIES_AT) == -signal.SIGKILL
    assert consume(broker, mode, protocol, topic, store, -1) == 0
    with sqlite3.connect(store) as rows:
        counts = Counter(number for (number,) in rows.execute("SELECT number FROM works"))
    expected = Counter(range(RECORDS))
    expected[DIES_AT] = times
    assert counts == +expected


@pytest.mark.parametrize("mode", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_a_broker_killed_as_well_costs_no_more(broker: BrokerProcess, tmp_path: Path, mode: str) -> None:
    topic, store = f"{mode}-broker", tmp_path / "works.sqlite"
    produce(broker, topic)
    assert consume(broker, mode, "consumer", topic, store, DIES_AT) == -signal.SIGKILL
    broker.kill()
    broker.start()
    assert consume(broker, mode, "consumer", topic, store, -1) == 0
    with sqlite3.connect(store) as rows:
        counts = Counter(number for (number,) in rows.execute("SELECT number FROM works"))
    expected = Counter(range(RECORDS))
    expected[DIES_AT] += mode == AT_LEAST_ONCE
    assert counts == expected
