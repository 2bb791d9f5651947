"""Uses of quotas: when one is as good as new, and whose a request is."""

from __future__ import annotations

import pytest

from tidelog.broker.uses import Owner, Use, Uses
from tidelog.cluster.quotas import MUTATION_RATE, PRODUCER_RATE

WINDOWS = (11, 1_000)


def test_a_use_is_as_new_when_nothing_counts_any_more() -> None:
    use = Use(Owner(PRODUCER_RATE, "u", "c"), 1_000.0, WINDOWS, 0)
    assert use.is_as_new(0)
    use.rate.record(5, 0)
    assert not use.is_as_new(10_999)
    assert use.is_as_new(11_000)


def test_who_owes_tokens_is_not_as_new_before_the_bucket_is_full() -> None:
    use = Use(Owner(MUTATION_RATE, "u", "c"), 1.0, WINDOWS, 0)
    assert use.bucket is not None
    use.bucket.take(30, 1.0, 0)
    assert not use.is_as_new(29_000)
    assert use.is_as_new(30_000)


def test_a_throttle_time_is_the_average_of_the_last_windows() -> None:
    use = Use(Owner(PRODUCER_RATE, "u", "c"), 1_000.0, WINDOWS, 0)
    assert use.throttle_time_ms(0) == 0
    use.note_throttle(100, 0)
    use.note_throttle(300, 5_000)
    assert use.throttle_time_ms(5_000) == 200
    assert use.throttle_time_ms(11_500) == 300
    assert use.throttle_time_ms(60_000) == 0


@pytest.mark.parametrize(
    ("principal", "head", "is_same"),
    [
        ("User:u", b"\0\1c", True),
        ("User:u", b"\0\1d", False),
        ("User:u", b"\0\2cc", False),
        ("User:v", b"\0\1c", False),
    ],
)
def test_a_request_is_the_same_client_s_by_name_and_principal(
    principal: str, head: bytes, is_same: bool
) -> None:
    uses = Uses(1, "User:u", b"\0\1c", "c", None, None, None, None)
    assert uses.are_of(principal, memoryview(bytes(8) + head + b"rest")) is is_same
    nameless = Uses(1, "User:u", b"", "c" * 600, None, None, None, None)
    assert not nameless.are_of(principal, memoryview(bytes(8) + head))
