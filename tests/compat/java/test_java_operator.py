"""The Java AdminClient 4.3 against the operators' contract, and what only it can ask."""

from __future__ import annotations

import pytest

from tests.compat.client import CONSUME_SECONDS_MAX, Client, eventually
from tests.compat.contract import PLAIN
from tests.compat.java.jvm import Jvm
from tests.compat.java.operator import JavaOperator
from tests.compat.operator import OFFSET_OUT_OF_RANGE, refusal
from tests.compat.operator_contract import (
    AccessControl,
    BrokerSettings,
    Creation,
    Credentials,
    DeletedRecords,
    Growth,
    Listing,
    Survey,
    TopicSettings,
)


class TestJavaOperator(
    Creation,
    Growth,
    DeletedRecords,
    Listing,
    TopicSettings,
    BrokerSettings,
    Credentials,
    AccessControl,
    Survey,
):
    @pytest.fixture
    def operator(self, bootstrap: str, jvm: Jvm) -> JavaOperator:
        return JavaOperator(bootstrap, jvm)

    def test_a_topic_goes_by_its_id(self, operator: JavaOperator, topic: str) -> None:
        operator.delete_topic_by_id(operator.topic_id(topic))
        eventually(lambda: topic not in operator.topics(), "the topic is still there")

    def test_a_consumer_without_a_reset_is_told_that_its_records_are_gone(
        self, operator: JavaOperator, writer: Client, topic: str
    ) -> None:
        writer.produce(topic, PLAIN)
        operator.delete_records(topic, 10)
        with operator.consumer(topic, 3) as consumer:
            assert refusal(consumer.poll, 1) == OFFSET_OUT_OF_RANGE
            consumer.call("seek", start="earliest")
            assert consumer.call("position") == 10
            assert consumer.poll(1, wait_ms=int(CONSUME_SECONDS_MAX * 1000))[0].offset == 10

    def test_a_replica_tells_its_directory(self, operator: JavaOperator, topic: str) -> None:
        node = operator.cluster().nodes[0][0]
        (place,) = [each for each in operator.log_directories(node) if f"{topic}-0" in each.sizes]
        assert operator.admin("replica_place", topic=topic, node=node) == place.path

    def test_local_and_tiered_places_are_those_of_a_log_without_tiers(
        self, operator: JavaOperator, writer: Client, topic: str
    ) -> None:
        writer.produce(topic, PLAIN)
        assert operator.admin("offset", topic=topic, place="earliest_local")[0] == 0
        assert operator.admin("offset", topic=topic, place="latest_tiered")[0] == -1

    def test_quotas_are_altered_and_described(self, operator: JavaOperator, fresh_name: str) -> None:
        entity = {"user": fresh_name, "client-id": None}
        values = {"producer_byte_rate": 1e12, "request_percentage": 12.5}
        operator.admin("alter_quotas", entity=entity, values=values, validate_only=True)
        assert operator.admin("describe_quotas", entity=entity) == []
        operator.admin("alter_quotas", entity=entity, values=values, validate_only=False)
        found = [{"entity": entity, "values": values}]
        eventually(lambda: operator.admin("describe_quotas", entity=entity) == found, "no such quotas")
        gone = dict.fromkeys(values)
        operator.admin("alter_quotas", entity=entity, values=gone, validate_only=False)
        eventually(lambda: operator.admin("describe_quotas", entity=entity) == [], "they are still there")
        with pytest.raises(Exception, match=r"(?i)invalid"):
            operator.admin("alter_quotas", entity=entity, values={"no.such": 1.0}, validate_only=False)
