"""One Spark for all tests of this folder that run in this process, a broker, and topics on it.

The JVM is started once, with the settings of `tidelog.spark.session`: `make test` runs all these tests in one
of its processes. It has a heap of `HEAP`, two task threads and the collector that takes least.
Spark's own Kafka connector is in it where Maven could fetch it: who needs it asks for `kafka_connector`.

`TIDELOG_COMPAT_BOOTSTRAP=host:port` points the same tests at a broker that already runs, as in `compat`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import pytest
from bench.peers import spark_kafka
from bench.peers.process import PeerMissing

from tests.compat.broker import running_broker
from tests.compat.client import eventually
from tests.compat.confluent.driver import Confluent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXISTING_BROKER = os.environ.get("TIDELOG_COMPAT_BOOTSTRAP")
HEAP = "1g"
SETTINGS = {
    "spark.driver.memory": HEAP,
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss2m",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}


class NewTopic(Protocol):
    def __call__(self, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str: ...


@pytest.fixture(scope="session")
def connector_settings() -> dict[str, str]:
    """Spark's own Kafka connector, where it can be had."""
    try:
        return spark_kafka.session_settings()
    except PeerMissing:
        return {}


@pytest.fixture(scope="session")
def spark(
    connector_settings: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")
    from tidelog.spark.session import session

    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    spark = session("tests", master="local[2]", config=SETTINGS | warehouse | dict(connector_settings))
    yield spark
    spark.stop()


@pytest.fixture
def kafka_connector(spark: SparkSession, connector_settings: Mapping[str, str]) -> str:
    """The format of Spark's own connector."""
    if not connector_settings:
        pytest.skip("spark-sql-kafka is not there and Maven cannot fetch it")
    return "kafka"


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker in a process of its own, as users have it."""
    if EXISTING_BROKER:
        yield EXISTING_BROKER
        return
    with running_broker(tmp_path_factory.mktemp("broker") / "logs") as address:
        yield address


@pytest.fixture(scope="session")
def client(bootstrap: str) -> Confluent:
    """Makes topics, and writes and reads what Spark reads and writes."""
    return Confluent(bootstrap)


@pytest.fixture
def new_topic(client: Confluent) -> Iterator[NewTopic]:
    """Makes topics that keep every record, whatever its timestamp; on a broker of others they go again."""
    made: list[str] = []

    def make(partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        name = f"spark-{uuid4().hex[:12]}"
        client.create_topic(name, partitions, {"retention.ms": "-1"} | dict(settings or {}))
        made.append(name)
        eventually(lambda: client.topics().get(name) == partitions, f"{name} is not listed")
        return name

    yield make
    for name in made if EXISTING_BROKER else ():
        client.delete_topic(name)


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic()
