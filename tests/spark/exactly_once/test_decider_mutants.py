"""The stories of the sink bite: each bug under `mutants/` is found by the story that it names.

In `make soak` all of them, in `make test` a few, by chance.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.sim.cluster_mutants import SOURCE, make_mutant
from tests.sim.cluster_mutants import _apply as apply_hunk
from tests.soak import choose_seed, is_soak
from tests.spark.exactly_once.stories import FOUND, STORIES

PATCHES = sorted(Path(__file__).with_name("mutants").glob("*.patch"))
SAMPLE = 4
STORY = re.compile(r"^Story: (\S+)$", re.MULTILINE)
TIMEOUT_S = 280


def story_of(patch: Path) -> str:
    found = STORY.search(patch.read_text("utf-8"))
    assert found is not None, f"{patch.name} names no story"
    return found[1]


def is_found(patch: Path, folder: Path) -> None:
    make_mutant(patch, folder)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.exactly_once.stories", story_of(patch)],
        cwd=SOURCE.parent,
        env={**os.environ, "PYTHONPATH": str(folder), "TIDELOG_SOAK": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == FOUND, f"{patch.stem} was not found:\n{done.stdout}{done.stderr}"


@pytest.mark.soak
@pytest.mark.parametrize("chosen", PATCHES if is_soak() else [None])
def test_a_story_finds_its_bug(chosen: Path | None, tmp_path: Path) -> None:
    patches = Random(choose_seed()).sample(PATCHES, SAMPLE) if chosen is None else [chosen]
    for patch in patches:
        is_found(patch, tmp_path / patch.stem)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_bug_can_still_be_planted(patch: Path) -> None:
    """Also where only a few of them are."""
    _, *parts = ("\n" + patch.read_text("utf-8")).split("\n--- a/")
    for part in parts:
        name, _, rest = part.partition("\n")
        text = (SOURCE / name.strip()).read_text("utf-8")
        for hunk in rest.split("\n@@ ")[1:]:
            text = apply_hunk(patch, name, text, hunk.split("\n")[1:])


def test_every_story_has_a_bug_that_it_finds() -> None:
    assert sorted({story_of(patch) for patch in PATCHES}) == sorted(STORIES)
