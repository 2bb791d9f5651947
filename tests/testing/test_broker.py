"""`tidelog.testing.Broker`: a broker in this process."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tidelog.testing import Broker

TIMEOUT_S = 120.0


def send(broker: Broker, *values: str) -> None:
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "acks": "all"})
    for value in values:
        producer.produce("t", value, partition=0, on_delivery=on_delivery)
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []


def read(broker: Broker, count: int) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        messages = consumer.consume(count, TIMEOUT_S)
        return [(message.value() or b"").decode() for message in messages]
    finally:
        consumer.close()


def test_it_serves_a_real_client() -> None:
    with Broker() as broker:
        send(broker, "a", "b")
        assert read(broker, 2) == ["a", "b"]


def test_a_kill_loses_nothing_that_was_acknowledged() -> None:
    with Broker() as broker:
        port = broker.port
        send(broker, "a")
        broker.kill(broker.id)
        assert not broker.is_running
        broker.restart(broker.id)
        assert broker.port == port
        send(broker, "b")
        assert read(broker, 2) == ["a", "b"]


def test_a_killed_broker_answers_nobody() -> None:
    with Broker() as broker:
        broker.kill()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        with pytest.raises(Exception, match=r"_TRANSPORT|transport"):
            producer.list_topics(timeout=0.5)


def test_a_restart_without_a_kill_is_a_clean_one() -> None:
    with Broker() as broker:
        send(broker, "a")
        broker.restart()
        assert read(broker, 1) == ["a"]


def test_settings_have_kafka_s_names_with_underscores_or_dots() -> None:
    with Broker(num_partitions=3, **{"auto.create.topics.enable": True, "node.id": 4}) as broker:
        send(broker, "a")
        metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=TIMEOUT_S)
        assert len(metadata.topics["t"].partitions) == 3
        assert list(metadata.brokers) == [4] == [broker.id]


def test_several_listeners_have_ports_that_they_keep() -> None:
    with Broker(
        listeners="INSIDE://127.0.0.1:0,outside://127.0.0.1:0",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
    ) as broker:
        addresses = broker.addresses
        assert list(addresses) == ["INSIDE", "OUTSIDE"]
        assert broker.bootstrap_servers == addresses["INSIDE"] != addresses["OUTSIDE"]
        broker.restart()
        assert broker.addresses == addresses
        for address in addresses.values():
            AdminClient({"bootstrap.servers": address}).list_topics(timeout=TIMEOUT_S)


def test_a_bad_setting_is_an_error_at_the_start_and_leaves_nothing() -> None:
    before = threading.active_count()
    with pytest.raises(Exception, match=r"no\.such\.setting"), Broker(no_such_setting=1):
        pass
    assert threading.active_count() == before


def test_the_id_must_be_its_own() -> None:
    with Broker() as broker, pytest.raises(ValueError, match="no broker 9"):
        broker.kill(9)


def test_nothing_is_left_afterwards() -> None:
    before = set(threading.enumerate())  # brokers that other tests share
    with Broker() as broker:
        directory = Path(broker.directory)
        assert directory.is_dir()
        threads = [
            each for each in threading.enumerate() if each.name.startswith("tidelog") and each not in before
        ]
        assert threads
    assert not directory.exists()
    assert not [thread for thread in threads if thread.is_alive()]


def test_a_directory_of_one_s_own_stays(tmp_path: Path) -> None:
    with Broker(log_dirs=tmp_path) as broker:
        send(broker, "a")
    with Broker(log_dirs=tmp_path) as broker:
        assert read(broker, 1) == ["a"]


def test_two_brokers_run_side_by_side() -> None:
    with Broker() as first, Broker() as second:
        send(first, "a")
        send(second, "b")
        assert (read(first, 1), read(second, 1)) == (["a"], ["b"])
