"""Any broker will do: what is the controller's is handed on to it, what is a leader's is refused (C2, C4)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.compat.cluster.raw import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    ELECT_LEADERS,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    Api,
    ask,
    part,
)
from tests.differential.entities import milliseconds
from tests.log.making import make_batch
from tests.testing.watching import TIMEOUT_S, Watcher, watch
from tidelog.protocol.errors import ErrorCode
from tidelog.testing import Broker, Cluster

TOPIC_RESOURCE = 2
OLD_FETCH = (1, 10)  # of clients that know nothing of followers
SOON = milliseconds(20_000)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"leader.imbalance.check.interval.seconds": 3_600, "offsets.topic.num.partitions": 6}
    with Cluster(3, None, **settings) as cluster:
        watch(cluster).create("led", 6)
        yield cluster


@pytest.fixture(params=["first", "second"])
def other(cluster: Cluster, request: pytest.FixtureRequest) -> Broker:
    """A broker that is not the controller: each of the two."""
    controller = watch(cluster).controller()
    others = [broker for node_id, broker in sorted(cluster.brokers.items()) if node_id != controller]
    return others[["first", "second"].index(request.param)]


@pytest.fixture
def name(other: Broker, request: pytest.FixtureRequest) -> str:
    return f"{request.function.__name__.replace('_', '-')[:60]}-{other.id}"


def create(broker: Broker, name: str, partitions: int = 2) -> None:
    topic = part(CREATE_TOPICS, "CreatableTopic", name=name, num_partitions=partitions, replication_factor=3)
    (created,) = ask(broker, CREATE_TOPICS, topics=(topic,), timeout=SOON).topics
    assert (created.error_code, created.num_partitions) == (ErrorCode.none, partitions)


def until_known(broker: Broker, name: str, partitions: int) -> Watcher:
    watcher = Watcher(broker.bootstrap_servers)
    watcher.until(lambda: len(watcher.partitions(name)) == partitions, f"{name} is not known to {broker.id}")
    return watcher


def test_a_topic_is_created_grown_and_deleted_through_it(cluster: Cluster, other: Broker, name: str) -> None:
    create(other, name)
    for broker in cluster.brokers.values():
        until_known(broker, name, 2)
    more = part(CREATE_PARTITIONS, "CreatePartitionsTopic", name=name, count=5, assignments=None)
    (grown,) = ask(other, CREATE_PARTITIONS, topics=(more,), timeout=SOON).results
    assert grown.error_code == ErrorCode.none
    for broker in cluster.brokers.values():
        until_known(broker, name, 5)
    gone = part(DELETE_TOPICS, "DeleteTopicState", name=name)
    (deleted,) = ask(other, DELETE_TOPICS, topics=(gone,), timeout=SOON).responses
    assert deleted.error_code == ErrorCode.none
    for broker in cluster.brokers.values():
        watcher = Watcher(broker.bootstrap_servers)
        watcher.until(partial(is_unlisted, watcher, name), f"{name} is not gone")


def test_a_refusal_of_the_controller_s_comes_back_as_it_is(other: Broker) -> None:
    topic = part(CREATE_TOPICS, "CreatableTopic", name="led", num_partitions=1, replication_factor=3)
    (refused,) = ask(other, CREATE_TOPICS, topics=(topic,), timeout=SOON).topics
    assert refused.error_code == ErrorCode.topic_already_exists
    topic = part(CREATE_TOPICS, "CreatableTopic", name="many", num_partitions=1, replication_factor=4)
    (refused,) = ask(other, CREATE_TOPICS, topics=(topic,), timeout=SOON).topics
    assert refused.error_code == ErrorCode.invalid_replication_factor


def test_settings_change_through_it_and_hold_on_all(cluster: Cluster, other: Broker, name: str) -> None:
    create(other, name)
    change = part(
        ALTER_CONFIGS, "AlterableConfig", name="retention.ms", config_operation=0, value=f"{other.id}000"
    )
    resource = part(
        ALTER_CONFIGS,
        "AlterConfigsResource",
        resource_type=TOPIC_RESOURCE,
        resource_name=name,
        configs=(change,),
    )
    (altered,) = ask(other, ALTER_CONFIGS, resources=(resource,)).responses
    assert altered.error_code == ErrorCode.none
    for broker in cluster.brokers.values():
        watcher = until_known(broker, name, 2)
        has_it = partial(has_retention, broker, name, f"{other.id}000")
        watcher.until(has_it, f"broker {broker.id} has another retention")


def is_unlisted(watcher: Watcher, name: str) -> bool:
    return name not in watcher.admin.list_topics(timeout=TIMEOUT_S).topics


def has_retention(broker: Broker, name: str, expected: str) -> bool:
    keys = ("retention.ms",)
    asked = part(
        DESCRIBE_CONFIGS,
        "DescribeConfigsResource",
        resource_type=TOPIC_RESOURCE,
        resource_name=name,
        configuration_keys=keys,
    )
    (described,) = ask(broker, DESCRIBE_CONFIGS, resources=(asked,)).results
    return [each.value for each in described.configs or ()] == [expected]


def test_all_brokers_tell_the_same_cluster(cluster: Cluster) -> None:
    told = [ask(broker, DESCRIBE_CLUSTER, endpoint_type=1) for broker in cluster.brokers.values()]
    assert len({each.cluster_id for each in told}) == 1
    assert [each.controller_id for each in told] == list(cluster.brokers)
    decides = {
        ask(broker, DESCRIBE_CLUSTER, endpoint_type=2).controller_id for broker in cluster.brokers.values()
    }
    assert decides == {watch(cluster).controller()}
    ports = {(node_id, broker.port) for node_id, broker in cluster.brokers.items()}
    assert all({(int(each.broker_id), each.port) for each in one.brokers} == ports for one in told)
    led = [metadata(broker, "led") for broker in cluster.brokers.values()]
    assert led[0] == led[1] == led[2]


def metadata(broker: Broker, topic: str) -> list[tuple[Any, ...]]:
    asked = part(METADATA, "MetadataRequestTopic", name=topic, topic_id=None)
    (told,) = ask(broker, METADATA, topics=(asked,)).topics
    return sorted(
        (each.partition_index, each.leader_id, each.leader_epoch, each.replica_nodes)
        for each in told.partitions
    )


def test_leaders_are_elected_through_it(cluster: Cluster, other: Broker, name: str) -> None:
    create(other, name, 6)
    moved = next(
        node_id for node_id in cluster.brokers if node_id not in (other.id, watch(cluster).controller())
    )
    watcher = watch(cluster)
    watcher.until_in_sync(name)
    cluster.restart(moved)
    watcher.until_in_sync(name)
    wanted = [index for index, each in enumerate(watcher.partitions(name)) if each.replicas[0] == moved]
    assert wanted and all(watcher.partitions(name)[index].leader != moved for index in wanted)
    asked = part(ELECT_LEADERS, "TopicPartitions", topic=name, partitions=tuple(range(6)))
    answer = ask(other, ELECT_LEADERS, election_type=0, topic_partitions=(asked,), timeout=SOON)
    (results,) = answer.replica_election_results
    codes = {each.partition_id: each.error_code for each in results.partition_result}
    assert answer.error_code == ErrorCode.none
    assert [index for index, code in sorted(codes.items()) if code == ErrorCode.none] == wanted
    watcher.until(
        lambda: (
            [each.leader for each in watcher.partitions(name)]
            == [each.replicas[0] for each in watcher.partitions(name)]
        ),
        "preferred leaders do not lead",
        name,
    )


def test_a_topic_is_made_by_whoever_asks_for_it(cluster: Cluster, other: Broker, name: str) -> None:
    asked = part(METADATA, "MetadataRequestTopic", name=name, topic_id=None)
    ask(other, METADATA, topics=(asked,), allow_auto_topic_creation=True)
    for broker in cluster.brokers.values():
        until_known(broker, name, 1)
    assert len(watch(cluster).partitions(name)[0].replicas) == 3


def test_a_group_s_coordinator_is_found_through_any_broker(cluster: Cluster, name: str) -> None:
    watcher = watch(cluster)

    def told() -> set[int]:
        asked = (ask(each, FIND_COORDINATOR, coordinator_keys=(name,)) for each in cluster.brokers.values())
        return {int(answer.coordinators[0].node_id) for answer in asked}

    watcher.until(lambda: len(told()) == 1 and told() <= {1, 2, 3}, f"they do not agree: {told()}")


def test_a_broker_that_does_not_lead_refuses_writes_and_reads_that_are_the_leader_s(cluster: Cluster) -> None:
    watcher = watch(cluster)
    leader = watcher.leader("led")
    epoch = metadata(cluster[leader], "led")[0][2]
    for node_id, broker in cluster.brokers.items():
        expected = ErrorCode.none if node_id == leader else ErrorCode.not_leader_or_follower
        assert produced_code(broker) == expected
        assert fetched_code(broker, epoch, OLD_FETCH) == expected
        assert fetched_code(broker, epoch) == ErrorCode.none  # of a follower too: KIP-392
        assert fetched_code(broker, epoch + 1) == ErrorCode.unknown_leader_epoch


def produced_code(broker: Broker) -> int:
    batch = part(PRODUCE, "PartitionProduceData", index=0, records=bytes(make_batch()))
    topic = part(PRODUCE, "TopicProduceData", name="led", partition_data=(batch,))
    answer = ask(broker, PRODUCE, acks=-1, timeout=SOON, topic_data=(topic,), transactional_id=None)
    return int(answer.responses[0].partition_responses[0].error_code)


def fetched_code(broker: Broker, epoch: int, api: Api = FETCH) -> int:
    wanted = part(api, "FetchPartition", partition=0, current_leader_epoch=epoch, partition_max_bytes=1_000)
    topic = part(api, "FetchTopic", topic="led", partitions=(wanted,))
    answer = ask(broker, api, replica_id=-1, max_bytes=1_000, session_epoch=-1, topics=(topic,))
    return int(answer.responses[0].partitions[0].error_code)


def test_a_client_that_knows_the_leaders_of_before_goes_on(cluster: Cluster) -> None:
    """The broker that led is there and leads no more: it refuses, and the client asks anew."""
    watcher = watch(cluster)
    watcher.create("moving", 3)
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    settings = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    producer = Producer(settings | {"enable.idempotence": True})
    reading: dict[str, Any] = settings | {"group.id": "moving", "auto.offset.reset": "earliest"}
    consumer = Consumer(reading)
    consumer.assign([TopicPartition("moving", index, 0) for index in range(3)])
    seen = []
    for turn in range(4):
        for index in range(3):
            producer.produce("moving", f"{index}-{turn}", partition=index, on_delivery=on_delivery)
        assert producer.flush(TIMEOUT_S) == 0
        seen += [(message.value() or b"").decode() for message in consumer.consume(3, TIMEOUT_S)]
        leader = watcher.leader("moving")
        cluster.restart(leader)
        watcher.until_in_sync("moving")
    consumer.close()
    assert failures == []
    assert [sorted(value for value in seen if value.startswith(f"{index}-")) for index in range(3)] == [
        [f"{index}-{turn}" for turn in range(4)] for index in range(3)
    ]
