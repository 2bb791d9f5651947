"""Whether a log directory is locked, as another process sees it: a lock is its process's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tidelog.base.files import LOCK_NAME

_TRY = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def is_locked(directory: Path) -> bool:
    command = [sys.executable, "-c", _TRY, str(directory / LOCK_NAME)]
    tried = subprocess.run(command, check=False, capture_output=True, text=True)
    assert not tried.returncode or "BlockingIOError" in tried.stderr, tried.stderr
    return tried.returncode != 0
