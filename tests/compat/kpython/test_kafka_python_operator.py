"""kafka-python's KafkaAdminClient against the operators' contract."""

from __future__ import annotations

import pytest

from tests.compat.client import eventually
from tests.compat.conftest import NewTopic
from tests.compat.kpython.operator import KafkaPythonOperator
from tests.compat.operator import UNKNOWN_TOPIC_ID, is_refused
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


class TestKafkaPythonOperator(
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
    def operator(self, bootstrap: str) -> KafkaPythonOperator:
        return KafkaPythonOperator(bootstrap)

    def test_the_older_call_sets_too(self, operator: KafkaPythonOperator, topic: str) -> None:
        operator.replace("TOPIC", topic, {"flush.ms": "2000"})
        settings = operator.settings("TOPIC", topic)
        assert settings["flush.ms"].value == "2000"
        assert settings["retention.ms"].value == "-1", "this client sends along what the topic was made with"

    def test_settings_go_back_to_their_defaults(
        self, operator: KafkaPythonOperator, new_topic: NewTopic
    ) -> None:
        topic = new_topic({"flush.ms": "5000", "segment.ms": "100000"})
        operator.reset("TOPIC", topic, "flush.ms")
        settings = operator.settings("TOPIC", topic)
        assert (settings["flush.ms"].source, settings["segment.ms"].value) == ("DEFAULT_CONFIG", "100000")
        operator.reset("TOPIC", topic)
        sources = {setting.source for setting in operator.settings("TOPIC", topic).values()}
        assert "DYNAMIC_TOPIC_CONFIG" not in sources

    def test_a_topic_is_found_and_deleted_by_its_id(self, operator: KafkaPythonOperator, topic: str) -> None:
        topic_id = operator.topic_id(topic)
        assert operator.topic_of(topic_id) == topic
        operator.delete_topic_by_id(topic_id)
        eventually(lambda: topic not in operator.topics(), "the topic is still there")
        assert is_refused(UNKNOWN_TOPIC_ID, operator.delete_topic_by_id, topic_id)

    def test_partitions_come_in_pages(self, operator: KafkaPythonOperator, new_topic: NewTopic) -> None:
        first, second = sorted([new_topic(partitions=3), new_topic(partitions=2)])
        whole = [(name, index) for name in (first, second) for index in range(operator.topics()[name])]
        pages = list(operator.pages([second, first], limit=2))
        assert [len(page) for page in pages] == [2, 2, 1]
        assert [partition for page in pages for partition in page] == whole
