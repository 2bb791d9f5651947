"""Metrics: histograms that are cheap to feed, and the text format that Prometheus reads.

A count is a plain integer attribute of the part that counts; only a distribution needs a class. A
histogram's buckets are fixed when it is created, so that recording a value is one bisection and two
additions. The text is the exposition format 0.0.4: the samples of one family stand together, under its
HELP and TYPE.

**Invariant:** no clock, lock or registry in here; text chosen by a client is always escaped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from math import inf, isnan
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000

_STEPS = (10, 25, 50, 100, 250, 500)
# From 10 µs, a request served from memory, to 10 s; beyond that only the number of waiting clients matters.
DURATION_BOUNDS_NS = (
    *(step * MICROSECOND_NS for step in _STEPS),
    *(step * MILLISECOND_NS for step in (1, 2.5, 5)),
    *(step * MILLISECOND_NS for step in _STEPS),
    *(step * SECOND_NS for step in (1, 2.5, 5, 10)),
)
RECENT_TURNS = 5  # how many snapshots back the quantiles look


class Histogram:
    """The number of values per bucket; a value equal to a bound belongs to the bucket below it."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = DURATION_BOUNDS_NS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0

    def observe(self, value: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)


class Recent:
    """Quantiles of a histogram's recent values: its counts, minus its counts a few turns ago."""

    def __init__(self, histogram: Histogram) -> None:
        self.histogram = histogram
        self._past = deque([list(histogram.counts)], maxlen=RECENT_TURNS)

    def turn(self) -> None:
        """Advance by one turn; values recorded before the oldest kept turn are forgotten."""
        self._past.append(list(self.histogram.counts))

    def quantile(self, share: float) -> float:
        """The value below which this share of the values lies, as precise as the buckets are; 0 without
        values."""
        counts = [now - then for now, then in zip(self.histogram.counts, self._past[0], strict=True)]
        wanted = share * sum(counts)
        low = 0.0
        for bound, count in zip(self.histogram.bounds, counts, strict=False):
            if count and wanted <= count:
                return low + (bound - low) * wanted / count
            wanted -= count
            low = bound
        return low if any(counts) else 0.0


class Family(NamedTuple):
    """The name of some series, their kind (counter, gauge, histogram or summary) and what they mean."""

    name: str
    kind: str
    meaning: str

    def head(self) -> str:
        meaning = self.meaning.replace("\\", "\\\\").replace("\n", "\\n")
        return f"# HELP {self.name} {meaning}\n# TYPE {self.name} {self.kind}\n"

    def sample(self, value: float, labels: str = "") -> str:
        return f"{self.name}{labels} {number(value)}\n"


def labels_of(*pairs: tuple[str, str]) -> str:
    """Labels as text. Label names are our own, values may come from anybody."""
    return "{" + ",".join(f'{name}="{escape(value)}"' for name, value in pairs) + "}"


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    if isinstance(value, int):  # also a bool: 1 or 0
        return str(int(value))
    if isnan(value):
        return "NaN"
    if value in (inf, -inf):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def histogram_lines(
    family: Family, histogram: Histogram, pairs: Sequence[tuple[str, str]] = (), unit: int = SECOND_NS
) -> Iterator[str]:
    """The buckets in Prometheus's cumulative form; values divided by `unit`."""
    seen = 0
    for bound, count in zip((*histogram.bounds, inf), histogram.counts, strict=True):
        seen += count
        labels = labels_of(*pairs, ("le", number(bound / unit)))
        yield f"{family.name}_bucket{labels} {seen}\n"
    yield from _totals(family, histogram.sum / unit, seen, pairs)


def summary_lines(
    family: Family, recent: Recent, shares: Sequence[str], pairs: Sequence[tuple[str, str]], unit: int
) -> Iterator[str]:
    """Quantiles, labelled with their share as given."""
    for share in shares:
        value = recent.quantile(float(share)) / unit
        yield family.sample(value, labels_of(*pairs, ("quantile", share)))
    yield from _totals(family, recent.histogram.sum / unit, recent.histogram.count, pairs)


def _totals(family: Family, total: float, count: int, pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    labels = labels_of(*pairs) if pairs else ""
    yield f"{family.name}_sum{labels} {number(total)}\n"
    yield f"{family.name}_count{labels} {count}\n"
