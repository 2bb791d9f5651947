"""confluent-kafka's AdminClient against the operators' contract, and a call that only older clients make."""

from __future__ import annotations

import pytest

from tests.compat.confluent.operator import ConfluentOperator
from tests.compat.operator import SECURITY_DISABLED, is_refused
from tests.compat.operator_contract import (
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
