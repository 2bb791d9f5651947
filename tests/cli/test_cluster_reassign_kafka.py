"""`tidelog cluster reassign` against two nodes of Apache Kafka: the same words do the same there."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from bench.peers.kafka import Kafka
from bench.peers.process import PeerMissing, RunningBroker

from tests.cli.test_cluster_reassign import Command
from tidelog.cli.cluster_partitions import Picture, take_picture
from tidelog.cli.failure import Failure

pytestmark = pytest.mark.java
_PATIENCE_S = 200.0


@pytest.fixture
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("kafka")
    try:
        sites = Kafka().prepare_nodes([folder / "1", folder / "2"], {})
    except PeerMissing as missing:
        pytest.skip(str(missing))
    nodes: list[RunningBroker] = []
    try:
        nodes += [site.spawn() for site in sites]
        address = ",".join(f"127.0.0.1:{site.port}" for site in sites)
        _await_both(address)
        yield address
    finally:
        for node in nodes:
            node.kill()


def _await_both(address: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            if len(take_picture(address).live) == 2:
                return
        except Failure:
            pass
        assert time.monotonic() < end, "Kafka does not serve"


def _on(picture: Picture, broker: int) -> int:
    return len([part for part in picture.on(broker) if part.topic == "orders"])


@pytest.mark.timeout(600)
def test_replicas_leave_a_broker_of_kafka_and_come_back(kafka: str) -> None:
    command = Command(kafka)
    made = command("topic", "create", "orders", "--partitions", "4", "--replication-factor", "1")
    assert made.exit_code == 0, made.error
    assert command("produce", "orders", stdin=b"x" * 10_000 + b"\n").exit_code == 0
    left = command("cluster", "reassign", "--decommission", "2", "--throttle", "10000000", "--yes")
    assert left.exit_code == 0, left.error
    assert "moved: 2 partitions" in left.out and "it can be stopped, then run this again" in left.out
    assert (_on(take_picture(kafka), 1), _on(take_picture(kafka), 2)) == (4, 0)
    assert "throttled" not in command("config", "describe", "topic/orders").out
    back = command("cluster", "reassign", "--rebalance", "--topic", "orders", "--yes")
    assert back.exit_code == 0, back.error
    assert (_on(take_picture(kafka), 1), _on(take_picture(kafka), 2)) == (2, 2)
    assert command("cluster", "reassign", "--verify").exit_code == 0
