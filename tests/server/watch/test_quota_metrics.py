"""Quotas on the metrics page, by client."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.wire.harness import PRODUCE, Harness, batch_of
from tests.wire.requests import produce_values
from tests.wire.test_handlers_quotas import alter
from tidelog.server.watch.quota_metrics import quota_pieces


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def numbers(harness: Harness) -> dict[tuple[str, str, str, str], float]:
    quotas = harness.broker.quotas
    text = "".join(quota_pieces([*quotas.uses], quotas.uptime_ms, 1))
    return {
        (
            sample.name.removeprefix("kafka_server_quota_"),
            sample.labels["resource"],
            sample.labels["user"],
            sample.labels["clientId"],
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_throttled_client_is_shown_with_its_rate_and_its_throttle_time(harness: Harness) -> None:
    harness.create_topic("t")
    alter(harness, 1, ({"client-id": None}, {"producer_byte_rate": 1_000.0, "controller_mutation_rate": 1.0}))
    assert numbers(harness) == {}
    values = produce_values(harness, 12, {"t": [(0, batch_of(value=b"v" * 20_000))]}, 1)
    harness.ask(PRODUCE, 12, **values)
    found = numbers(harness)
    throttle_ms = harness.client.throttle_time_ms
    assert found["throttle_time", "Produce", "", "tester"] == throttle_ms > 10_000
    assert found["byte_rate", "Produce", "", "tester"] == pytest.approx(1_000 + throttle_ms / 10, rel=0.01)
    assert found["tokens", "ControllerMutation", "", "tester"] == 11
    harness.advance(60_000)
    assert numbers(harness)["throttle_time", "Produce", "", "tester"] == 0


def test_without_quotas_nothing_is_shown(harness: Harness) -> None:
    assert "".join(quota_pieces([*harness.broker.quotas.uses], 0, 250)) == ""
