"""The pytest fixtures, found by their entry point."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from tidelog.testing import Broker, Cluster


def test_the_fixture_is_a_running_broker(tidelog_broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": tidelog_broker.bootstrap_servers, "log_level": 0})
    assert list(admin.list_topics(timeout=20).brokers) == [tidelog_broker.id]


def test_the_other_fixture_is_three_running_brokers(tidelog_cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": tidelog_cluster.bootstrap_servers, "log_level": 0})
    assert sorted(admin.list_topics(timeout=20).brokers) == [1, 2, 3]
