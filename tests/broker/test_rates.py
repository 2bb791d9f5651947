"""Rates and buckets: what Apache Kafka 4.3.1 was seen to do, and what its formulas say."""

from __future__ import annotations

import pytest

from tidelog.base.limits import THROTTLE_MS_MAX
from tidelog.broker.rates import Bucket, Rate

SAMPLES, WINDOW_MS = 11, 1_000
EXPIRY_MS = SAMPLES * WINDOW_MS
# Of Kafka, one connection with requests of 100 kB as fast as they go, 1 MB/s: requests in each second.
KAFKA_REQUESTS = [
    110,
    1,
    1,
    1,
    1,
    1,
    1,
    1,
    1,
    1,
    1,
    0,
    100,
    3,
    1,
    1,
    1,
    1,
    1,
    1,
    1,
    0,
    1,
    11,
    33,
    31,
    24,
    7,
    1,
    1,
]


def new_rate(now_ms: int = 0) -> Rate:
    return Rate(SAMPLES, WINDOW_MS, now_ms)


@pytest.mark.parametrize(("waited_ms", "second_ms"), [(10_108, 30_106), (10_119, 30_095)])
def test_a_request_of_twenty_windows_is_throttled_as_by_kafka(waited_ms: int, second_ms: int) -> None:
    rate = new_rate()
    rate.record(20_107, 0)
    assert rate.throttle_ms(1_000, 0) == 10_107
    rate.record(20_107, waited_ms)
    assert rate.throttle_ms(1_000, waited_ms) == second_ms


def test_a_burst_of_ten_windows_passes_and_its_throttle_shows_in_the_next() -> None:
    rate = new_rate()
    rate.record(10_000, 0)
    assert rate.throttle_ms(1_000, 0) == 0
    rate.record(1, 0)
    assert rate.throttle_ms(1_000, 0) == 1


def test_a_producer_gets_in_thirty_seconds_what_kafka_gives_it() -> None:
    """Each request takes 3.56 ms where nothing holds it back: the pace of the run that was recorded."""
    rate, now_ms, seconds = new_rate(), 0.0, [0] * 31
    while now_ms < 30_000:
        now_ms += 3.56
        rate.record(100_080, int(now_ms))
        seconds[min(int(now_ms / 1_000), 30)] += 1
        now_ms += rate.throttle_ms(1_000_000, int(now_ms))
    assert seconds[:11] == KAFKA_REQUESTS[:11]
    assert sum(seconds[:30]) == pytest.approx(sum(KAFKA_REQUESTS), rel=0.1)
    assert sum(seconds[1:30]) == pytest.approx(sum(KAFKA_REQUESTS[1:]), rel=0.15)


def test_the_span_is_at_least_all_windows_but_one() -> None:
    rate = new_rate()
    assert rate.span_ms(0) == 10_000
    assert rate.span_ms(400) == 10_400
    assert rate.span_ms(9_999) == 10_999
    rate.record(1, 10_500)
    assert rate.span_ms(10_500) == 10_500


def test_what_is_older_than_all_windows_does_not_count() -> None:
    rate = new_rate()
    rate.record(50_000, 100)
    assert rate.total(100 + EXPIRY_MS - 1) == 50_000
    assert rate.total(100 + EXPIRY_MS) == 0
    assert rate.is_unused(100 + EXPIRY_MS)
    assert not rate.throttle_ms(1, 100 + EXPIRY_MS)


def test_a_sample_counts_until_its_last_record_is_too_old() -> None:
    rate = new_rate()
    rate.record(5, 0)
    rate.record(7, 900)
    assert rate.total(EXPIRY_MS + 899) == 12
    assert rate.total(EXPIRY_MS + 900) == 0


def test_the_samples_are_reused_and_no_more_than_twelve() -> None:
    rate = new_rate()
    for second in range(1_000):
        rate.record(100, second * WINDOW_MS)
        rate.throttle_ms(100, second * WINDOW_MS)
    assert len(rate._starts) == SAMPLES + 1
    assert rate.per_second(999 * WINDOW_MS) == pytest.approx(100, rel=0.1)


def test_what_was_taken_back_is_not_there() -> None:
    rate = new_rate()
    rate.record(30_000, 0)
    rate.record(-30_000, 0)
    assert rate.is_unused(0) and rate.throttle_ms(1, 0) == 0


def test_a_throttle_has_room_in_an_answer() -> None:
    rate = new_rate()
    rate.record(1e30, 0)
    assert rate.throttle_ms(0.001, 0) == THROTTLE_MS_MAX


def test_a_bucket_is_full_at_first_and_owes_what_was_taken_too_much() -> None:
    bucket = Bucket(SAMPLES, WINDOW_MS, 2.0, 0)
    assert bucket.tokens(2.0, 0) == 22
    bucket.take(30, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 4_000
    assert bucket.throttle_ms(2.0, 3_000) == 1_000
    assert bucket.throttle_ms(2.0, 4_000) == 0
    assert not bucket.is_full(2.0, 4_000)
    assert bucket.tokens(2.0, 10**9) == 22
    assert bucket.is_full(2.0, 10**9)
