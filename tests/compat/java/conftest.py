"""Apache Kafka for the tests of files; they are skipped with the reason where it cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.peers.kafka import Kafka
from bench.peers.process import PeerMissing

from tests.compat.java.tools import apache_kafka


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    try:
        return apache_kafka()
    except PeerMissing as missing:
        pytest.skip(str(missing))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.java)
