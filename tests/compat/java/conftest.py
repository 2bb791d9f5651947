"""Apache Kafka and its Java clients; their tests are skipped with the reason where it cannot be had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers.kafka import Kafka
from bench.peers.process import PeerMissing

from tests.compat.java.driver import Java
from tests.compat.java.jvm import Jvm, running_jvm
from tests.compat.java.tools import apache_kafka


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    try:
        return apache_kafka()
    except PeerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def jvm(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    try:
        with running_jvm(tmp_path_factory.mktemp("jvm")) as jvm:
            yield jvm
    except PeerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def java(bootstrap: str, jvm: Jvm) -> Java:
    return Java(bootstrap, jvm)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.java)
