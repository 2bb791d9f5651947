"""kcat against the contract, without the admin claims: kcat cannot change topics."""

from __future__ import annotations

import pytest

from tests.compat.client import Client
from tests.compat.contract import LONG_AGO_MS, TIMED, Places, ProduceAndConsume, Sizes, Timestamps
from tests.compat.kcat.driver import KCAT, Kcat

pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed (Debian: apt install kcat)")


class TestKcat(ProduceAndConsume, Timestamps, Places, Sizes):
    @pytest.fixture
    def client(self, bootstrap: str) -> Kcat:
        return Kcat(bootstrap)

    def test_it_starts_and_stops_at_a_time(self, client: Kcat, writer: Client, topic: str) -> None:
        writer.produce(topic, TIMED)
        values = client.values_between(topic, LONG_AGO_MS + 2500, LONG_AGO_MS + 6000)
        assert values == ["at 3", "at 4", "at 5"]

    def test_a_topic_is_listed_with_its_leader(self, client: Kcat, topic: str) -> None:
        assert client.leader(topic) in client.brokers()
