"""Quotas in a cluster: set at any broker, in force at all, and counted by the controller for who asked."""

from __future__ import annotations

import time
from typing import Any

from kio.schema.errors import ErrorCode

from tests.server.test_transport_muted import quota
from tests.server.wire_client import WireClient
from tests.wire.harness import CREATE_TOPICS, METADATA, parts, seconds
from tests.wire.requests import metadata_values
from tidelog.testing import Cluster

DESCRIBE_CLIENT_QUOTAS = 48
BOUND_S = 120.0


def controller_of(port: int) -> int:
    with WireClient(port) as client:
        controller: int = client.ask(METADATA, 12, **metadata_values(12, [])).controller_id
        return controller


def await_quotas(port: int, count: int) -> None:
    deadline = time.monotonic() + BOUND_S
    with WireClient(port) as client:
        while len(client.ask(DESCRIBE_CLIENT_QUOTAS, 1, components=(), strict=False).entries) != count:
            assert time.monotonic() < deadline, "the quotas have not come"


def create(port: int, name: str) -> tuple[ErrorCode, bool]:
    """Through this broker: the error, and whether the client was throttled."""
    topic = parts(CREATE_TOPICS, 7).CreatableTopic(
        name=name, num_partitions=3, replication_factor=1, assignments=(), configs=()
    )
    with WireClient(port) as client:
        answer: Any = client.ask(CREATE_TOPICS, 7, topics=(topic,), timeout=seconds(30), validate_only=False)
    return answer.topics[0].error_code, answer.throttle_time.total_seconds() > 100


def test_the_controller_counts_what_was_asked_of_any_broker_and_brokers_mute_their_clients() -> None:
    with Cluster(3) as cluster:
        ports = {node_id: broker.port for node_id, broker in cluster.brokers.items()}
        controller = controller_of(ports[1])
        others = [port for node_id, port in ports.items() if node_id != controller]
        with WireClient(others[0]) as client:
            quota(client, "client-id", "tester", "controller_mutation_rate", 0.001)
        for port in ports.values():
            await_quotas(port, 1)
        assert create(others[0], "first") == (ErrorCode.none, False)
        for port in (*others, ports[controller]):
            assert create(port, "second") == (ErrorCode.throttling_quota_exceeded, True)
