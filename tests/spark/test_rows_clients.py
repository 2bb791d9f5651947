"""Rows written to a real broker: each lands in librdkafka's partition, and clients read what was put in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message, Producer

from tests.compat.client import Admin, Headers
from tests.compat.confluent.driver import Confluent
from tests.compat.kpython.driver import KafkaPython
from tidelog.client.cluster import Cluster
from tidelog.client.errors import TopicPartition
from tidelog.client.sender import Sender
from tidelog.protocol.compression import CODEC_NAMES
from tidelog.spark.rows import RowEncoder
from tidelog.testing import Broker

PARTITIONS = 12
NOW_MS = 1_700_000_000_000
KEYS = [b"", b"a", b"ab", b"abc", b"abcd", "schlüssel".encode(), *(b"key-%d" % n for n in range(300))]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(num_partitions=PARTITIONS) as broker:
        yield broker


def test_keys_land_where_librdkafka_puts_them(broker: Broker) -> None:
    placed: dict[bytes | None, int | None] = {}

    def on_delivery(error: object, message: Message) -> None:
        assert error is None
        placed[message.key()] = message.partition()

    Confluent(broker.bootstrap_servers).create_topic("placed", PARTITIONS, {})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"})
    for key in KEYS:
        producer.produce("placed", b"v", key, on_delivery=on_delivery)
    assert producer.flush(30) == 0
    assert partitions_of(KEYS) == placed
    assert len(set(placed.values())) == PARTITIONS


def partitions_of(keys: list[bytes]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for key in keys:
        rows = pa.RecordBatch.from_pydict({"key": [key], "value": [b"v"]})
        encoder = new_encoder("placed", 0)
        ((_, found[key], _, _),) = [*encoder.add(rows), *encoder.finish()]
    return found


def new_encoder(topic: str, codec: int) -> RowEncoder:
    return RowEncoder(
        partition_count=lambda _: PARTITIONS if topic == "placed" else 1,
        topic=topic,
        codec=codec,
        batch_bytes=5_000,
        now_ms=lambda: NOW_MS,
    )


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_clients_read_the_rows_that_were_written(codec: int, broker: Broker) -> None:
    topic = f"written-{CODEC_NAMES[codec]}"
    admin: Admin = Confluent(broker.bootstrap_servers)
    admin.create_topic(topic, 1, {"retention.ms": "-1"})
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [None, [], [{"key": "größe", "value": b"1"}, {"key": "none", "value": None}]] * 100
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([None, b"", b"key"] * 100, pa.binary()),
            "value": pa.array([f"value-{number}" * (number % 30) for number in range(299)] + [None]),
            "headers": pa.array(headers, kind),
        }
    )
    send(broker, new_encoder(topic, codec), rows)
    expected = [content(row) for row in rows.to_pylist()]
    for client in (Confluent(broker.bootstrap_servers), KafkaPython(broker.bootstrap_servers)):
        received = client.consume(topic, len(expected))
        assert [record.content for record in received] == expected
        assert {record.timestamp_ms for record in received} == {NOW_MS}


def content(row: dict[str, Any]) -> tuple[bytes | None, bytes | None, Headers]:
    value = None if row["value"] is None else row["value"].encode()
    return row["key"], value, tuple((header["key"], header["value"]) for header in row["headers"] or [])


def send(broker: Broker, encoder: RowEncoder, rows: pa.RecordBatch) -> None:
    with Cluster({"bootstrap.servers": broker.bootstrap_servers}) as cluster:
        sender = Sender(cluster, properties={})
        for topic, partition, batch, count in [*encoder.add(rows), *encoder.finish()]:
            sender.send(TopicPartition(topic, partition), batch, count)
        sender.flush()
        sender.close()
