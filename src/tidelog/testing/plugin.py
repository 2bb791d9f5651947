"""Pytest fixtures, there as soon as Tidelog is installed.

def test_my_consumer(tidelog_broker):
    Producer({"bootstrap.servers": tidelog_broker.bootstrap_servers})

def test_my_retries(tidelog_cluster):
    tidelog_cluster.kill(2)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidelog.testing.broker import Broker
    from tidelog.testing.cluster import Cluster


@pytest.fixture
def tidelog_broker() -> Iterator[Broker]:
    """A fresh broker for one test: free port, temporary directory, gone afterwards."""
    # Imported here because this file is loaded by every pytest run where Tidelog is installed.
    from tidelog.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def tidelog_cluster() -> Iterator[Cluster]:
    """Three fresh brokers for one test, gone afterwards; topics have three replicas, two of them in sync."""
    from tidelog.testing.cluster import Cluster

    with Cluster(3) as cluster:
        yield cluster
