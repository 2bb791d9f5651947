"""The oracle bites: each bug under `mutants/` is found by the round that it names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.cluster_mutants import FOUND, SOURCE, make_mutant

PATCHES = sorted(Path(__file__).with_name("mutants").glob("*.patch"))
ROUND = re.compile(r"^Round: (\S+)$", re.MULTILINE)
TIMEOUT_S = 300


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_round_of_kafka_s_finds_the_bug(patch: Path, tmp_path: Path) -> None:
    named = ROUND.search(patch.read_text("utf-8"))
    assert named is not None, f"{patch.name} names no round"
    make_mutant(patch, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.log.compaction.oracle", named[1]],
        cwd=SOURCE.parent,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == FOUND, f"{patch.stem} was not found:\n{done.stdout}{done.stderr}"
