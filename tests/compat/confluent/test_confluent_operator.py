"""confluent-kafka's AdminClient against the operators' contract, and a call that only older clients make."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compat.client import CONSUME_SECONDS_MAX, eventually
from tests.compat.confluent.operator import ConfluentOperator
from tests.compat.operator import INVALID_REPLICA_ASSIGNMENT, SECURITY_DISABLED, is_refused
from tests.compat.operator_contract import (
    NOBODY,
    BrokerSettings,
    Creation,
    Credentials,
    DeletedRecords,
    Growth,
    Listing,
    TopicSettings,
)


class TestConfluentOperator(
    Creation, Growth, DeletedRecords, Listing, TopicSettings, BrokerSettings, Credentials
):
    @pytest.fixture
    def operator(self, bootstrap: str) -> ConfluentOperator:
        return ConfluentOperator(bootstrap)

    def test_security_is_disabled(self, operator: ConfluentOperator) -> None:
        """Also for who asks what there is, but librdkafka takes that answer for an empty one."""
        assert is_refused(SECURITY_DISABLED, operator.create_acl)
        assert is_refused(SECURITY_DISABLED, operator.delete_acls)
        assert operator.acls() == []

    @pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
    def test_replaced_settings_are_all_that_is_left(self, operator: ConfluentOperator, topic: str) -> None:
        operator.replace("TOPIC", topic, {"max.message.bytes": "5000", "flush.ms": "1000"})
        operator.replace("TOPIC", topic, {"flush.ms": "2000"})
        settings = operator.settings("TOPIC", topic)
        assert settings["flush.ms"].value == "2000"
        assert settings["max.message.bytes"].source == "DEFAULT_CONFIG"
        assert settings["retention.ms"].source == "DEFAULT_CONFIG", "what the topic was made with is gone too"

    def test_a_new_partition_takes_records_where_it_was_put(
        self, operator: ConfluentOperator, topic: str, bootstrap: str
    ) -> None:
        node = operator.cluster().nodes[0][0]
        assert is_refused(INVALID_REPLICA_ASSIGNMENT, operator.grow_on, topic, 3, [[node]])
        assert is_refused(INVALID_REPLICA_ASSIGNMENT, operator.grow_on, topic, 2, [[NOBODY]])
        operator.grow_on(topic, 3, [[node], [node]])
        eventually(lambda: operator.topics().get(topic) == 3, "the topic has not 3 partitions")
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(topic, b"value", partition=2)
        assert producer.flush(CONSUME_SECONDS_MAX) == 0
        with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "never-joined"})) as consumer:
            edges = consumer.get_watermark_offsets(TopicPartition(topic, 2), CONSUME_SECONDS_MAX)
        assert edges == (0, 1)

    def test_without_an_authorizer_everything_is_allowed(
        self, operator: ConfluentOperator, topic: str
    ) -> None:
        of_cluster, of_topic = operator.allowed(topic)
        both = {"CREATE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
        assert of_cluster == both | {"CLUSTER_ACTION", "IDEMPOTENT_WRITE"}
        assert of_topic == both | {"READ", "WRITE", "DELETE"}
