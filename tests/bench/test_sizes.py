"""The cases that grow, small, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from bench.cases.sizes import PROMPT, TOPIC, hold_members, rows_of, take_records, wake_all
from bench.load.admin import Admin

from tidelog.testing import Broker


@pytest.fixture
def broker() -> Iterator[Any]:
    with Broker(message_max_bytes=20_000_000) as running:
        with Admin("127.0.0.1", running.port) as admin:
            admin.create_topic(TOPIC, 1)
        yield SimpleNamespace(name="Tidelog", host="127.0.0.1", port=running.port, resident_bytes=lambda: 7)


def test_waiters_are_woken_records_taken_and_members_held(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.cases.sizes.RECORD_SECONDS", 0.05)
    figures = wake_all(broker, 20) | take_records(broker, 2_000_000) | hold_members(broker, 3)
    assert all(value >= 0 for _, value, _ in figures.values())
    assert next(iter(figures)) == "20 waiters woken"
    assert figures["records of 2 MB"][1] > 0
    with Admin(broker.host, broker.port) as admin:
        assert admin.end_offset(TOPIC, 1) > 1


def test_a_case_without_kafka_has_a_row() -> None:
    rows = rows_of(
        {"Tidelog": {"a": ("ms", 1.0, PROMPT), "b": ("s", 2.0, None)}, "Kafka": {"a": ("ms", 4.0, None)}}
    )
    assert [(row.case, row.ratio, row.verdict) for row in rows] == [("a", 0.25, "reached"), ("b", None, "")]
