"""Keeps `tests/SOAK.md`: one row for each suite, replaced when the suite runs again at full count.

**Invariant:** only a run with TIDELOG_SOAK=1 writes; a sample is no proof.
"""

from __future__ import annotations

import os
import random
import subprocess
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


@dataclass(frozen=True, slots=True)
class Tally:
    """`outcome` is "passed" only if the run went through to its end and found nothing wrong."""

    outcome: str
    kills: int
    acknowledged: int
    missing: int
    duplicated: int
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
    page.write_text(_HEAD + "\n".join(rows[name] for name in sorted(rows)) + "\n", encoding="utf-8")


def _rows(page: Path) -> list[str]:
    if not page.exists():
        return []
    _, _, body = page.read_text(encoding="utf-8").partition("|---|---")
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
