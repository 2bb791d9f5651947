"""Racks and listeners from a properties file: brokers as processes, librdkafka with `client.rack` (R12)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.server.wire_client import WireClient
from tests.testing.watching import TIMEOUT_S, Watcher
from tests.wire.harness import DESCRIBE_CLUSTER
from tidelog.cli.zookeeper_process import ZooKeeperProcess
from tidelog.testing.process import BrokerProcess

PROPERTIES = """\
# One broker of three, each in a rack of its own.
node.id={node_id}
broker.rack=rack-{node_id}
replica.selector.class = org.apache.kafka.common.replica.RackAwareReplicaSelector
listeners=CLIENTS://127.0.0.1:0,\\
          BROKERS://127.0.0.1:0
listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT
inter.broker.listener.name=BROKERS
probe.listener=127.0.0.1:0
log.dirs={directory}/data
zookeeper.connect={zookeeper}/racks
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
"""
BROKERS = (1, 2, 3)
COUNT, SIZE = 200, 500
_PROBE = re.compile(r"probe started.*address=(\S+)")


class BrokerOfFile(BrokerProcess):
    """`tidelog serve --config`, with nothing else said."""

    def __init__(self, directory: Path, node_id: int, zookeeper: str) -> None:
        super().__init__(directory)
        self._file = directory / "server.properties"
        self._file.write_text(
            PROPERTIES.format(node_id=node_id, directory=directory, zookeeper=zookeeper), encoding="utf-8"
        )

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tidelog.cli.main", "serve", "--config", str(self._file)]

    def counted(self, name: str) -> int:
        """What the broker counts of topic t."""
        found = _PROBE.search(self.stderr())
        assert found is not None
        with urlopen(f"http://{found[1]}/metrics", timeout=TIMEOUT_S) as page:
            text = page.read().decode()
        series = rf'^kafka_server_brokertopicmetrics_{name}_total{{topic="t"}} (\S+)$'
        value = re.search(series, text, re.MULTILINE)
        return int(float(value[1])) if value else 0


def sees_all(broker: BrokerOfFile) -> bool:
    with WireClient(broker.port) as client:
        answer = client.ask(DESCRIBE_CLUSTER, 1, endpoint_type=1, include_cluster_authorized_operations=False)
        return len(answer.brokers) == len(BROKERS)


@pytest.fixture(scope="module")
def brokers(
    needs_zookeeper: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int, BrokerOfFile]]:
    directory = tmp_path_factory.mktemp("racks")
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperProcess(directory / "zookeeper"))
        started = {}
        for node_id in BROKERS:
            folder = directory / str(node_id)
            folder.mkdir()
            started[node_id] = stack.enter_context(BrokerOfFile(folder, node_id, zookeeper.connect))
        watcher = Watcher(started[1].bootstrap_servers)
        watcher.until(lambda: all(map(sees_all, started.values())), "a broker does not see the others")
        watcher.create("t")
        watcher.until_in_sync("t")
        producer = Producer({"bootstrap.servers": started[1].bootstrap_servers, "log_level": 0})
        for _ in range(COUNT):
            producer.produce("t", b"v" * SIZE, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        yield started


def read_from(brokers: dict[int, BrokerOfFile], rack: str) -> dict[int, int]:
    """How much each broker has sent to a consumer in a rack that reads everything."""
    before = {node_id: broker.counted("bytesout") for node_id, broker in brokers.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": brokers[1].bootstrap_servers,
            "group.id": "unused",
            "client.rack": rack,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    offsets = [message.offset() for message in consumer.consume(COUNT, TIMEOUT_S)]
    consumer.close()
    assert offsets == list(range(COUNT))
    return {node_id: broker.counted("bytesout") - before[node_id] for node_id, broker in brokers.items()}


@pytest.mark.parametrize("node_id", BROKERS)
def test_a_consumer_reads_from_the_replica_in_its_rack_leader_or_follower(
    brokers: dict[int, BrokerOfFile], node_id: int
) -> None:
    sent = read_from(brokers, f"rack-{node_id}")
    assert sent.pop(node_id) >= COUNT * SIZE
    assert set(sent.values()) == {0}


def test_a_consumer_of_no_rack_reads_from_the_leader(brokers: dict[int, BrokerOfFile]) -> None:
    leader = Watcher(brokers[1].bootstrap_servers).leader("t")
    for rack in ("", "elsewhere"):
        sent = read_from(brokers, rack)
        assert sent.pop(leader) >= COUNT * SIZE
        assert set(sent.values()) == {0}


def test_what_came_in_is_what_producers_sent_and_not_what_followers_took(
    brokers: dict[int, BrokerOfFile],
) -> None:
    leader = Watcher(brokers[1].bootstrap_servers).leader("t")
    for node_id, broker in brokers.items():
        received = (broker.counted("bytesin") >= COUNT * SIZE, broker.counted("messagesin"))
        assert received == ((True, COUNT) if node_id == leader else (False, 0)), node_id
        assert node_id == leader or broker.counted("bytesin") == 0
