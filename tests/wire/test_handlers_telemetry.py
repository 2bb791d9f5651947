"""GetTelemetrySubscriptions and PushTelemetry, as Kafka answers them with a plugin that takes metrics."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from tests.protocol.otlp_samples import gauge, metrics, point
from tests.wire.harness import (
    API_VERSIONS,
    GET_TELEMETRY,
    PUSH_TELEMETRY,
    Harness,
    other_connection,
    request_frame,
    seconds,
)
from tidelog.cluster.facts import encode_fields
from tidelog.cluster.paths import config_path
from tidelog.cluster.store import Create, Delete, Write
from tidelog.protocol.compression import compress

INTERVAL_MS = 1_000
PATH = config_path("client-metrics", "wanted")


def subscribe(harness: Harness, **settings: str) -> None:
    fields = encode_fields(**{name.replace("_", "."): text for name, text in settings.items()})
    known = PATH in harness.broker.image.versions
    harness.broker.desk.change([Write(PATH, fields) if known else Create(PATH, fields)], lambda _: None)
    harness.settle()


def get(harness: Harness, instance_id: UUID | None = None) -> Any:
    return harness.ask(GET_TELEMETRY, 0, client_instance_id=instance_id)


def push(harness: Harness, subscription: Any, data: bytes | None = None, **values: Any) -> ErrorCode:
    sample = metrics(gauge("org.apache.kafka.x", point(4)))
    asked = {
        "client_instance_id": subscription.client_instance_id,
        "subscription_id": subscription.subscription_id,
        "terminating": False,
        "compression_type": 4,
        "metrics": compress(4, sample) if data is None else data,
    }
    answer = harness.ask(PUSH_TELEMETRY, 0, **asked | values)
    assert answer.throttle_time == seconds(0)
    error: ErrorCode = answer.error_code
    return error


def test_a_client_gets_an_id_and_is_told_that_nothing_is_wanted(harness: Harness) -> None:
    answer = get(harness)
    assert (answer.error_code, answer.requested_metrics) == (0, ())
    assert answer.client_instance_id.version == 4
    assert answer.accepted_compression_types == (4, 3, 1, 2)
    assert (answer.push_interval, answer.telemetry_max_bytes) == (seconds(300), 1_048_576)
    assert answer.delta_temporality is True
    with other_connection(harness):
        assert get(harness).client_instance_id != answer.client_instance_id


def test_what_is_subscribed_is_asked_for_and_what_is_pushed_is_kept(harness: Harness) -> None:
    names = {"client_software_name": "librdkafka", "client_software_version": "2.16.1"}
    harness.ask(API_VERSIONS, 3, **names)
    match = "client_software_name=librdkafka,client_id=test.*"
    subscribe(harness, metrics="org.apache.kafka.", interval_ms="1000", match=match)
    answer = get(harness)
    assert (answer.requested_metrics, answer.push_interval) == (("org.apache.kafka.",), seconds(1))
    assert push(harness, answer) == 0
    (row,) = harness.broker.telemetry.snapshot()
    assert (row.client_id, row.software_name, row.software_version) == ("tester", "librdkafka", "2.16.1")
    assert (row.name, row.value) == ("org.apache.kafka.x", 4)


def test_a_subscription_that_fits_another_client_is_not_told(harness: Harness) -> None:
    subscribe(harness, metrics="a", match="client_id=somebody")
    assert get(harness).requested_metrics == ()


def test_the_peer_s_address_can_be_selected(harness: Harness) -> None:
    harness.client.address, harness.client.port = "10.1.2.3", 4_567
    subscribe(harness, metrics="a", match="client_source_address=10[.].*,client_source_port=4567")
    assert get(harness).requested_metrics == ("a",)


def test_a_client_without_an_id_of_its_own_is_served(harness: Harness) -> None:
    subscribe(harness, metrics="a")
    frame = bytearray(request_frame(GET_TELEMETRY, 0, 9, client_instance_id=None))
    del frame[10:16]
    frame[8:10] = b"\xff\xff"
    harness.send_frame(frame)
    assert len(harness.answers()) == 1
    harness.connection.output.clear()


def test_who_asks_again_too_soon_is_told_nothing_but_that(harness: Harness) -> None:
    subscribe(harness, metrics="a", interval_ms="1000")
    first = get(harness)
    again = get(harness, first.client_instance_id)
    assert again.error_code == ErrorCode.throttling_quota_exceeded
    assert (again.client_instance_id, again.subscription_id, again.requested_metrics) == (None, 0, ())
    assert (again.accepted_compression_types, again.telemetry_max_bytes) == ((), 0)
    assert (again.push_interval, again.delta_temporality) == (seconds(0), False)
    harness.advance(INTERVAL_MS)
    assert get(harness, first.client_instance_id) == first


def test_a_changed_subscription_is_told_at_once(harness: Harness) -> None:
    subscribe(harness, metrics="a", interval_ms="1000")
    first = get(harness)
    subscribe(harness, metrics="a,b", interval_ms="1000")
    assert push(harness, first) == ErrorCode.unknown_subscription_id
    second = get(harness, first.client_instance_id)
    assert second.requested_metrics == ("a", "b")
    assert second.client_instance_id == first.client_instance_id
    harness.broker.desk.change([Delete(PATH)], lambda _: None)
    harness.settle()
    assert get(harness, first.client_instance_id).requested_metrics == ()


def test_pushes_are_refused_for_what_is_wrong_with_them(harness: Harness) -> None:
    subscribe(harness, metrics="a", interval_ms="1000")
    answer = get(harness)

    def next_push(data: bytes | None = None, **values: Any) -> ErrorCode:
        harness.advance(INTERVAL_MS)
        return push(harness, answer, data, **values)

    assert next_push(client_instance_id=None) == ErrorCode.invalid_request
    assert next_push(client_instance_id=UUID(int=1)) == ErrorCode.invalid_request
    assert next_push(subscription_id=answer.subscription_id ^ 1) == ErrorCode.unknown_subscription_id
    assert next_push(compression_type=9) == ErrorCode.unsupported_compression_type
    assert next_push(bytes(1_048_577)) == ErrorCode.telemetry_too_large
    assert next_push(compress(4, bytes(2_000_000))) == ErrorCode.telemetry_too_large
    assert next_push(b"nonsense") == ErrorCode.invalid_record
    assert next_push() == 0
    assert push(harness, answer) == ErrorCode.throttling_quota_exceeded
    assert push(harness, answer, terminating=True) == 0
    assert next_push() == ErrorCode.invalid_request


def test_a_silent_client_is_forgotten_by_the_clock(harness: Harness) -> None:
    subscribe(harness, metrics="a", interval_ms="1000")
    push(harness, get(harness))
    for _ in range(5):
        harness.advance(10_000)
    assert len(harness.broker.telemetry.snapshot()) == 1
    for _ in range(2):
        harness.advance(10_000)
    assert harness.broker.telemetry.snapshot() == []


@pytest.mark.parametrize("client_id", [b"", b"a", "é".encode(), b"\xff\xfe", b"x" * 30_000])
def test_any_client_id_is_taken(harness: Harness, client_id: bytes) -> None:
    frame = bytearray(request_frame(GET_TELEMETRY, 0, 9, client_instance_id=None))
    frame[8:16] = len(client_id).to_bytes(2, "big") + client_id
    harness.send_frame(frame)
    assert len(harness.answers()) == 1
