"""How a broker comes back (L9, R8, R9), step by step.

TIDELOG_REWRITE=1 writes what comes out now into the scripts, to be read before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scenarios.recovery_script import run

SCRIPTS = sorted(Path(__file__).with_name("recovery").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_cluster_does_what_the_script_says(path: Path) -> None:
    now = run(path)
    if os.environ.get("TIDELOG_REWRITE") == "1":
        path.write_text(now, encoding="utf-8")
    assert now == path.read_text("utf-8")
