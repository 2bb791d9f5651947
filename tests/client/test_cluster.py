"""A cluster by what it answers: topics, offsets, commits; and what passes when its brokers do not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.client.conftest import MakeTopic
from tests.client.scripted import TOPIC, TOPIC_ID, Asked, ScriptedBroker
from tests.client.written import write
from tidelog.client import attempts
from tidelog.client.cluster import EARLIEST, LATEST, Cluster, FoundOffset, TopicFacts, TopicPartition
from tidelog.client.errors import BadProperty, ClientError, GaveUp, MalformedAnswer, Refused, TopicGone
from tidelog.protocol.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.testing.process import BrokerProcess

PLACE = TopicPartition(TOPIC, 0)


def test_topics_that_exist_are_described_and_others_are_absent(
    cluster: Cluster, new_topic: MakeTopic
) -> None:
    name = new_topic(partitions=12)
    described = cluster.describe([name, "not-there"])
    assert list(described) == [name]
    assert described[name].partitions == tuple(range(12))
    assert len(described[name].id) == 16 and any(described[name].id)
    assert described[name] == cluster.describe(None)[name]
    assert "not-there" not in cluster.describe(None) and cluster.describe([]) == {}


def test_a_name_that_no_topic_may_have_is_refused(cluster: Cluster) -> None:
    with pytest.raises(Refused, match="a topic!"):
        cluster.describe(["a topic!"])


def test_offsets_are_found_at_both_ends_and_by_time(
    bootstrap: str, cluster: Cluster, new_topic: MakeTopic
) -> None:
    name = new_topic(partitions=3)
    first, second, empty = (TopicPartition(name, index) for index in range(3))
    write(bootstrap, first, [b"x"] * 20)
    write(bootstrap, second, [b"x"] * 5)
    found = cluster.list_offsets({first: LATEST, second: EARLIEST, empty: LATEST})
    assert {place: row.offset for place, row in found.items()} == {first: 20, second: 0, empty: 0}
    assert cluster.list_offsets({first: 1_013, second: 1_005}) == {
        first: FoundOffset(13, 1_013, 0),
        second: FoundOffset(-1, -1, -1),
    }
    assert cluster.list_offsets({first: LATEST}, committed_only=True)[first].offset == 20
    assert cluster.list_offsets({}) == {}


def test_a_group_s_commits_are_read_back(cluster: Cluster, new_topic: MakeTopic) -> None:
    name = new_topic(partitions=2)
    group = f"group-of-{name}"
    assert cluster.committed(group) == {}
    cluster.commit(group, {TopicPartition(name, 0): 3, TopicPartition(name, 1): 7})
    cluster.commit(group, {TopicPartition(name, 1): 8})
    assert cluster.committed(group) == {TopicPartition(name, 0): 3, TopicPartition(name, 1): 8}


def test_a_group_with_members_refuses_a_commit_from_outside(
    bootstrap: str, cluster: Cluster, new_topic: MakeTopic
) -> None:
    name = new_topic()
    group = f"group-of-{name}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.subscribe([name])
    while not consumer.assignment():
        consumer.poll(0.05)
    with pytest.raises(Refused, match=f"group {group}: .*{name}-0.* choose another group id"):
        cluster.commit(group, {TopicPartition(name, 0): 1})
    consumer.close()


def test_a_topic_that_is_not_there_is_gone(
    cluster: Cluster, new_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "GONE_AFTER_SECONDS", 0.5)
    with pytest.raises(TopicGone, match="not-there-0"):
        cluster.leader(TopicPartition("not-there", 0))
    with pytest.raises(TopicGone, match="not-there-0"):
        cluster.list_offsets({TopicPartition("not-there", 0): LATEST})
    name = new_topic()
    with pytest.raises(TopicGone, match=f"{name}-7"):
        cluster.list_offsets({TopicPartition(name, 0): LATEST, TopicPartition(name, 7): LATEST})
    with pytest.raises(TopicGone, match="not-there-0"):
        cluster.commit(f"group-of-{name}", {TopicPartition("not-there", 0): 1})
    assert "not-there" not in cluster.describe(None)


def test_a_topic_that_was_woken_is_there(cluster: Cluster, new_topic: MakeTopic) -> None:
    name = new_topic(partitions=3)
    cluster.wake(name)
    cluster.wake(f"{name}-woken")
    found = cluster.describe([name, f"{name}-woken"])
    assert len(found[name].partitions) == 3 and found[f"{name}-woken"].partitions


def test_a_topic_that_nobody_makes_is_gone_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "GONE_AFTER_SECONDS", 0.2)
    with (
        Broker(auto_create_topics_enable=False) as broker,
        Cluster({"bootstrap.servers": broker.bootstrap_servers}) as cluster,
        pytest.raises(TopicGone, match=r"topic nobodys does not exist: .*auto\.create\.topics\.enable"),
    ):
        cluster.wake("nobodys")


def test_a_restarted_broker_is_found_again(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"num.partitions": "2"}) as broker:
        place = TopicPartition("kept", 1)
        write(broker.bootstrap_servers, place, [b"x"] * 9)
        with Cluster({"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": "10"}) as cluster:
            broker.kill()
            broker.start()
            assert cluster.list_offsets({place: LATEST})[place].offset == 9
            cluster.commit("g", {place: 4})
            broker.kill()
            broker.start()
            assert cluster.committed("g") == {place: 4}


def test_a_cluster_that_is_not_there_is_given_up_in_time() -> None:
    properties = {"bootstrap.servers": "127.0.0.1:1,[::1]:1", "default.api.timeout.ms": "100"}
    with Cluster(properties) as cluster, pytest.raises(GaveUp, match=r"100 ms.*127\.0\.0\.1:1.*::1:1"):
        cluster.describe(None)


@pytest.mark.parametrize(
    "servers", ["", " , ", "host", "host:", ":9092", "host:port", "host:0", "host:70000"]
)
def test_addresses_that_are_none_are_refused_by_name(servers: str) -> None:
    with pytest.raises(BadProperty, match=r"bootstrap\.servers"):
        Cluster({"bootstrap.servers": servers})


def test_numbers_that_are_none_are_refused_by_name() -> None:
    with pytest.raises(BadProperty, match=r"default\.api\.timeout\.ms='soon'"):
        Cluster({"bootstrap.servers": "h:1", "default.api.timeout.ms": "soon"})


def test_a_forked_process_makes_connections_of_its_own() -> None:
    with ScriptedBroker() as broker, Cluster({"bootstrap.servers": broker.bootstrap_servers}) as cluster:
        mine = cluster.leader(PLACE)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            theirs = cluster.leader(PLACE)
            os.write(writing, b"other" if theirs is not mine and theirs.is_open else b"same")
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 10) == b"other"
        os.close(reading)
        os.close(writing)
        assert cluster.leader(PLACE) is mine and mine.is_open
        assert cluster.describe([TOPIC]) == {TOPIC: TopicFacts(TOPIC, TOPIC_ID, (0,))}


def tell_offsets(asked: Asked, error_code: int = 0, offset: int = 100) -> bytes:
    topics = tuple(
        asked.make(
            "ListOffsetsTopicResponse",
            name=topic.name,
            partitions=tuple(
                asked.make(
                    "ListOffsetsPartitionResponse",
                    partition_index=row.partition_index,
                    error_code=error_code,
                    timestamp=-1,
                    offset=offset + row.partition_index,
                    leader_epoch=5,
                )
                for row in topic.partitions
            ),
        )
        for topic in asked.decode().topics
    )
    return asked.respond(topics=topics)


def opened(broker: ScriptedBroker) -> Cluster:
    properties = {"retry.backoff.ms": "1", "default.api.timeout.ms": "10000"}
    return Cluster({"bootstrap.servers": broker.bootstrap_servers} | properties)


def test_a_leader_is_asked_once_for_all_its_partitions() -> None:
    with ScriptedBroker(list_offsets=tell_offsets) as broker, opened(broker) as cluster:
        broker.partition_count = 3_000
        places = [TopicPartition(TOPIC, index) for index in range(3_000)]
        found = cluster.list_offsets(dict.fromkeys(places, LATEST))
        assert [found[place].offset for place in places] == [100 + index for index in range(3_000)]
        assert (broker.count("list_offsets"), broker.count("metadata")) == (1, 1)


@pytest.mark.parametrize("error", [6, 5, 7, 14, 56, 74, 75, 78])
def test_an_error_that_passes_is_tried_again_with_fresh_metadata(error: int) -> None:
    codes = [error, error, 0]
    with (
        ScriptedBroker(list_offsets=lambda asked: tell_offsets(asked, codes.pop(0))) as broker,
        opened(broker) as cluster,
    ):
        assert cluster.list_offsets({PLACE: LATEST})[PLACE] == FoundOffset(100, -1, 5)
        assert (broker.count("list_offsets"), broker.count("metadata")) == (3, 3)


def test_an_error_that_does_not_pass_names_the_partition() -> None:
    with (
        ScriptedBroker(list_offsets=lambda asked: tell_offsets(asked, 29)) as broker,
        opened(broker) as cluster,
        pytest.raises(Refused, match=r"told-0: ListOffsets: TOPIC_AUTHORIZATION_FAILED \(29\)") as refused,
    ):
        cluster.list_offsets({PLACE: LATEST})
    assert refused.value.code == ErrorCode.topic_authorization_failed


def test_a_partition_that_the_broker_leaves_out_is_noticed() -> None:
    with (
        ScriptedBroker(list_offsets=lambda asked: asked.respond(topics=())) as broker,
        opened(broker) as cluster,
        pytest.raises(MalformedAnswer, match="told-0"),
    ):
        cluster.list_offsets({PLACE: LATEST})


def test_a_connection_that_is_cut_is_made_again() -> None:
    with ScriptedBroker(list_offsets=tell_offsets) as broker, opened(broker) as cluster:
        cluster.list_offsets({PLACE: LATEST})
        broker.drop_connections()
        assert cluster.list_offsets({PLACE: LATEST})[PLACE].offset == 100
        assert broker.connection_count == 2


def test_a_closed_cluster_says_so() -> None:
    with ScriptedBroker() as broker:
        cluster = opened(broker)
        cluster.describe(None)
        cluster.close()
        with pytest.raises(ClientError, match="closed"):
            cluster.describe(None)


def test_commits_of_many_partitions_are_sent_in_portions() -> None:
    sizes = []

    def tell_commit(asked: Asked) -> bytes:
        topics = asked.decode().topics
        sizes.append(sum(len(topic.partitions) for topic in topics))
        return asked.respond(topics=())

    def tell_coordinator(asked: Asked) -> bytes:
        row = asked.make(
            "Coordinator",
            key="g",
            node_id=1,
            host="127.0.0.1",
            port=broker.port,
            error_code=0,
            error_message=None,
        )
        return asked.respond(coordinators=(row,))

    broker = ScriptedBroker(offset_commit=tell_commit, find_coordinator=tell_coordinator)
    with broker, opened(broker) as cluster:
        cluster.commit("g", {TopicPartition(TOPIC, index): index for index in range(12_000)})
    assert sizes == [5_000, 5_000, 2_000]


def test_a_coordinator_is_looked_up_again_only_after_it_has_moved() -> None:
    codes = [0, 0, 16, 0]

    def tell_commit(asked: Asked) -> bytes:
        row = asked.make("OffsetCommitResponsePartition", partition_index=0, error_code=codes.pop(0))
        return asked.respond(topics=(asked.make("OffsetCommitResponseTopic", name=TOPIC, partitions=(row,)),))

    def tell_coordinator(asked: Asked) -> bytes:
        where = {"key": "g", "node_id": 1, "host": "127.0.0.1", "port": broker.port}
        return asked.respond(
            coordinators=(asked.make("Coordinator", **where, error_code=0, error_message=None),)
        )

    broker = ScriptedBroker(offset_commit=tell_commit, find_coordinator=tell_coordinator)
    with broker, opened(broker) as cluster:
        for _ in range(2):
            cluster.commit("g", {PLACE: 1})
        assert broker.count("find_coordinator") == 1
        cluster.commit("g", {PLACE: 2})
        assert broker.count("find_coordinator") == 2
        assert codes == []


def test_a_topic_that_is_known_is_not_asked_for_again_before_it_is_written() -> None:
    with ScriptedBroker() as broker, opened(broker) as cluster:
        assert cluster.describe([TOPIC])
        cluster.wake(TOPIC)
        assert broker.count("metadata") == 1


def test_a_partition_without_a_leader_says_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "GONE_AFTER_SECONDS", 0.0)
    places = [TopicPartition(TOPIC, index) for index in range(4)]
    with ScriptedBroker(list_offsets=tell_offsets) as broker:
        broker.partition_count, broker.leaderless = 4, {1}
        properties = {"bootstrap.servers": broker.bootstrap_servers, "default.api.timeout.ms": "200"}
        with Cluster(properties) as cluster:
            with pytest.raises(GaveUp, match="told-1 has no leader at the moment"):
                cluster.list_offsets(dict.fromkeys(places, LATEST))
            with pytest.raises(GaveUp, match="told-1 has no leader at the moment"):
                cluster.list_offsets(dict.fromkeys([*places, TopicPartition(TOPIC, 9)], LATEST))
            broker.leaderless = set()
            assert cluster.list_offsets({places[1]: LATEST})[places[1]].offset == 101
