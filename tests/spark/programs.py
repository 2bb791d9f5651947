"""Python programs in a process of their own: for what needs a JVM, an environment or an end of its own.

`awaited` is how a test waits for what other processes do.

**Invariant:** no program outlives its block, however the test ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
PROGRAM_SECONDS_MAX = 270  # below the limit of a test; a JVM on a busy machine takes its time
AWAITED_SECONDS_MAX = 180.0
POLL_SECONDS = 0.05


def awaited(look: Callable[[], T], claim: str, seconds_max: float = AWAITED_SECONDS_MAX) -> T:
    """Look until there is something; what it is."""
    deadline = time.monotonic() + seconds_max
    tick = threading.Event()
    while not (seen := look()):
        assert time.monotonic() < deadline, f"{claim}, in {seconds_max:.0f} s"
        tick.wait(POLL_SECONDS)
    return seen


def run_python(
    text: str, folder: Path, environment: Mapping[str, str] | None = None, *, without: Collection[str] = ()
) -> str:
    """Run the program in `folder`; what it printed. One that fails, fails the test with what it said."""
    with running_python(text, folder, environment, without=without) as program:
        output, errors = program.communicate(timeout=PROGRAM_SECONDS_MAX)
    assert program.returncode == 0, f"exit status {program.returncode}\n{output}\n{errors[-4000:]}"
    return output


@contextmanager
def running_python(
    text: str, folder: Path, environment: Mapping[str, str] | None = None, *, without: Collection[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """The program while it runs, with its output in pipes. A JVM that it started ends with it."""
    path = folder / "program.py"
    path.write_text(text)
    variables = {name: value for name, value in os.environ.items() if name not in without}
    program = subprocess.Popen(
        [sys.executable, str(path)],
        cwd=folder,
        env=variables | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield program
    finally:
        if program.poll() is None:
            program.kill()
        program.wait()


def path_without(command: str, folder: Path) -> Path:
    """A folder that has every command of the PATH but one."""
    folder.mkdir()
    for directory in map(Path, os.get_exec_path()):
        for found in directory.iterdir() if directory.is_dir() else ():
            link = folder / found.name
            if found.name != command and not link.is_symlink():
                link.symlink_to(found)
    return folder
