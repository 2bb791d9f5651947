"""Compiled loops where nothing can be kept on disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tidelog

PROGRAM = """
from tidelog.protocol.records import build_batch
from tidelog.spark.columns import Columns
batch = build_batch([(None, b"v", (), 0)] * 3)
columns = Columns("clicks", 0, 0, 3)
print(sum(page.num_rows for page in [*columns.add(memoryview(batch), 0, len(batch)), *columns.finish()]))
"""


def test_loops_are_compiled_anew_where_nothing_can_be_kept(tmp_path: Path) -> None:
    package = tmp_path / "tidelog"
    shutil.copytree(Path(tidelog.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    # A file where the folder would be: also root cannot write there.
    (package / "spark" / "__pycache__").write_text("")
    nowhere = {"PYTHONPATH": str(tmp_path), "HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=os.environ | nowhere, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("3\n", "")
    assert list(tmp_path.rglob("*.nbi")) == []
