"""The pytest fixture, found by its entry point."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from tidelog.testing import Broker


def test_the_fixture_is_a_running_broker(tidelog_broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": tidelog_broker.bootstrap_servers, "log_level": 0})
    assert list(admin.list_topics(timeout=20).brokers) == [tidelog_broker.id]
