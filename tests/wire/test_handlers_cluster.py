"""DescribeCluster, as Kafka answers it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import (
    DESCRIBE_CLUSTER,
    Harness,
)

NO_OPERATIONS = -(2**31)


def cluster(harness: Harness, version: int, endpoint_type: int = 1, operations: bool = False) -> Any:
    return harness.ask(
        DESCRIBE_CLUSTER,
        version,
        include_cluster_authorized_operations=operations,
        endpoint_type=endpoint_type,
        include_fenced_brokers=True,
    )


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_its_brokers_and_its_controller_are_told(tmp_path: Path, version: int) -> None:
    harness = Harness(tmp_path, broker_rack="east")
    answer = cluster(harness, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.cluster_id, answer.controller_id) == (harness.broker.image.cluster_id, 1)
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (1, "127.0.0.1", 9092, "east")
    assert version < 2 or not broker.is_fenced
    assert version < 1 or answer.endpoint_type == 1
    assert answer.cluster_authorized_operations == NO_OPERATIONS
    assert cluster(harness, version, operations=True).cluster_authorized_operations == 8096


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint_type", "error", "message"),
    [
        (0, ErrorCode.unsupported_endpoint_type, "Unsupported endpoint type 0"),
        (-1, ErrorCode.unsupported_endpoint_type, "Unsupported endpoint type -1"),
    ],
)
def test_other_endpoints_than_brokers_and_controllers_are_not_told(
    harness: Harness, version: int, endpoint_type: int, error: ErrorCode, message: str
) -> None:
    answer = cluster(harness, version, endpoint_type, operations=True)
    assert (answer.error_code, answer.error_message, answer.endpoint_type) == (error, message, 1)
    assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, ())
    assert answer.cluster_authorized_operations == NO_OPERATIONS


def test_a_controller_that_cannot_reach_the_store_decides_nothing(harness: Harness) -> None:
    brokers, controllers = 1, 2
    told = []
    for is_reached in (True, False, True):
        harness.broker.note_store(is_reached)
        told.append(tuple(cluster(harness, 1, kind).controller_id for kind in (brokers, controllers)))
    assert told == [(1, 1), (1, -1), (1, 1)]
