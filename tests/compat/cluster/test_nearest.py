"""A consumer that says where it is reads from the replica in its rack, and goes on when that one dies (R12).

What each broker has sent to clients is read from its metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as Assigned

from tests.testing.watching import TIMEOUT_S, watch
from tidelog.testing import Broker, Cluster

RACKS = ["a", "b", "c"]
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
COUNT = 200
SIZE = 500
_SENT = re.compile(r'^kafka_server_brokertopicmetrics_bytesout_total\{topic="t"\} (\S+)$', re.MULTILINE)


class Reader(Protocol):
    def __init__(self, bootstrap: str, rack: str) -> None: ...

    def read(self, count: int) -> list[int]:
        """The offsets of the next records."""
        ...

    def close(self) -> None: ...


class ConfluentReader:
    def __init__(self, bootstrap: str, rack: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "client.rack": rack,
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition("t", 0, 0)])

    def read(self, count: int) -> list[int]:
        return [message.offset() or 0 for message in self._consumer.consume(count, TIMEOUT_S)]

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonReader:
    def __init__(self, bootstrap: str, rack: str) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            client_rack=rack,
            fetch_max_wait_ms=50,
            reconnect_backoff_max_ms=500,  # or it leaves a broker that has died alone for half a minute
            metadata_max_age_ms=1_000,  # or it is sent to one that it does not know to be back
        )
        self._consumer.assign([Assigned("t", 0)])
        self._consumer.seek(Assigned("t", 0), 0)

    def read(self, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            polled = self._consumer.poll(int(TIMEOUT_S * 1_000), max_records=count - len(found))
            assert polled, f"nothing came after {found[-1:]}"
            found += [record.offset for records in polled.values() for record in records]
        return found

    def close(self) -> None:
        self._consumer.close()


every_client = pytest.mark.parametrize(
    "open_reader", [ConfluentReader, KafkaPythonReader], ids=["confluent", "kafka-python"]
)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, RACKS, replica_selector_class=SELECTOR, probe_listener="127.0.0.1:0") as cluster:
        watch(cluster).create("t")
        yield cluster


def write(cluster: Cluster) -> None:
    """So many records more, which all replicas know to be committed."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "batch.size": 5_000})
    for _ in range(COUNT):
        producer.produce("t", b"v" * SIZE, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def sent_size(broker: Broker) -> int:
    with urlopen(f"http://{broker.probe_address}/metrics", timeout=TIMEOUT_S) as page:
        found = _SENT.search(page.read().decode())
    return int(float(found.group(1))) if found else 0


def senders(cluster: Cluster) -> set[int]:
    """Who has sent records to a client."""
    return {node_id for node_id, broker in cluster.brokers.items() if sent_size(broker) >= SIZE}


def rack_of(node_id: int) -> str:
    return RACKS[node_id - 1]


@every_client
def test_a_follower_in_the_consumer_s_rack_sends_it_everything(
    cluster: Cluster, open_reader: type[Reader]
) -> None:
    follower = next(node_id for node_id in cluster.brokers if node_id != watch(cluster).leader("t"))
    write(cluster)
    reader = open_reader(cluster.bootstrap_servers, rack_of(follower))
    assert reader.read(COUNT) == list(range(COUNT))
    write(cluster)
    assert reader.read(COUNT) == list(range(COUNT, 2 * COUNT))
    reader.close()
    assert senders(cluster) == {follower}
    assert sent_size(cluster[follower]) >= 2 * COUNT * SIZE


@every_client
@pytest.mark.parametrize("rack", ["", "elsewhere", "the leader's"])
def test_without_a_nearer_one_the_leader_sends(
    cluster: Cluster, open_reader: type[Reader], rack: str
) -> None:
    leader = watch(cluster).leader("t")
    write(cluster)
    reader = open_reader(cluster.bootstrap_servers, rack_of(leader) if rack == "the leader's" else rack)
    assert reader.read(COUNT) == list(range(COUNT))
    reader.close()
    assert senders(cluster) == {leader}


@every_client
def test_it_goes_on_when_the_follower_it_reads_from_dies(cluster: Cluster, open_reader: type[Reader]) -> None:
    watcher = watch(cluster)
    follower = next(node_id for node_id in cluster.brokers if node_id != watcher.leader("t"))
    write(cluster)
    reader = open_reader(cluster.bootstrap_servers, rack_of(follower))
    assert reader.read(COUNT // 2) == list(range(COUNT // 2))
    assert senders(cluster) == {follower}
    cluster.kill(follower)
    write(cluster)
    assert reader.read(2 * COUNT - COUNT // 2) == list(range(COUNT // 2, 2 * COUNT))
    cluster.start(follower)
    watcher.until_in_sync("t")
    write(cluster)
    assert reader.read(COUNT) == list(range(2 * COUNT, 3 * COUNT))
    reader.close()


@every_client
def test_it_goes_on_when_the_leader_dies(cluster: Cluster, open_reader: type[Reader]) -> None:
    watcher = watch(cluster)
    leader = watcher.leader("t")
    follower = next(node_id for node_id in cluster.brokers if node_id != leader)
    write(cluster)
    reader = open_reader(cluster.bootstrap_servers, rack_of(follower))
    assert reader.read(COUNT) == list(range(COUNT))
    cluster.kill(leader)
    write(cluster)
    assert reader.read(COUNT) == list(range(COUNT, 2 * COUNT))
    reader.close()


def test_without_the_selector_the_leader_sends_whatever_the_rack() -> None:
    with Cluster(3, RACKS, probe_listener="127.0.0.1:0") as cluster:
        watcher = watch(cluster)
        watcher.create("t")
        leader = watcher.leader("t")
        write(cluster)
        reader = ConfluentReader(cluster.bootstrap_servers, rack_of(leader % 3 + 1))
        assert reader.read(COUNT) == list(range(COUNT))
        reader.close()
        assert senders(cluster) == {leader}
