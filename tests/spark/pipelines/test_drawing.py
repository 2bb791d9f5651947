"""Pictures in both forms."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from tidelog.spark.pipelines.drawing import (
    BARS_MAX,
    BLUE,
    INK,
    LABEL_CHARACTERS_MAX,
    moments,
    picture,
    ranked_bars,
    short_number,
    shortened,
    stacked_bars,
    time_axis,
)

HOUR_MS = 3_600_000
HOSTILE = '<script>alert("&")</script> $x^2 --> ' + "long " * 20


def some_bars(figure: Figure) -> None:
    ranked_bars(figure.add_subplot(), ["a", HOSTILE], [3, 1], ["3", "1"], BLUE)


def test_a_picture_takes_its_colours_from_the_page_and_has_no_text_in_it() -> None:
    drawn = picture("bars", HOSTILE, (4, 2), some_bars)
    assert drawn.png.startswith(b"\x89PNG")
    assert INK not in drawn.svg and "var(--ink)" in drawn.svg and "var(--faint)" in drawn.svg
    assert "script" not in drawn.svg and "<!--" not in drawn.svg and "<text" not in drawn.svg
    whole = drawn.svg.replace("<svg ", '<svg xmlns:xlink="http://www.w3.org/1999/xlink" ', 1)
    assert all("".join(element.itertext()).strip() == "" for element in ET.fromstring(whole).iter("path"))


def test_names_inside_a_picture_are_its_own_and_all_are_found() -> None:
    drawn = picture("bars", "Bars", (4, 2), some_bars)
    names = re.findall(r'\bid="([^"]*)"', drawn.svg)
    assert names and all(name.startswith("bars-") for name in names)
    used = re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', drawn.svg)
    assert used and {one or other for one, other in used} <= set(names)


def test_the_same_data_gives_the_same_bytes_and_settings_stay_as_they_were() -> None:
    before = dict(mpl.rcParams)
    with mpl.rc_context({"font.size": 30}):
        first = picture("bars", "Bars", (4, 2), some_bars)
    assert first == picture("bars", "Bars", (4, 2), some_bars)
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("count", [1, 5, BARS_MAX + 1])
def test_bars_over_time_are_drawn_whether_few_or_many(count: int) -> None:
    times = moments([hour * HOUR_MS for hour in range(count)])

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        stacked_bars(axes, times, HOUR_MS, [("a", np.arange(count) + 1, BLUE)])
        time_axis(axes, times)
        assert len(axes.patches) + len(axes.collections) == (count if count <= BARS_MAX else 1)

    assert len(picture("bars", "Bars", (4, 2), draw).svg) > 1_000


def test_a_picture_is_written_under_its_name(tmp_path: Path) -> None:
    path = picture("bars", "Bars", (4, 2), some_bars).write(tmp_path)
    assert path == tmp_path / "bars.png" and path.stat().st_size > 1_000


def test_long_labels_keep_their_beginning_and_their_end() -> None:
    assert shortened("/short") == "/short"
    label = shortened("/categories/" + "x" * 100 + "/last")
    assert len(label) <= LABEL_CHARACTERS_MAX and label.startswith("/categories") and label.endswith("/last")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (7, "7"),
        (0.125, "0.125"),
        (99.44, "99.4"),
        (1_234.5, "1,234"),
        (123_456, "123 k"),
        (2_500_000, "2.5 M"),
    ],
)
def test_numbers_are_told_in_few_characters(number: float, text: str) -> None:
    assert short_number(number) == text
