"""librdkafka pushes its metrics when they are subscribed to, and the broker's page shows them (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from tests.compat.client import eventually
from tests.server.wire_client import WireClient
from tests.wire.harness import parts
from tidelog.testing import Broker

INCREMENTAL_ALTER_CONFIGS, CLIENT_METRICS = 44, 16


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(probe_listener="127.0.0.1:0") as running:
        yield running


def subscribe(broker: Broker, **settings: str) -> None:
    part = parts(INCREMENTAL_ALTER_CONFIGS, 1)
    changes = tuple(
        part.AlterableConfig(name=name.replace("_", "."), config_operation=0, value=text)
        for name, text in settings.items()
    )
    resource = part.AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="all", configs=changes)
    with WireClient(broker.port) as client:
        answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=False)
    assert [result.error_code for result in answer.responses] == [0]


def shown(broker: Broker, producer: Producer) -> list[str]:
    """The lines of the page about clients."""
    producer.poll(0.05)
    with urlopen(f"http://{broker.probe_address}/metrics", timeout=10) as page:
        text: str = page.read().decode()
    return [line for line in text.splitlines() if line.startswith("kafka_client_")]


def test_what_is_subscribed_is_pushed_and_shown_until_the_client_goes(broker: Broker) -> None:
    subscribe(broker, metrics="org.apache.kafka.producer.request.", interval_ms="100", match="client_id=seen")
    settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    producer = Producer(settings | {"client.id": "seen"})
    unseen = Producer(settings | {"client.id": "unseen"})
    for each in (producer, unseen):
        each.produce("t", b"value")
        assert each.flush(30) == 0
    eventually(lambda: bool(shown(broker, producer)), "nothing of the client is shown")
    lines = shown(broker, producer)
    assert any(line.startswith("kafka_client_producer_request_latency_avg{") for line in lines)
    assert all('client_id="seen"' in line and "confluent-kafka-python" in line for line in lines)
    assert all(line.startswith("kafka_client_producer_request_") for line in lines)
    producer.close()
    eventually(lambda: not shown(broker, unseen), "a client that is gone is still shown")
