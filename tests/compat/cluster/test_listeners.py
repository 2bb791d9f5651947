"""Real clients inside and outside of a cluster with two listeners: each is sent to addresses it came by."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka import TopicPartition as Assigned

from tests.testing.watching import TIMEOUT_S, Watcher
from tidelog.testing import Cluster

INSIDE, OUTSIDE = "INTERNAL", "EXTERNAL"
COUNT = 100
both = pytest.mark.parametrize("listener", [INSIDE, OUTSIDE])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(
        3,
        listeners="INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
        listener_security_protocol_map="INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
        inter_broker_listener_name="INTERNAL",
    ) as cluster:
        yield cluster


def bootstrap(cluster: Cluster, listener: str) -> str:
    return cluster[1].addresses[listener]


def seen(cluster: Cluster, listener: str) -> dict[int, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap(cluster, listener), "log_level": 0})
    brokers = admin.list_topics(timeout=TIMEOUT_S).brokers.values()
    return {broker.id: f"{broker.host}:{broker.port}" for broker in brokers}


def write(cluster: Cluster, listener: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap(cluster, listener), "log_level": 0, "acks": "all"})
    for number in range(COUNT):
        producer.produce("t", str(number), partition=number % 3)
    assert producer.flush(TIMEOUT_S) == 0


@both
def test_clients_see_the_addresses_of_their_listener(cluster: Cluster, listener: str) -> None:
    expected = {node_id: broker.addresses[listener] for node_id, broker in cluster.brokers.items()}
    assert seen(cluster, listener) == expected


def test_what_is_written_inside_is_read_outside_and_the_other_way_round(cluster: Cluster) -> None:
    Watcher(bootstrap(cluster, INSIDE)).create("t", partitions=3)
    for writer, reader in ((INSIDE, OUTSIDE), (OUTSIDE, INSIDE)):
        write(cluster, writer)
        settings = {"bootstrap.servers": bootstrap(cluster, reader), "group.id": reader, "log_level": 0}
        consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found = consumer.consume(COUNT, TIMEOUT_S)
        consumer.close()
        assert len(found) == COUNT
        assert all(message.error() is None for message in found)


def test_another_client_outside_finds_leaders_and_coordinator(cluster: Cluster) -> None:
    Watcher(bootstrap(cluster, INSIDE)).create("t", partitions=3)
    write(cluster, OUTSIDE)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap(cluster, OUTSIDE), group_id="g")
    consumer.assign([Assigned("t", index) for index in range(3)])
    consumer.seek_to_beginning()
    count = 0
    while count < COUNT:
        polled = consumer.poll(int(TIMEOUT_S * 1_000))
        assert polled
        count += sum(len(records) for records in polled.values())
    consumer.commit()
    consumer.close()


@both
def test_clients_of_either_listener_outlive_a_leader(cluster: Cluster, listener: str) -> None:
    watcher = Watcher(",".join(broker.addresses[listener] for broker in cluster.brokers.values()))
    watcher.create("t")
    leader = watcher.leader("t")
    other = next(node_id for node_id in cluster.brokers if node_id != leader)
    settings = {"bootstrap.servers": cluster[other].addresses[listener], "log_level": 0}
    producer = Producer(settings | {"enable.idempotence": True})
    producer.produce("t", b"before", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    cluster.kill(leader)
    producer.produce("t", b"after", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(settings | {"group.id": "unused"})
    consumer.assign([TopicPartition("t", 0, 0)])
    assert [message.value() for message in consumer.consume(2, TIMEOUT_S)] == [b"before", b"after"]
    cluster.start(leader)
    watcher.until_in_sync("t")
    consumer.close()
    assert seen(cluster, listener)[leader] == cluster[leader].addresses[listener]
