"""The simulation bites: each bug under `mutants/` is found by a story that is told well without it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.cluster_mutants import FOUND, PATCHES, SOURCE, DoesNotApply, make_mutant

STORY = re.compile(r"^Story: (\S+)$", re.MULTILINE)
TIMEOUT_S = 900


@pytest.mark.skipif(bool(os.environ.get("TIDELOG_SEED")), reason="one seed is looked at")
@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_the_simulation_finds_the_bug(patch: Path, tmp_path: Path) -> None:
    story = STORY.search(patch.read_text("utf-8"))
    assert story is not None, f"{patch.name} names no story"
    make_mutant(patch, tmp_path)
    command = [sys.executable, "-m", "tests.sim.cluster_mutants", story[1]]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command,
        cwd=SOURCE.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == FOUND, f"{patch.stem} was not found:\n{done.stdout}{done.stderr}"


def test_a_patch_that_no_longer_applies_says_so(tmp_path: Path) -> None:
    patch = tmp_path / "old.patch"
    patch.write_text(
        "Once.\n\n--- a/tidelog/__init__.py\n+++ b/tidelog/__init__.py\n@@ -1 +1 @@\n-gone\n+new\n"
    )
    with pytest.raises(DoesNotApply, match=r"old\.patch does not apply to tidelog/__init__\.py any more"):
        make_mutant(patch, tmp_path / "copy")
