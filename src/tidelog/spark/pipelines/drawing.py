"""Pictures of results: drawn once by matplotlib, as SVG for a page and as PNG for other uses.

In the SVG the colours of text and lines are variables of the page, so that a picture is readable on dark and
light pages. Text is drawn as outlines: it looks the same everywhere and cannot contain markup.

**Invariant:** the same data gives the same bytes, whatever matplotlib's settings.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

INK, FAINT, RULE = "#22262e", "#6b7280", "#d8dce3"
PAGE_COLOURS = {INK: "var(--ink)", FAINT: "var(--faint)", RULE: "var(--rule)"}
BLUE, ORANGE, GREEN, VIOLET = "#3f7fd9", "#e0803c", "#2fa084", "#8f6bd8"
LABEL_CHARACTERS_MAX = 34  # what fits beside a bar
BARS_MAX = 100  # of one chart; more are drawn as an area
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": RULE,
    "axes.labelcolor": FAINT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
    "ytick.left": False,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "figure.facecolor": "white",
    "svg.fonttype": "path",
    "timezone": "UTC",
}
Moments = npt.NDArray[np.datetime64]


@dataclass(frozen=True)
class Picture:
    """One drawing in both forms."""

    name: str
    title: str
    svg: str
    png: bytes

    def write(self, folder: Path) -> Path:
        path = folder / f"{self.name}.png"
        path.write_bytes(self.png)
        return path


def picture(name: str, title: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> Picture:
    """Draw on a figure of that size in inches."""
    style: Any = STYLE | {"svg.hashsalt": name}
    with mpl.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
        # A page has the heading above the picture; a picture alone needs its own.
        figure.suptitle(title, x=0.012, ha="left", fontsize=12, fontweight="bold")
        figure.savefig(png, format="png", dpi=144, metadata={"Software": None})
    return Picture(name, title, for_page(svg.getvalue(), name), png.getvalue())


def for_page(svg: str, name: str) -> str:
    """The SVG without its prologue, with a name and the colours of the page."""
    inner = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    inner = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", inner)
    inner = re.sub(r'\bd="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), inner)
    for colour, variable in PAGE_COLOURS.items():
        inner = inner.replace(colour, variable)
    return re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img">', inner, count=1)


def moments(times_ms: Sequence[int] | npt.NDArray[np.int64]) -> Moments:
    return np.asarray(times_ms, dtype="int64").astype("datetime64[ms]")


def time_axis(axes: Axes, times: Moments) -> None:
    """Label days at midnight; the date of a single day once, below."""
    days = np.unique(times.astype("datetime64[D]"))
    locator = AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(  # type: ignore[no-untyped-call]
            locator,
            formats=["%Y", "%b", "%-d %b", "%H:%M", "%H:%M", "%S.%f"],
            zero_formats=["", "%Y", "%b", "%-d %b", "%H:%M", "%H:%M"],
            offset_formats=["", "%Y", "%Y", "%-d %b %Y", "%-d %b %Y", "%-d %b %Y"],
            show_offset=len(days) <= 1,
        )
    )
    axes.grid(visible=False, axis="x")
    axes.margins(x=0.01)


def count_axis(axes: Axes, label: str) -> None:
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def stacked_bars(axes: Axes, times: Moments, width_ms: int, parts: Sequence[tuple[str, Any, str]]) -> None:
    """Stacked bars from each time on, (label, heights, colour); very many bars become one outline."""
    floor = np.zeros(len(times))
    width: Any = np.timedelta64(int(width_ms * 0.88), "ms")
    edges: Any = np.append(times, times[-1:] + np.timedelta64(width_ms, "ms"))
    for label, heights, colour in parts:
        top = floor + np.asarray(heights, dtype="float64")
        if len(times) <= BARS_MAX:
            axes.bar(times, heights, width, bottom=floor, align="edge", color=colour, label=label)
        else:
            low, high = np.append(floor, floor[-1:]), np.append(top, top[-1:])
            axes.fill_between(edges, low, high, step="post", color=colour, linewidth=0, label=label)
        floor = top


def ranked_bars(
    axes: Axes, labels: Sequence[str], numbers: Sequence[float], told: Sequence[str], colour: str
) -> None:
    """Horizontal bars, the first on top, each with its text at the end."""
    places = list(range(len(labels)))
    axes.barh(places, numbers, height=0.72, color=colour)
    axes.set_yticks(places, [shortened(label) for label in labels])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    longest = max(numbers, default=0) or 1
    axes.set_xlim(0, longest * (1.06 + 0.016 * max(map(len, told), default=0)))
    for place, number, text in zip(places, numbers, told, strict=True):
        axes.text(number + longest * 0.012, place, text, va="center", color=FAINT)


def shortened(label: str) -> str:
    """The label with its middle removed if it is long."""
    if len(label) <= LABEL_CHARACTERS_MAX:
        return label
    kept = (LABEL_CHARACTERS_MAX - 1) // 2
    return f"{label[:kept]}…{label[-kept:]}"


def short_number(number: float) -> str:
    """1234 as 1,234; 123456 as 123 k; 1234567 as 1.23 M."""
    size = abs(number)
    if size >= 1e6:
        return f"{number / 1e6:.3g} M"
    if size >= 1e5:
        return f"{number / 1e3:.3g} k"
    return f"{number:,.0f}" if size >= 100 or number == int(number) else f"{number:.3g}"
