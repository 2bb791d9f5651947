"""The tests of leaders and of what goes between brokers bite: each bug under `transacting_mutants/` is found
by the test that it names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.one_test import FOUND
from tests.sim.cluster_mutants import SOURCE, make_mutant

PATCHES = sorted(Path(__file__).with_name("transacting_mutants").glob("*.patch"))
TEST = re.compile(r"^Test: (.+)$", re.MULTILINE)
TIMEOUT_S = 300


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_test_finds_the_bug(patch: Path, tmp_path: Path) -> None:
    named = TEST.search(patch.read_text("utf-8"))
    assert named is not None, f"{patch.name} names no test"
    make_mutant(patch, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.one_test", *named[1].split()],
        cwd=SOURCE.parent,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == FOUND, f"{patch.stem} was not found:\n{done.stdout}{done.stderr}"
