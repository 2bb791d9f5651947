"""What the metrics pipeline should find, in plain Python."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.spark.pipelines.inputs import Row, placed
from tidelog.spark.pipelines.generated import Arrivals
from tidelog.spark.pipelines.metrics.generator import generate
from tidelog.spark.pipelines.metrics.topics import MEASUREMENTS

START = datetime(2026, 3, 2, 22, tzinfo=UTC)
MINUTE_MS = 60_000
LATE_MS = 10 * MINUTE_MS


def some_rows(seed: int, events: int = 2_000) -> list[Row]:
    """Three hours around midnight, with more delays and more damage than usual."""
    arrivals = Arrivals(delayed=0.05, very_late=0.01)
    rows = placed(generate(seed, 4, events, START, timedelta(hours=3), arrivals))
    broken = Row(MEASUREMENTS, 1, 999_999, b"k", b'{"name":"cpu","value":1,', rows[7].timestamp_ms)
    return [*rows[:8], broken, *rows[8:]]


@dataclass(frozen=True)
class Measurement:
    value: dict[str, Any]
    row: Row

    @property
    def late(self) -> bool:
        return bool(self.row.timestamp_ms - self.value["time"] > LATE_MS)

    @property
    def series(self) -> str:
        tags = ",".join(f"{tag}={value}" for tag, value in sorted(self.value["tags"].items()))
        return f"{self.value['name']}{{{tags}}}"

    @property
    def minute(self) -> int:
        return int(self.value["time"] // MINUTE_MS * MINUTE_MS)


@dataclass(frozen=True)
class Window:
    """One series in one minute."""

    numbers: tuple[float, ...]
    late: int

    def percentile(self, share: float) -> float:
        """The smallest number that as many are not above."""
        return sorted(self.numbers)[math.ceil(share * len(self.numbers)) - 1]


def read(rows: Iterable[Row]) -> tuple[list[Measurement], list[Row]]:
    measured, broken = [], []
    for row in rows:
        try:
            measured.append(Measurement(json.loads(row.value or b""), row))
        except ValueError:
            broken.append(row)
    return measured, broken


def windows(measured: Iterable[Measurement], window_ms: int = MINUTE_MS) -> dict[tuple[str, int], Window]:
    gathered: dict[tuple[str, int], list[Measurement]] = defaultdict(list)
    for one in measured:
        gathered[one.series, one.value["time"] // window_ms * window_ms].append(one)
    return {
        place: Window(tuple(one.value["value"] for one in ones), sum(one.late for one in ones))
        for place, ones in gathered.items()
    }
