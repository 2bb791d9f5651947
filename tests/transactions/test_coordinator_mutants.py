"""The stories bite: each bug under `mutants/` is found by the story that it names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.cluster_mutants import SOURCE, make_mutant
from tests.transactions.stories import FOUND, STORIES

PATCHES = sorted(Path(__file__).with_name("mutants").glob("*.patch"))
STORY = re.compile(r"^Story: (\S+)$", re.MULTILINE)
TIMEOUT_S = 300


def story_of(patch: Path) -> str:
    found = STORY.search(patch.read_text("utf-8"))
    assert found is not None, f"{patch.name} names no story"
    return found[1]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_story_finds_the_bug(patch: Path, tmp_path: Path) -> None:
    make_mutant(patch, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.transactions.stories", story_of(patch)],
        cwd=SOURCE.parent,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == FOUND, f"{patch.stem} was not found:\n{done.stdout}{done.stderr}"


def test_every_story_has_a_bug_that_it_finds() -> None:
    assert sorted({story_of(patch) for patch in PATCHES}) == sorted(STORIES)
