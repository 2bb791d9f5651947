"""What real clients write into a real broker, fetched raw, gives the rows that they put in."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from bench.peers.process import PeerMissing

from tests.compat.aio.driver import Aio
from tests.compat.client import Admin, Client, Sent
from tests.compat.confluent.driver import Confluent
from tests.compat.java.driver import Java
from tests.compat.java.jvm import Jvm, running_jvm
from tests.compat.java.tools import apache_kafka
from tests.compat.kpython.driver import KafkaPython
from tests.spark.batches import Row, plain_rows
from tidelog.client.cluster import LATEST, Cluster
from tidelog.client.errors import TopicPartition
from tidelog.client.reader import RangeReader
from tidelog.spark.columns import Columns
from tidelog.testing import Broker

CLIENTS: dict[str, Callable[[str], Client]] = {
    "librdkafka": Confluent,
    "aiokafka": Aio,
    "kafka-python": KafkaPython,
}
RECORDS = [
    Sent(b"plain " + b"x" * 300),
    Sent(b"", b""),
    Sent(b"keyed " + b"x" * 300, b"key"),
    Sent(None, b"gone"),
    Sent(b"headed", b"key", (("one", b"1"), ("two", b""), ("größe", b"\xff" * 70))),
    *(Sent(b"%d" % number * (number % 50), b"%d" % number) for number in range(500)),
    Sent(b"\x00\x01" * 400_000),
    Sent(b"last"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    try:
        apache_kafka()
        with running_jvm(tmp_path_factory.mktemp("jvm")) as jvm:
            yield jvm
    except PeerMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("name", CLIENTS)
def test_what_python_s_clients_write_gives_their_rows(name: str, broker: Broker) -> None:
    check(CLIENTS[name](broker.bootstrap_servers), broker, name)


@pytest.mark.java
def test_what_the_java_client_writes_gives_its_rows(jvm: Jvm, broker: Broker) -> None:
    check(Java(broker.bootstrap_servers, jvm), broker, "java")


def check(client: Client, broker: Broker, topic: str) -> None:
    """Every codec that the client has, in one log; then what was written, record by record."""
    admin: Admin = Confluent(broker.bootstrap_servers)
    admin.create_topic(topic, 1, {"max.message.bytes": "2000000"})
    for codec in client.codecs:
        client.produce(topic, RECORDS, codec=codec)
    rows = fetched(broker, topic)
    sent = [record for _ in client.codecs for record in RECORDS]
    assert [row[4] for row in rows] == list(range(len(sent)))
    assert [(row[0], row[1], row[7]) for row in rows] == [content(record) for record in sent]
    assert {(row[2], row[3], row[6]) for row in rows} == {(topic, 0, 0)}
    received = client.consume(topic, len(sent))
    assert [row[5] for row in rows] == [1000 * record.timestamp_ms for record in received]


def content(record: Sent) -> tuple[bytes | None, bytes | None, list[dict[str, object]] | None]:
    headers: list[dict[str, object]] = [{"key": key, "value": value} for key, value in record.headers]
    return record.key, record.value, headers or None


def fetched(broker: Broker, topic: str) -> list[Row]:
    with Cluster({"bootstrap.servers": broker.bootstrap_servers}) as cluster:
        partition = TopicPartition(topic, 0)
        end = cluster.list_offsets({partition: LATEST})[partition].offset
        topic_id = cluster.describe([topic])[topic].id
        columns = Columns(topic, 0, 0, end, include_headers=True)
        pages: list[pa.RecordBatch] = []
        for piece in RangeReader(cluster, partition, topic_id, 0, end, committed_only=False):
            pages += columns.add(piece.data, piece.start, piece.end, piece.aborted)
            assert columns.position == min(end, piece.next_offset)
        pages += columns.finish()
        assert columns.next_offset == end
    return [row for page in pages for row in plain_rows(page)]
