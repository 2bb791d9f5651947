"""The brokers that the client must work with: Tidelog, and Apache Kafka where it can be had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from uuid import uuid4

import pytest
from bench.peers.kafka import SETTINGS as KAFKA_SETTINGS
from bench.peers.process import PeerMissing
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.client import eventually
from tests.compat.java.tools import apache_kafka, running_kafka
from tidelog.client.cluster import Cluster
from tidelog.testing.process import BrokerProcess

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        peer = apache_kafka()
    except PeerMissing as missing:
        pytest.skip(str(missing))
    site = peer.prepare(tmp_path_factory.mktemp("kafka") / "site", KAFKA_SETTINGS | SETTINGS)
    with running_kafka(site) as address:
        yield address


@pytest.fixture(scope="session")
def tidelog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("tidelog"), SETTINGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session", params=["tidelog", pytest.param("kafka", marks=pytest.mark.java)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    address: str = request.getfixturevalue(request.param)
    return address


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster({"bootstrap.servers": bootstrap, "default.api.timeout.ms": "30000"}) as opened:
        yield opened


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def new_topic(admin: AdminClient, cluster: Cluster) -> MakeTopic:
    def make(partitions: int = 1, name: str = "", settings: Mapping[str, str] | None = None) -> str:
        name = name or f"client-{uuid4().hex[:12]}"
        topic = NewTopic(name, partitions, 1, config={"retention.ms": "-1"} | dict(settings or {}))
        admin.create_topics([topic])[name].result()
        eventually(lambda: name in cluster.describe([name]), f"{name} is not there")
        return name

    return make
