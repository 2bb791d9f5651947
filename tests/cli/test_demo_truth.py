"""What the demo holds the pipelines against, by small examples."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidelog.cli.demo_truth import MINUTE_MS, Sent, closed, closed_windows, percentile, sessions, windows

VIEWS, CLICKS, ORDERS = "activity.page-views", "activity.clicks", "activity.orders"


def record(topic: str, minute: float, lag_minutes: float = 0, **fields: Any) -> tuple[str, bytes, bytes, int]:
    time_ms = int(minute * MINUTE_MS)
    value = json.dumps({"user": "ann", "time": time_ms} | fields).encode()
    return topic, b"ann", value, time_ms + int(lag_minutes * MINUTE_MS)


def test_a_session_ends_with_more_than_half_an_hour_of_silence() -> None:
    sent = Sent.of([record(VIEWS, 0), record(CLICKS, 30), record(ORDERS, 61, total=7)])
    assert [(s.start_ms, s.end_ms, s.step, s.revenue) for s in sessions(sent.events)] == [
        (0, 30 * MINUTE_MS, 2, 0),
        (61 * MINUTE_MS, 61 * MINUTE_MS, 0, 7),
    ]


def test_the_order_of_arrival_does_not_matter_to_sessions_but_that_of_the_steps_does() -> None:
    forwards = [record(VIEWS, 1), record(CLICKS, 2), record(ORDERS, 3, total=1)]
    assert [s.step for s in sessions(Sent.of(reversed(forwards)).events)] == [3]
    assert [s.step for s in sessions(Sent.of([record(ORDERS, 1, total=1), record(VIEWS, 2)]).events)] == [1]


def test_unreadable_and_late_records_are_counted_apart() -> None:
    whole = record(VIEWS, 0)
    cut = (VIEWS, b"ann", whole[2][: len(whole[2]) // 2], 0)
    sent = Sent.of([whole, cut, record(VIEWS, 5, lag_minutes=10), record(VIEWS, 6, lag_minutes=10.1)])
    assert (sent.by_topic, sent.unreadable, sent.late_count) == ({VIEWS: 3}, {VIEWS: 1}, 1)
    assert len(sent.punctual) == 2


def test_what_is_over_is_so_a_quarter_of_an_hour_before_the_newest_event() -> None:
    sent = Sent.of([record(VIEWS, 0), record(VIEWS, 45, user="bob"), record(VIEWS, 99, lag_minutes=11)])
    assert [s.user for s in closed(sessions(sent.punctual), sent.watermark_ms)] == ["ann"]
    assert closed(sessions(sent.punctual), sent.watermark_ms - 1) == []


def test_a_window_is_a_series_in_a_minute_whatever_the_order_of_its_tags() -> None:
    tags = [{"a": "1", "b": "2"}, {"b": "2", "a": "1"}, {"a": "2"}]
    sent = Sent.of(
        record("m", at, name="cpu", tags=one, value=at) for at, one in zip((0.1, 0.9, 16), tags, strict=True)
    )
    found = windows(sent.events)
    assert found == {("cpu{a=1,b=2}", 0): [0.1, 0.9], ("cpu{a=2}", 16 * MINUTE_MS): [16]}
    assert list(closed_windows(found, sent.watermark_ms)) == [("cpu{a=1,b=2}", 0)]


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2.0), (0.95, 4.0), (0.25, 1.0)])
def test_a_percentile_is_the_smallest_value_that_as_many_are_not_above(share: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == expected
