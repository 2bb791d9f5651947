"""Python programs in a process of their own: for what needs a JVM, an environment or an end of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

PROGRAM_SECONDS_MAX = 180


def run_python(
    text: str, folder: Path, environment: Mapping[str, str] | None = None, *, without: Collection[str] = ()
) -> str:
    """Run the program in `folder`; what it printed. One that fails, fails the test with what it said."""
    program = folder / "program.py"
    program.write_text(text)
    variables = {name: value for name, value in os.environ.items() if name not in without}
    answer = subprocess.run(
        [sys.executable, str(program)],
        cwd=folder,
        env=variables | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )
    assert answer.returncode == 0, (
        f"exit status {answer.returncode}\n{answer.stdout}\n{answer.stderr[-4000:]}"
    )
    return answer.stdout


def path_without(command: str, folder: Path) -> Path:
    """A folder that has every command of the PATH but one."""
    folder.mkdir()
    for directory in map(Path, os.get_exec_path()):
        for found in directory.iterdir() if directory.is_dir() else ():
            link = folder / found.name
            if found.name != command and not link.is_symlink():
                link.symlink_to(found)
    return folder
