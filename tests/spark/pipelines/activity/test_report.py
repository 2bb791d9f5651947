"""The page about website activity."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.spark.pipelines.test_document import HOSTILE, Texts
from tidelog.spark.pipelines.activity.report import Results, strongest_pairs, write

HOUR_MS = 3_600_000


def made_up(hours: int, name: str = "item-1") -> Results:
    counts = list(range(1, hours + 1))
    pairs = pd.DataFrame(
        {
            "item": [name, name, "b"],
            "rank": [1, 2, 1],
            "other": ["b", "c", name],
            "count": [9, 4, 9],
            "share": [0.5, 0.2, 0.9],
        }
    )
    return Results(
        {"events": 1_000, "users": 20, "dead_letters": 1, "revenue": 123_456, "seconds": 125},
        pd.DataFrame(
            {
                "start": [hour * HOUR_MS for hour in counts],
                "sessions": counts,
                "viewed": counts,
                "engaged": [count // 2 for count in counts],
                "ordered": [count // 4 for count in counts],
            }
        ),
        pd.DataFrame({"page": ["/", f"/{name}"], "views": [5, 3]}),
        pairs,
        pairs,
    )


@pytest.mark.parametrize("hours", [1, 30, 24 * 40])
def test_a_page_and_its_pictures_are_written_for_hours_and_for_weeks(tmp_path: Path, hours: int) -> None:
    path = write(made_up(hours), tmp_path / "report")
    seen = Texts()
    seen.feed(path.read_text("utf-8"))
    assert seen.tags.count("svg") == 5 and len(list(path.parent.glob("*.png"))) == 5
    for text in ("1,000", "1,235", "2 min 5 s", "Also bought", "b (50%)", "c (20%)"):
        assert text in seen.text


def test_names_of_items_stay_text(tmp_path: Path) -> None:
    told = write(made_up(3, HOSTILE), tmp_path).read_text("utf-8")
    assert "<script" not in told


def test_a_page_without_any_session_says_so(tmp_path: Path) -> None:
    empty = made_up(0)
    nothing = Results(
        dict.fromkeys(empty.totals, 0), empty.hours, empty.pages[:0], empty.viewed[:0], empty.bought[:0]
    )
    assert "No sessions yet." in write(nothing, tmp_path).read_text("utf-8")


def test_a_pair_is_drawn_once_with_its_larger_share() -> None:
    assert strongest_pairs(made_up(1).bought) == [("b", "item-1", 9, 0.9), ("item-1", "c", 4, 0.2)]
