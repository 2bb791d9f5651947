"""`tidelog.testing.Cluster`: brokers in this process that replicate to each other."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.testing.watching import TIMEOUT_S, watch
from tidelog.testing import Cluster


def send(cluster: Cluster, *values: str) -> None:
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    settings = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "enable.idempotence": True}
    producer = Producer(settings)
    for value in values:
        producer.produce("t", value, partition=0, on_delivery=on_delivery)
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []


def read(cluster: Cluster, count: int) -> list[str]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        return [(message.value() or b"").decode() for message in consumer.consume(count, TIMEOUT_S)]
    finally:
        consumer.close()


def transact(cluster: Cluster, value: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "writer"})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce("t", value)
    producer.commit_transaction(120)


def test_topics_have_three_replicas_of_which_all_are_in_sync() -> None:
    with Cluster(3) as cluster:
        watcher = watch(cluster)
        watcher.create("t", 3)
        seen = watcher.partitions("t")
        assert [sorted(each.replicas) for each in seen] == [[1, 2, 3]] * 3
        assert sorted(each.leader for each in seen) == [1, 2, 3]
        watcher.until_in_sync("t")


def test_a_cluster_of_one_or_two_has_as_many_replicas_as_brokers() -> None:
    for size in (1, 2):
        with Cluster(size) as cluster:
            send(cluster, "a")
            assert [len(each.replicas) for each in watch(cluster).partitions("t")] == [size]
            assert read(cluster, 1) == ["a"]
            transact(cluster, "b")
            internal = watch(cluster).partitions("__transaction_state")
            assert {len(each.replicas) for each in internal} == {size}


def test_a_kill_of_the_leader_loses_nothing_and_the_next_one_goes_on() -> None:
    with Cluster(3) as cluster:
        watcher = watch(cluster)
        watcher.create("t")
        send(cluster, "a")
        leader = watcher.leader("t")
        cluster.kill(leader)
        assert not cluster[leader].is_running
        send(cluster, "b")
        assert watcher.leader("t") != leader
        assert watcher.brokers() == {1, 2, 3} - {leader}
        cluster.start(leader)
        watcher.until_in_sync("t")
        assert read(cluster, 2) == ["a", "b"]


def test_a_stop_hands_leaderships_over_and_a_start_has_the_same_port() -> None:
    with Cluster(3) as cluster:
        watcher = watch(cluster)
        watcher.create("t", 6)
        ports = {node_id: broker.port for node_id, broker in cluster.brokers.items()}
        cluster.stop(1)
        assert 1 not in {each.leader for each in watch(cluster, 2).partitions("t")}
        cluster.start(1)
        assert {node_id: broker.port for node_id, broker in cluster.brokers.items()} == ports
        watcher.until_in_sync("t")


def test_each_broker_can_be_restarted_in_turn() -> None:
    with Cluster(3) as cluster:
        watcher = watch(cluster)
        watcher.create("t")
        for node_id in (1, 2, 3):
            send(cluster, f"{node_id}")
            cluster.restart(node_id)
            watcher.until_in_sync("t")
        assert read(cluster, 3) == ["1", "2", "3"]


def test_all_may_be_stopped_and_started_again() -> None:
    with Cluster(3) as cluster:
        watcher = watch(cluster)
        watcher.create("t")
        send(cluster, "a")
        for node_id in (1, 2, 3):
            cluster.stop(node_id)
        assert not any(broker.is_running for broker in cluster.brokers.values())
        for node_id in (3, 2, 1):
            cluster.start(node_id)
        watcher.until_in_sync("t")
        send(cluster, "b")
        assert read(cluster, 2) == ["a", "b"]


def test_racks_go_round_and_replicas_are_in_different_ones() -> None:
    with Cluster(4, racks=["a", "b"], default_replication_factor=2) as cluster:
        watcher = watch(cluster)
        watcher.create("t", 8)
        in_a = {1, 3}
        assert all(len(in_a & set(each.replicas)) == 1 for each in watcher.partitions("t"))


def test_settings_are_for_all_brokers() -> None:
    with Cluster(3, num_partitions=5, min_insync_replicas=3) as cluster:
        send(cluster, "a")
        watcher = watch(cluster)
        assert len(watcher.partitions("t")) == 5
        cluster.stop(2)
        watcher.until(lambda: watcher.partitions("t")[0].in_sync_replicas == {1, 3}, "2 is in the ISR", "t")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "retries": 0})
        heard: list[KafkaError | None] = []
        producer.produce("t", b"b", partition=0, on_delivery=lambda error, _message: heard.append(error))
        producer.flush(TIMEOUT_S)
        assert [error and error.name() for error in heard] == ["NOT_ENOUGH_REPLICAS"]


def test_a_bad_setting_is_one_clear_line_and_leaves_nothing() -> None:
    before = threading.active_count()
    with pytest.raises(Exception, match=r"^no\.such\.setting: no such setting$"), Cluster(no_such_setting=1):
        pass
    with (
        pytest.raises(Exception, match=r"^num\.partitions=x: expected a whole n"),
        Cluster(num_partitions="x"),
    ):
        pass
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"node_id": 5}, r"^node\.id=5: the brokers of a cluster are numbered from 1 on$"),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092"}, r"^listeners=.*: several brokers need several ports"),
        ({"listeners": "A://127.0.0.1:9092,B://127.0.0.1:0"}, r"^listeners=.*: several brokers need several"),
        ({"probe_listener": "127.0.0.1:9093"}, r"^probe\.listener=.*: several brokers need several ports"),
        ({"brokers": 0}, r"^a cluster has one broker at least.*brokers=0"),
        ({"racks": []}, r"^a cluster has one broker at least.*racks=\[\]"),
    ],
)
def test_what_brokers_cannot_share_is_refused_in_one_line(settings: dict[str, object], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        Cluster(**settings)  # type: ignore[arg-type]  # settings of all kinds


def test_the_id_must_be_one_of_the_cluster() -> None:
    with Cluster(2) as cluster, pytest.raises(ValueError, match=r"no broker 9 here: there are \[1, 2\]"):
        cluster.kill(9)


def test_nothing_is_left_afterwards() -> None:
    before = set(threading.enumerate())  # brokers that other tests share
    with Cluster(3) as cluster:
        send(cluster, "a")
        directories = [Path(broker.directory) for broker in cluster.brokers.values()]
        assert all(directory.is_dir() for directory in directories)
        threads = [
            each for each in threading.enumerate() if each.name.startswith("tidelog") and each not in before
        ]
        assert len(threads) >= 3
        cluster.kill(2)
    assert not any(directory.exists() for directory in directories)
    assert not [thread for thread in threads if thread.is_alive()]


def test_directories_of_one_s_own_stay(tmp_path: Path) -> None:
    with Cluster(2, log_dirs=tmp_path) as cluster:
        send(cluster, "a")
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["1", "2"]
    assert all((tmp_path / name / "t-0").is_dir() for name in ("1", "2"))


def test_two_clusters_run_side_by_side() -> None:
    with Cluster(2) as first, Cluster(2) as second:
        send(first, "a")
        send(second, "b")
        assert (read(first, 1), read(second, 1)) == (["a"], ["b"])
