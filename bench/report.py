"""The answer: one row per case, its target, and whether it was reached.

**Invariant:** a row with a target and without a Kafka figure is never "reached".
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.arena import Sample

NOTES_MARK = "<!-- notes: what stands below is kept when the benchmark writes this file anew -->"
OTHERS_SHARE_MAX = 0.2
KAFKA = "Kafka"
HEADERS = ("case", "Tidelog", KAFKA, "client's bound", "ratio", "target", "verdict")


@dataclass(frozen=True)
class Target:
    """What must hold of the ratio to Kafka and, where named, of Tidelog's own figure."""

    ratio_min: float | None = None
    ratio_max: float | None = None
    tidelog_max: float | None = None

    def is_reached(self, tidelog: float, ratio: float | None) -> bool:
        if self.tidelog_max is not None and not tidelog <= self.tidelog_max:
            return False
        if self.ratio_min is None and self.ratio_max is None:
            return True
        if ratio is None:
            return False
        if self.ratio_min is not None and ratio < self.ratio_min:
            return False
        return self.ratio_max is None or ratio <= self.ratio_max

    def text(self, unit: str) -> str:
        parts = []
        if self.ratio_min is not None:
            parts.append(f"≥ {self.ratio_min:g} ×")
        if self.ratio_max is not None:
            parts.append(f"≤ {self.ratio_max:g} ×")
        if self.tidelog_max is not None:
            parts.append(f"≤ {figure(self.tidelog_max, unit)}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Row:
    case: str
    unit: str
    tidelog: Sample | None
    kafka: Sample | None = None
    target: Target | None = None
    bound: Sample | None = None

    @property
    def ratio(self) -> float | None:
        if self.tidelog is None or self.kafka is None or self.kafka.value == 0:
            return None
        return self.tidelog.value / self.kafka.value

    @property
    def others_share(self) -> float:
        return max((sample.others_share for sample in (self.tidelog, self.kafka) if sample), default=0.0)

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        if self.tidelog is None:
            return "missed"
        return "reached" if self.target.is_reached(self.tidelog.value, self.ratio) else "missed"

    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        target = "" if self.target is None else self.target.text(self.unit)
        return (
            self.case,
            _sample_text(self.tidelog, self.unit),
            _sample_text(self.kafka, self.unit),
            _sample_text(self.bound, self.unit),
            ratio,
            target,
            self.verdict,
        )


@dataclass
class Report:
    rounds: int
    kafka_version: str
    method: Sequence[str]
    rows: list[Row] = field(default_factory=list)
    beside: str = KAFKA  # whose figures stand beside ours

    def tally(self) -> str:
        verdicts = [row.verdict for row in self.rows]
        return f"{verdicts.count('reached')} targets reached, {verdicts.count('missed')} missed"

    def warning(self) -> str:
        """A sentence when the machine was not ours alone, or nothing."""
        count = sum(row.others_share > OTHERS_SHARE_MAX for row in self.rows)
        if not count:
            return ""
        share = f"{OTHERS_SHARE_MAX:.0%}"
        return f"{count} cases ran while other processes used over {share} of a core: measure again."

    def print(self, console: Console) -> None:
        headers = [self.beside if header == KAFKA else header for header in HEADERS]
        table = Table(*headers, title=self.tally())
        colours = {"reached": "green", "missed": "red", "": ""}
        for row in self.rows:
            table.add_row(*row.cells(), style=colours[row.verdict])
        console.print(table)
        if warning := self.warning():
            console.print(warning, style="yellow")

    def markdown(self) -> str:
        paragraphs = [
            "# Benchmark: Tidelog and Apache Kafka",
            f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit()}. {self.tally()}.",
            self.warning(),
            f"Machine: {machine()}.",
            f"Peers: Tidelog on Python {platform.python_version()}; {self.kafka_version}.",
            "\n".join(
                [_line(HEADERS), _line(["---"] * len(HEADERS))] + [_line(r.cells()) for r in self.rows]
            ),
            "## Who was the limit",
            "CPU while the case ran, 100 % being one core. Client and broker share the cores; what others"
            " used is the most of any round, and if it is much, the row is to be distrusted.",
            self._shares(),
            f"## Method\nMedians of {self.rounds} unless a line says otherwise.",
            "\n".join(f"- {line}." for line in self.method),
        ]
        return "\n\n".join(part for part in paragraphs if part) + "\n"

    def _shares(self) -> str:
        headers = ("case", "client of Tidelog", "Tidelog", "client of Kafka", "Kafka", "others")
        lines = [_line(headers), _line(["---"] * len(headers))]
        for row in self.rows:
            if any(sample and sample.client_share for sample in (row.tidelog, row.kafka)):
                shares = (*_share_cells(row.tidelog), *_share_cells(row.kafka))
                lines.append(_line([row.case, *shares, f"{row.others_share:.0%}"]))
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """Write anew, keeping the notes that people left below the mark."""
        old = path.read_text() if path.exists() else ""
        notes = old.partition(NOTES_MARK)[2]
        path.write_text(f"{self.markdown()}\n{NOTES_MARK}{notes or chr(10)}")


def figure(value: float, unit: str) -> str:
    """Three significant digits, with M or k for rates."""
    if unit in ("msg/s", "req/s", "rows/s"):
        for size, letter in ((1_000_000, "M "), (1_000, "k ")):
            if value >= size:
                return f"{_three_digits(value / size)} {letter}{unit}"
    return f"{_three_digits(value)} {unit}"


def commit() -> str:
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or "unknown"


def machine() -> str:
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {model}, {memory:.0f} GB of memory, Linux {platform.release()}"


def _three_digits(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _sample_text(sample: Sample | None, unit: str) -> str:
    return "" if sample is None else figure(sample.value, unit)


def _share_cells(sample: Sample | None) -> tuple[str, str]:
    if sample is None:
        return ("", "")
    return (f"{sample.client_share:.0%}", f"{sample.broker_share:.0%}")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
