"""What every test process has in common, and all that it starts: JVMs of Spark that are quick to start, and
an order in which the families that take longest come first.

Such a JVM lives for seconds, and the two processes of `make test` run one each on two cores: there the second
compiler and a collector of many threads cost more than they bring. A family that takes a minute and comes
last is waited for by the other process.
"""

from __future__ import annotations

import os

import pytest

from tidelog.cli.zookeeper_process import ZooKeeperMissing, find_command

os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")

FIRST = (
    "tests/chaos/test_chaos.py",
    "tests/spark/test_source_kills.py",
    "tests/spark/test_source_standalone.py",
    "tests/cli/test_pipeline_run.py",
    "tests/sim/test_cluster_mutants.py",
    "tests/sim/test_cluster.py",
    "tests/spark/",
    "tests/differential/",
    "tests/compat/",
)


@pytest.fixture(scope="session")
def needs_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Who needs it is skipped with the reason where it cannot be had."""
    try:
        find_command(tmp_path_factory.getbasetemp())
    except ZooKeeperMissing as missing:
        pytest.skip(str(missing))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _place_of(item.nodeid))


def _place_of(node_id: str) -> int:
    return next((place for place, start in enumerate(FIRST) if node_id.startswith(start)), len(FIRST))
