"""Groups step by step: the examples of KIP-848, 345, 394, 429 and 814, and changes of protocol.

TIDELOG_REWRITE=1 writes what comes out now into the scripts, to be read before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scenarios.group_script import Script, run

SCRIPTS = sorted(Path(__file__).with_name("groups").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_group_does_what_the_script_says(path: Path) -> None:
    now = run(path)
    if os.environ.get("TIDELOG_REWRITE") == "1":
        path.write_text(now, encoding="utf-8")
    assert now == path.read_text("utf-8")


def test_the_output_of_a_step_is_what_came_of_it() -> None:
    script = Script()
    script.step("topic t 1")
    assert script.step("consumer a topics=t")[0] == "a <- epoch 2: t-0"
    assert script.step("consumer a owned=t-0") == ["a <- epoch 2"]
