"""A replica that is not in sync is filled at a rate, and nobody else is held back (KIP-73)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.config import BrokerSettings, TopicSettings
from tidelog.replication.throttle import FOLLOWER_REPLICAS, LEADER_REPLICAS, Throttle, is_throttled


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", False), ("*", True), ("0:1", True), ("0:2,1:1", False), ("10:1", False), ("3:4,0:1,", True)],
)
def test_a_replica_is_throttled_if_its_topic_says_so(text: str, expected: bool) -> None:
    settings = TopicSettings(BrokerSettings({}), {LEADER_REPLICAS: text} if text else {})
    assert is_throttled(settings, LEADER_REPLICAS, 0, 1) is expected
    assert not is_throttled(settings, FOLLOWER_REPLICAS, 0, 1)


def test_what_went_over_the_rate_is_paid_off_at_the_rate() -> None:
    throttle = Throttle()
    assert throttle.wait_ms(1_000, 5_000) == 0
    throttle.record(3_000, 1_000, 5_000)
    assert throttle.wait_ms(1_000, 5_000) == 3_000
    assert throttle.wait_ms(1_000, 7_999) == 1
    assert throttle.wait_ms(1_000, 8_000) == 0


def test_another_rate_holds_at_once_for_what_is_still_to_be_paid() -> None:
    throttle = Throttle()
    throttle.record(1_000_000, 1, 0)
    assert throttle.wait_ms(1, 0) == 1_000_000_000
    assert throttle.wait_ms(1_000_000, 500) == 500
    assert throttle.wait_ms(0, 500) == 500_000_000


@given(
    sizes=st.lists(st.integers(1, 10_000), min_size=5, max_size=50),
    rate=st.integers(1, 5_000),
    step_ms=st.integers(1, 300),
)
def test_over_a_while_no_more_goes_than_the_rate_allows_and_the_last_piece(
    sizes: list[int], rate: int, step_ms: int
) -> None:
    throttle, now_ms, sent = Throttle(), 0, 0
    for size in sizes:
        wait_ms = throttle.wait_ms(rate, now_ms)
        now_ms += -(-wait_ms // step_ms) * step_ms  # looked at now and then
        assert throttle.wait_ms(rate, now_ms) == 0 and sent <= rate * now_ms / 1_000
        throttle.record(size, rate, now_ms)
        sent += size
