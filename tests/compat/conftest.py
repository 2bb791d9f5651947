"""The broker that the clients talk to, topics on it, and a JVM for those that need one.

`TIDELOG_COMPAT_BOOTSTRAP=host:port` points the same tests at a broker that already runs. That is how they
are proven: what they claim of Tidelog must hold for Apache Kafka too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Protocol
from uuid import uuid4

import pytest
from bench.peers.kafka import Kafka
from bench.peers.process import PeerMissing

from tests.compat.broker import running_broker
from tests.compat.client import Admin, eventually
from tests.compat.confluent.driver import Confluent
from tests.compat.java.jvm import Jvm, running_jvm
from tests.compat.java.tools import apache_kafka
from tidelog.testing import Cluster

CLUSTER_SETTINGS = {"offsets.topic.num.partitions": "6", "transaction.state.log.num.partitions": "6"}


class NewTopic(Protocol):
    def __call__(self, settings: Mapping[str, str] | None = None, partitions: int = 1) -> str: ...


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    existing = os.environ.get("TIDELOG_COMPAT_BOOTSTRAP")
    if existing:
        yield existing
        return
    with running_broker(tmp_path_factory.mktemp("broker") / "logs") as address:
        yield address


@pytest.fixture(scope="session")
def cluster_bootstrap() -> Iterator[str]:
    """Three brokers whose transactions and groups have coordinators on all of them."""
    if os.environ.get("TIDELOG_COMPAT_BOOTSTRAP"):
        pytest.skip("TIDELOG_COMPAT_BOOTSTRAP names the one broker that is asked")
    with Cluster(3, None, **CLUSTER_SETTINGS) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="session")
def writer(bootstrap: str) -> Admin:
    """The client that makes topics, and writes where the test is about reading."""
    return Confluent(bootstrap)


@pytest.fixture
def new_topic(writer: Admin) -> NewTopic:
    """Makes topics that keep every record, whatever its timestamp."""

    def make(settings: Mapping[str, str] | None = None, partitions: int = 1) -> str:
        name = f"compat-{uuid4().hex[:12]}"
        writer.create_topic(name, partitions, {"retention.ms": "-1"} | dict(settings or {}))
        eventually(lambda: writer.topics().get(name) == partitions, f"{name} is not listed")
        return name

    return make


@pytest.fixture
def fresh_name() -> str:
    return f"compat-{uuid4().hex[:12]}"


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic()


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    """Who needs it is skipped with the reason where it cannot be had."""
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
