"""Pytest fixtures, there as soon as Tidelog is installed.

def test_my_consumer(tidelog_broker):
    Producer({"bootstrap.servers": tidelog_broker.bootstrap_servers})

@pytest.mark.tidelog(brokers=5, min_insync_replicas=3)
def test_my_retries(tidelog_cluster):
    tidelog_cluster.kill(2)

| fixture                                             | is fresh for  | settings of the mark `tidelog` |
|-----------------------------------------------------|---------------|--------------------------------|
| `tidelog_broker`, `tidelog_cluster`                 | every test    | yes                            |
| `tidelog_session_broker`, `tidelog_session_cluster` | every session | no                             |

Settings for all of them: a fixture `tidelog_settings` of your own, with the scope of the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidelog.testing.broker import Broker
    from tidelog.testing.cluster import Cluster

# Tidelog itself is imported in the fixtures: every pytest run loads this file where Tidelog is installed.


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "tidelog(**settings): settings of this test's tidelog_broker or tidelog_cluster"
    )


@pytest.fixture(scope="session")
def tidelog_settings() -> dict[str, Any]:
    """Settings of every broker that a fixture starts, as keyword arguments of `Broker`; replace it."""
    return {}


@pytest.fixture
def tidelog_broker(request: pytest.FixtureRequest, tidelog_settings: dict[str, Any]) -> Iterator[Broker]:
    """A fresh broker for one test: free port, temporary directory, gone afterwards."""
    from tidelog.testing.broker import Broker

    with Broker(**tidelog_settings | _marked(request)) as broker:
        yield broker


@pytest.fixture
def tidelog_cluster(request: pytest.FixtureRequest, tidelog_settings: dict[str, Any]) -> Iterator[Cluster]:
    """Three fresh brokers for one test, gone afterwards; topics have three replicas, two of them in sync."""
    from tidelog.testing.cluster import Cluster

    with Cluster(**tidelog_settings | _marked(request)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def tidelog_session_broker(tidelog_settings: dict[str, Any]) -> Iterator[Broker]:
    """One broker for all tests of the session: give topics and groups names of their own."""
    from tidelog.testing.broker import Broker

    with Broker(**tidelog_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def tidelog_session_cluster(tidelog_settings: dict[str, Any]) -> Iterator[Cluster]:
    """Three brokers for all tests of the session; a test that kills one must start it again."""
    from tidelog.testing.cluster import Cluster

    with Cluster(**tidelog_settings) as cluster:
        yield cluster


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings in a test's marks; the mark of a test overrides that of its class or module."""
    marks = list(request.node.iter_markers("tidelog"))
    return {key: value for mark in reversed(marks) for key, value in mark.kwargs.items()}
