"""Patches of the package, put on a copy of it: a mutant that the simulation must find something wrong with.

Each patch is a unified diff behind some lines that say what the bug is, and the story that it spoils.

**Invariant:** a patch changes what it says or does not apply; nothing is guessed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
PATCHES = sorted(Path(__file__).with_name("mutants").glob("*.patch"))
FOUND = 3  # how a process ends that has found something wrong


class DoesNotApply(Exception):
    """The package has changed; the patch must be written anew."""


def make_mutant(patch: Path, folder: Path) -> None:
    """A copy of the package in `folder`, with the patch applied."""
    shutil.copytree(SOURCE / "tidelog", folder / "tidelog", ignore=shutil.ignore_patterns("*.nb[ci]"))
    _, *parts = ("\n" + patch.read_text("utf-8")).split("\n--- a/")
    if not parts:
        raise DoesNotApply(f"{patch.name} changes nothing")
    for part in parts:
        name, _, rest = part.partition("\n")
        _, *hunks = rest.split("\n@@ ")
        target = folder / name.strip()
        text = target.read_text("utf-8")
        for hunk in hunks:
            text = _apply(patch, name, text, hunk.split("\n")[1:])
        target.write_text(text, "utf-8")
        for compiled in target.parent.glob(f"__pycache__/{target.stem}.*.pyc"):
            compiled.unlink()


def _apply(patch: Path, name: str, text: str, lines: list[str]) -> str:
    lines = [line for line in lines if line]
    before = "\n".join(line[1:] for line in lines if line[0] in " -") + "\n"
    after = "\n".join(line[1:] for line in lines if line[0] in " +") + "\n"
    if text.count(before) != 1:
        raise DoesNotApply(
            f"{patch.name} does not apply to {name} any more; write the same bug anew:\n{before}"
        )
    return text.replace(before, after)


def is_told_badly(story: str) -> bool:
    """Whether something goes wrong in a story."""
    from tests.sim.cluster_clock import Violation
    from tests.sim.cluster_scenarios import STORIES

    try:
        STORIES[story]()
    except Violation as failure:
        print(f"{story}: {failure}")
        return True
    return False


if __name__ == "__main__":
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # kio would load it, and nobody uses it here
    sys.exit(FOUND if is_told_badly(sys.argv[1]) else 0)
