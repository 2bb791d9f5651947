"""What replicas, min.insync.replicas, acks, flush.messages and unclean elections promise (R7, R13, R15)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.reading import check_topic, read_all
from tests.chaos.workload import COMPRESSED, IDEMPOTENT
from tests.compat.cluster.load import ReplicatedLoad
from tests.compat.cluster.raw import ELECT_LEADERS, FETCH, ask, part
from tests.differential.entities import milliseconds
from tests.testing.watching import TIMEOUT_S, Watcher, watch
from tidelog.log.directory import RUNNING
from tidelog.protocol.errors import ErrorCode
from tidelog.testing import Broker, Cluster

PREFERRED, UNCLEAN = 0, 1
WRITERS = {"idempotent": IDEMPOTENT, "compressed": COMPRESSED}


def send(cluster: Cluster, acks: str, values: Sequence[str]) -> list[int | str]:
    """The offset of each record, or the name of the error; nothing is tried again."""
    told: list[int | str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        told.append(error.name() if error is not None else message.offset() or 0)

    settings = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "retries": 0}
    producer = Producer(settings | {"acks": acks})
    for value in values:
        producer.produce("t", value, partition=0, on_delivery=on_delivery)
    assert producer.flush(TIMEOUT_S) == 0
    return told


def read(cluster: Cluster) -> list[str]:
    """All that a consumer sees, from the first record to the end."""
    return [(message.value() or b"").decode() for message in read_all(cluster.bootstrap_servers, "t", 0)]


def high_watermark(broker: Broker, topic: str, partition: int) -> int:
    """As a consumer hears it of that replica, leader or not."""
    wanted = part(
        FETCH, "FetchPartition", partition=partition, current_leader_epoch=-1, partition_max_bytes=1
    )
    asked = part(FETCH, "FetchTopic", topic=topic, partitions=(wanted,))
    answer = ask(broker, FETCH, replica_id=-1, session_epoch=-1, max_bytes=1, topics=(asked,))
    return int(answer.responses[0].partitions[0].high_watermark)


def until_all_know(cluster: Cluster, topic: str, partitions: int) -> None:
    """Until every replica knows that everything is committed."""
    watcher = watch(cluster)

    def is_known() -> bool:
        return all(
            len({high_watermark(broker, topic, index) for broker in cluster.brokers.values()}) == 1
            for index in range(partitions)
        )

    watcher.until(is_known, "not all replicas know what is committed", topic)


def kill_leader(cluster: Cluster, watcher: Watcher) -> int:
    """Of partition 0, once it is known who that is after the last death."""
    watcher.until(lambda: cluster[watcher.leader("t")].is_running, "nobody leads", "t")
    leader = watcher.leader("t")
    cluster.kill(leader)
    return leader


def until_isr(watcher: Watcher, *node_ids: int) -> None:
    watcher.until(
        lambda: watcher.partitions("t")[0].in_sync_replicas == set(node_ids), f"ISR is not {node_ids}", "t"
    )


def test_five_replicas_of_which_three_must_be_in_sync_stay_writable_after_two_failures() -> None:
    with (
        Cluster(5, default_replication_factor=5, min_insync_replicas=3) as cluster,
        ReplicatedLoad(cluster, "t", 3, WRITERS) as load,
    ):
        watcher = watch(cluster)
        load.resume()
        for _ in range(2):
            load.await_acknowledged(2_000)
            kill_leader(cluster, watcher)
        load.await_acknowledged(3_000)
        load.finish()
        assert check_topic(cluster.bootstrap_servers, load).is_clean
        kill_leader(cluster, watcher)
        left = [node_id for node_id, broker in cluster.brokers.items() if broker.is_running]
        until_isr(watcher, *left)
        assert send(cluster, "all", ["refused"]) == ["NOT_ENOUGH_REPLICAS"]
        for node_id in set(cluster.brokers) - set(left):
            cluster.start(node_id)
        watcher.until_in_sync("t")
        assert check_topic(cluster.bootstrap_servers, load).is_clean


def test_five_replicas_that_must_all_be_in_sync_refuse_after_one_failure_and_lose_nothing_after_four() -> (
    None
):
    with (
        Cluster(5, default_replication_factor=5, min_insync_replicas=5) as cluster,
        ReplicatedLoad(cluster, "t", 3, WRITERS) as load,
    ):
        watcher = watch(cluster)
        load.resume()
        load.await_acknowledged(4_000)
        load.finish()
        until_all_know(cluster, "t", 3)
        dead = kill_leader(cluster, watcher)
        until_isr(watcher, *(set(cluster.brokers) - {dead}))
        assert send(cluster, "all", ["refused"]) == ["NOT_ENOUGH_REPLICAS"]
        for _ in range(3):
            kill_leader(cluster, watcher)
        (last,) = (broker for broker in cluster.brokers.values() if broker.is_running)
        watcher.until(lambda: watcher.leader("t") == last.id, "the last one does not lead", "t")
        assert check_topic(last.bootstrap_servers, load).is_clean
        for node_id, broker in cluster.brokers.items():
            if not broker.is_running:
                cluster.start(node_id)
        watcher.until_in_sync("t")
        assert check_topic(cluster.bootstrap_servers, load).is_clean
        assert send(cluster, "all", ["taken"]) != ["NOT_ENOUGH_REPLICAS"]


def test_acks_1_loses_what_only_the_dead_leader_had_and_nothing_else(tmp_path: Path) -> None:
    with Cluster(3, log_dirs=tmp_path) as cluster:
        watcher = watch(cluster)
        watcher.create("t")
        leader = watcher.leader("t")
        first, second = sorted(set(cluster.brokers) - {leader})
        kept = [f"all-{number}" for number in range(10)] + [f"one-{number}" for number in range(5)]
        assert send(cluster, "all", kept[:10]) == list(range(10))
        assert send(cluster, "1", kept[10:]) == list(range(10, 15))
        until_all_know(cluster, "t", 1)
        cluster.stop(first)
        cluster.stop(second)
        until_isr(watcher, leader)
        assert send(cluster, "all", ["refused"]) == ["NOT_ENOUGH_REPLICAS"]
        assert send(cluster, "1", [f"lost-{number}" for number in range(7)]) == list(range(15, 22))
        assert read(cluster) == kept, "what is on the leader alone is not shown"
        cluster.kill(leader)
        cluster.start(second)
        watcher.until(lambda: watcher.leader("t") == second, "the eligible one does not lead", "t")
        cluster.start(first)
        until_isr(watcher, first, second)
        more = [f"more-{number}" for number in range(3)]
        assert send(cluster, "all", more) == [15, 16, 17]
        cluster.start(leader)
        watcher.until_in_sync("t")
        assert read(cluster) == kept + more
        until_all_know(cluster, "t", 1)
    contents = [(tmp_path / f"{node_id}/t-0/{0:020}.log").read_bytes() for node_id in (1, 2, 3)]
    assert contents[0] == contents[1] == contents[2], "the replicas have not become the same"
    assert b"lost" not in contents[0]


def lose_power(note: Path) -> None:
    """The machine was started since: nobody can tell what the disk has of what was not flushed."""
    note.write_text(json.dumps(json.loads(note.read_text()) | {"boot": "another"}))


def lose_all(note: Path) -> None:
    """As after an I/O error: nobody can tell what the disk has."""
    note.unlink()


def fell_all(cluster: Cluster, lose: Callable[[Path], None] = lambda note: None) -> Watcher:
    """Write, end all brokers at once, and start them again."""
    watcher = watch(cluster)
    watcher.create("t")
    assert send(cluster, "all", ["a", "b"]) == [0, 1]
    until_all_know(cluster, "t", 1)
    for node_id, broker in cluster.brokers.items():
        cluster.kill(node_id)
        lose(Path(broker.directory, RUNNING))
    for node_id in cluster.brokers:
        cluster.start(node_id)
    watcher.until(lambda: watcher.brokers() == {1, 2, 3}, "not all brokers are back")
    return watcher


def assert_all_is_there(cluster: Cluster, watcher: Watcher) -> None:
    watcher.until_in_sync("t")
    assert send(cluster, "all", ["c"]) == [2]
    assert read(cluster) == ["a", "b", "c"]


def test_when_all_were_killed_nothing_is_lost() -> None:
    with Cluster(3) as cluster:
        assert_all_is_there(cluster, fell_all(cluster))


def elect(broker: Broker, election_type: int) -> int:
    asked = part(ELECT_LEADERS, "TopicPartitions", topic="t", partitions=(0,))
    soon = milliseconds(20_000)
    answer = ask(broker, ELECT_LEADERS, election_type=election_type, topic_partitions=(asked,), timeout=soon)
    return int(answer.replica_election_results[0].partition_result[0].error_code)


def test_when_all_may_have_lost_anything_nobody_leads_until_an_operator_takes_the_risk() -> None:
    with Cluster(3) as cluster:
        watcher = fell_all(cluster, lose_all)
        watcher.until(lambda: watcher.partitions("t")[0].leader == -1, "somebody leads", "t")
        assert elect(cluster[1], PREFERRED) == ErrorCode.preferred_leader_not_available
        assert elect(cluster[1], UNCLEAN) == ErrorCode.none
        assert_all_is_there(cluster, watcher)


@pytest.mark.parametrize(
    "settings", [{}, {"unclean_leader_election_enable": True}, {"log_flush_interval_messages": 1}]
)
def test_when_all_lost_power_they_go_on_when_all_are_back(
    settings: dict[str, object],
) -> None:
    with Cluster(3, None, **settings) as cluster:
        assert_all_is_there(cluster, fell_all(cluster, lose_power))


def test_when_all_lost_power_nobody_leads_where_the_topic_is_set_so() -> None:
    with Cluster(3, None, unclean_recovery_strategy="None") as cluster:
        watcher = fell_all(cluster, lose_power)
        watcher.until(lambda: watcher.partitions("t")[0].leader == -1, "somebody leads", "t")
        assert elect(cluster[1], UNCLEAN) == ErrorCode.none
        assert_all_is_there(cluster, watcher)
