"""How fast clients may connect, all together and from each address."""

from __future__ import annotations

import pytest

from tidelog.base.config import BrokerSettings
from tidelog.broker import connections
from tidelog.broker.connections import ConnectionRates

RATE = "connection_creation_rate"


def rates(**properties: str) -> ConnectionRates:
    return ConnectionRates(BrokerSettings({key.replace("_", "."): text for key, text in properties.items()}))


def test_without_a_quota_everybody_may_connect() -> None:
    found = rates()
    assert [found.delay_ms("10.0.0.1", 0) for _ in range(1_000)] == [0] * 1_000
    assert [found.pause_ms(0) for _ in range(1_000)] == [0] * 1_000


def test_an_address_over_its_quota_waits_a_window_at_most_and_does_not_count() -> None:
    found = rates()
    found.use({(("ip", "10.0.0.1"),): {RATE: 1.0}})
    delays = [found.delay_ms("10.0.0.1", 0) for _ in range(13)]
    assert delays == [0] * 10 + [1_000] * 3
    assert found.delay_ms("10.0.0.2", 0) == 0
    assert found.delay_ms("::ffff:10.0.0.1", 0) == 1_000
    assert found.delay_ms("10.0.0.1", 11_000) == 0


def test_an_own_quota_counts_before_the_default() -> None:
    found = rates()
    found.use({(("ip", None),): {RATE: 1.0}, (("ip", "10.0.0.1"),): {RATE: 2.0}})
    assert [found.delay_ms("10.0.0.1", 0) for _ in range(20)] == [0] * 20
    assert found.delay_ms("10.0.0.1", 0) > 0
    assert [found.delay_ms("10.0.0.2", 0) for _ in range(10)] == [0] * 10
    assert found.delay_ms("10.0.0.2", 0) > 0
    found.use({})
    assert found.delay_ms("10.0.0.2", 0) == 0


def test_all_together_pause_for_a_window_at_most() -> None:
    found = rates(max_connection_creation_rate="2")
    assert [found.pause_ms(0) for _ in range(20)] == [0] * 20
    assert found.pause_ms(0) == 500
    assert [found.pause_ms(0) for _ in range(9)][-1] == 1_000


def test_addresses_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "QUOTA_USES_MAX", 10)
    found = rates()
    found.use({(("ip", None),): {RATE: 1.0}})
    refused = sum(found.delay_ms(f"10.0.0.{number}", 0) > 0 for number in range(100))
    assert refused == 80  # ten have a rate of their own, the others share one
    assert found.delay_ms("10.1.0.1", 60_000) == 0
    assert len(found._rates) == 1
