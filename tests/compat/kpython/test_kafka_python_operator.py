"""kafka-python's KafkaAdminClient against the operators' contract."""

from __future__ import annotations

import pytest

from tests.compat.kpython.operator import KafkaPythonOperator
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
