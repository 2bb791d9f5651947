"""Keeps `tests/SOAK.md`: one row for each suite, replaced when the suite runs again at full count.

Behind those rows stands what the chaos of `make soak` counted, by kind, and then what `make fuzz` counted,
target by target; each is replaced as a whole.

**Invariant:** only a run at full count writes (`make soak` sets TIDELOG_SOAK=1); a sample is no proof.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).with_name("SOAK.md")

_HEAD = """\
# What the last full runs counted

`make soak` writes this page: a row for each suite, from its last run at full count, also when it failed.
Lost and duplicated records are counted against what the broker had acknowledged. `TIDELOG_SEED`
repeats the choices of a run (when to kill, how often), not the timing of its processes.

| suite | outcome | kills | records acknowledged | missing | duplicated | seed | date | commit |
|---|---|---:|---:|---:|---:|---:|---|---|
"""

_CHAOS_HEADING = "\n## Chaos\n"
_CHAOS = f"""{_CHAOS_HEADING}
`make soak` writes this part (`tests/chaos/test_chaos.py`): how often each kind of fault was done to five
brokers and three members of ZooKeeper, and the most seconds that it took until all that had to go on had gone
on; then how often each kind of anomaly was seen.

"""
_FUZZING_HEADING = "\n## Fuzzing\n"
_FUZZING = f"""{_FUZZING_HEADING}
`make fuzz` writes this part: libFuzzer's own count of inputs for each target of `tests/fuzz/targets.py`, how
many inputs the corpus had in the end, and the most memory that the process ever had.

| target | outcome | inputs | seconds | corpus | crashes | memory (MB) | seed | date | commit |
|---|---|---:|---:|---:|---:|---:|---:|---|---|
"""


@dataclass(frozen=True, slots=True)
class Tally:
    """`outcome` is "passed" only if the run went through to its end and found nothing wrong."""

    outcome: str
    kills: int
    acknowledged: int
    missing: int
    duplicated: int
    seed: int


@dataclass(frozen=True, slots=True)
class FuzzTally:
    """`outcome` is "passed" only if the target had all its inputs and none broke it."""

    target: str
    outcome: str
    inputs: int
    seconds: int
    corpus: int
    crashes: int
    memory_mb: int
    seed: int


def is_soak() -> bool:
    return os.environ.get("TIDELOG_SOAK") == "1"


def choose_seed() -> int:
    """The seed that TIDELOG_SEED names, or a new one; printed, so that the same choices can be made again."""
    seed = int(os.environ.get("TIDELOG_SEED") or random.SystemRandom().randrange(2**32))
    print(f"TIDELOG_SEED={seed}")
    return seed


def record(suite: str, tally: Tally, page: Path = PAGE) -> None:
    """Put the suite's row in place of its last one; nothing in a sampled run."""
    if not is_soak():
        return
    rows = {line.split("|")[1].strip(): line for line in _rows(page)}
    today = datetime.now(UTC).date().isoformat()
    counts = f"{tally.kills:,} | {tally.acknowledged:,} | {tally.missing:,} | {tally.duplicated:,}"
    rows[suite] = f"| {suite} | {tally.outcome} | {counts} | {tally.seed} | {today} | {_commit()} |"
    table = _HEAD + "\n".join(rows[name] for name in sorted(rows)) + "\n"
    rest = _section(page, _CHAOS_HEADING) + _section(page, _FUZZING_HEADING)
    page.write_text(table + rest, encoding="utf-8")


def record_chaos(
    faults: Mapping[str, int], slowest_s: Mapping[str, float], found: Mapping[str, int], page: Path = PAGE
) -> None:
    """Put what the last run counted by kind in place of the one before; nothing in a sampled run."""
    if not is_soak():
        return
    lines = ["| fault | times | seconds |", "|---|---:|---:|"]
    for kind, times in sorted(faults.items()):
        lines.append(f"| {kind} | {times:,} | {f'{slowest_s[kind]:.1f}' if kind in slowest_s else ''} |")
    lines += [f"| all | {sum(faults.values()):,} | |", "", "| anomaly | seen |", "|---|---:|"]
    lines += [f"| {kind} | {count:,} |" for kind, count in found.items()]
    part = _CHAOS + "\n".join(lines) + "\n"
    page.write_text(_suites(page) + part + _section(page, _FUZZING_HEADING), encoding="utf-8")


def record_fuzzing(tallies: list[FuzzTally], page: Path = PAGE) -> None:
    """Put what a run of all targets counted in place of the last one."""
    total = FuzzTally(
        "all",
        "passed" if all(tally.outcome == "passed" for tally in tallies) else "failed",
        sum(tally.inputs for tally in tallies),
        sum(tally.seconds for tally in tallies),
        sum(tally.corpus for tally in tallies),
        sum(tally.crashes for tally in tallies),
        max(tally.memory_mb for tally in tallies),
        tallies[0].seed,
    )
    today = datetime.now(UTC).date().isoformat()
    rows = [
        f"| {tally.target} | {tally.outcome} | {tally.inputs:,} | {tally.seconds:,} | {tally.corpus:,} "
        f"| {tally.crashes:,} | {tally.memory_mb:,} | {tally.seed} | {today} | {_commit()} |"
        for tally in [*tallies, total]
    ]
    before = _suites(page) + _section(page, _CHAOS_HEADING)
    page.write_text(before + _FUZZING + "\n".join(rows) + "\n", encoding="utf-8")


def _suites(page: Path) -> str:
    """The part of the page that has a row for each suite."""
    return page.read_text(encoding="utf-8").partition("\n## ")[0] if page.exists() else _HEAD


def _section(page: Path, heading: str) -> str:
    """The part under that heading, if there is one."""
    _, found, text = (page.read_text(encoding="utf-8") if page.exists() else "").partition(heading)
    return found + text.partition("\n## ")[0]


def _rows(page: Path) -> list[str]:
    _, _, body = _suites(page).partition("|---|---")
    return [line for line in body.splitlines()[1:] if line.startswith("|")]


def _commit() -> str:
    """The commit that was tested; two if the tree moved on while the run lasted."""
    now = _describe()
    return now if now == _AT_START else f"{_AT_START}..{now}"


def _describe() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=PAGE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or "unknown"


_AT_START = _describe()
