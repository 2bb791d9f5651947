"""What is done as time passes: how often, and in which order."""

from __future__ import annotations

from tidelog.base.schedule import EACH_TICK, Interval, Row, Schedule


def test_rows_that_are_due_run_in_their_order() -> None:
    done: list[str] = []
    schedule = Schedule(
        Row(100, lambda: done.append("later")),
        Row(EACH_TICK, lambda: done.append("always")),
        Row(100, lambda: done.append("at first"), is_due_at_first=True),
    )
    seen = []
    for uptime_ms in (1_000, 1_099, 1_100, 1_150, 1_250):
        done.clear()
        schedule.tick(uptime_ms)
        seen.append(list(done))
    assert seen == [
        ["always", "at first"],
        ["always"],
        ["later", "always", "at first"],
        ["always"],
        ["later", "always", "at first"],
    ]


def test_an_interval_begins_again_when_it_was_last_over() -> None:
    interval = Interval(100)
    assert [interval.maybe_restart(uptime_ms) for uptime_ms in (0, 99, 170, 200, 269, 270)] == [
        False,
        False,
        True,
        False,
        False,
        True,
    ]
