"""The verdict of the load case: what a client sees among others, over what it sees alone."""

from __future__ import annotations

from bench.cases.load import _rows


def test_twice_the_latency_among_others_is_the_most_that_is_reached() -> None:
    alone = {"Tidelog": [100_000] * 200, "Kafka": [100_000] * 200}
    among = {"Tidelog": [100_000] * 195 + [200_000] * 5, "Kafka": [300_000] * 200}
    rows = _rows("others", alone, among)
    assert [row.verdict for row in rows] == ["", "", "reached"]
    assert rows[-1].tidelog is not None and rows[-1].tidelog.value == 2
    assert rows[-1].kafka is not None and rows[-1].kafka.value == 3


def test_more_than_twice_is_missed() -> None:
    rows = _rows("others", {"Tidelog": [100_000] * 200}, {"Tidelog": [100_000] * 195 + [201_000] * 5})
    assert rows[-1].verdict == "missed"
