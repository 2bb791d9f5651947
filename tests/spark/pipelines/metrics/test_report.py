"""The page about measurements."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.spark.pipelines.test_document import HOSTILE, Texts
from tidelog.spark.pipelines.metrics.report import (
    SERIES_DRAWN,
    WINDOWS_DRAWN_MAX,
    Results,
    busiest,
    series_picture,
    thinned,
    write,
)

MINUTE_MS = 60_000


def windows_of(series: str, minutes: list[int]) -> pd.DataFrame:
    starts = [minute * MINUTE_MS for minute in minutes]
    numbers = {
        "count": 2,
        "late": 1,
        "sum": 30.0,
        "min": 10.0,
        "max": 20.0,
        "p50": 10.0,
        "p95": 20.0,
        "p99": 20.0,
    }
    times = {"start": starts, "end": [start + MINUTE_MS for start in starts]}
    return pd.DataFrame(
        {"series": series, **times, **{name: [value] * len(starts) for name, value in numbers.items()}}
    )


@pytest.mark.parametrize("count", [1, 2, 100, 5_000])
def test_any_series_can_be_drawn_however_long(count: int) -> None:
    windows = windows_of("cpu{host=a}", list(range(count)))
    assert len(thinned(windows)) <= WINDOWS_DRAWN_MAX
    drawn = series_picture("cpu{host=a}", windows)
    assert drawn.name == "metrics-cpu-host-a" and drawn.png.startswith(b"\x89PNG")


def test_thinning_keeps_counts_and_averages_percentiles_by_count() -> None:
    windows = windows_of("a", list(range(2 * WINDOWS_DRAWN_MAX)))
    windows.loc[0, ["count", "p99"]] = [6, 100.0]
    shown = thinned(windows)
    assert shown["count"].sum() == windows["count"].sum() and shown["late"].sum() == windows["late"].sum()
    assert shown["p99"].iloc[0] == (6 * 100 + 2 * 20) / 8 and shown["p99"].iloc[1] == 20


def test_minutes_without_measurements_are_gaps() -> None:
    shown = thinned(windows_of("a", [0, 1, 4]))
    assert list(shown["count"]) == [2, 2, 0, 0, 2]
    assert list(shown["p50"].isna()) == [False, False, True, True, False]


def test_every_name_has_its_turn_before_one_is_drawn_twice() -> None:
    counted = pd.DataFrame(
        [("cpu", f"cpu{{{n}}}", 100 - n) for n in range(20)] + [("disk", "disk{}", 1), ("net", "net{}", 1)],
        columns=["name", "series", "count"],
    )
    picked = busiest(counted)
    assert len(picked) == SERIES_DRAWN and {"disk{}", "net{}", "cpu{0}"} <= set(picked)


def test_a_page_has_a_picture_of_each_series_and_the_figures(tmp_path: Path) -> None:
    windows = pd.concat([windows_of("cpu{host=a}", [1, 2]), windows_of(HOSTILE, [1])])
    totals = {"series": 2, "windows": 3, "measurements": 6, "late": 3, "dead_letters": 0}
    path = write(Results(totals, windows), tmp_path / "report")
    seen = Texts()
    seen.feed(path.read_text("utf-8"))
    assert seen.tags.count("svg") == 2 == len(list(path.parent.glob("*.png"))) and "script" not in seen.tags
    assert "4 measurements, mean 15, from 10 to 20" in seen.text and HOSTILE in seen.text


def test_a_page_without_measurements_says_so(tmp_path: Path) -> None:
    assert "Nothing measured yet." in write(Results({}, windows_of("a", [])), tmp_path).read_text("utf-8")
