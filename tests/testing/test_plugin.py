"""The pytest fixtures, found by their entry point."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidelog.testing import Broker, Cluster


def test_the_fixture_is_a_running_broker(tidelog_broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": tidelog_broker.bootstrap_servers, "log_level": 0})
    assert list(admin.list_topics(timeout=20).brokers) == [tidelog_broker.id]


def test_the_other_fixture_is_three_running_brokers(tidelog_cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": tidelog_cluster.bootstrap_servers, "log_level": 0})
    assert sorted(admin.list_topics(timeout=20).brokers) == [1, 2, 3]


@pytest.mark.tidelog(num_partitions=5)
class TestMarked:
    def test_a_mark_has_settings_of_the_broker(self, tidelog_broker: Broker) -> None:
        assert partitions_of(tidelog_broker.bootstrap_servers) == 5

    @pytest.mark.tidelog(num_partitions=7, default_replication_factor=1)
    def test_the_nearest_mark_wins(self, tidelog_broker: Broker) -> None:
        assert partitions_of(tidelog_broker.bootstrap_servers) == 7


@pytest.mark.tidelog(brokers=2, racks=["a", "b"])
def test_a_mark_has_what_a_cluster_is_made_of(tidelog_cluster: Cluster) -> None:
    assert sorted(tidelog_cluster.brokers) == [1, 2]


def partitions_of(bootstrap_servers: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic("t")])["t"].result(20)
    return len(admin.list_topics("t", timeout=20).topics["t"].partitions)


OTHERS_TESTS = """
import pytest

@pytest.fixture(scope="session")
def tidelog_settings():
    return {"node_id": 7}

seen = []

@pytest.mark.parametrize("turn", [1, 2])
def test_one_broker_for_all(tidelog_session_broker, turn):
    assert tidelog_session_broker.id == 7
    seen.append(tidelog_session_broker)
    assert seen[0] is tidelog_session_broker

def test_settings_are_for_fresh_ones_too(tidelog_broker):
    assert tidelog_broker.id == 7 and tidelog_broker is not seen[0]
"""


def test_a_project_s_own_settings_are_for_every_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_others.py").write_text(OTHERS_TESTS)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--strict-markers",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert ended.returncode == 0 and "3 passed" in ended.stdout, ended.stdout


def test_a_session_has_a_cluster_too(tidelog_session_cluster: Cluster) -> None:
    assert sorted(tidelog_session_cluster.brokers) == [1, 2, 3]
