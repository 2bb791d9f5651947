"""The status of a run, in a file that other processes can read while it runs.

The file is replaced as a whole, never written in place. A run holds a lock beside it while it is alive: so
a killed run is distinguished from a slow one, even if its process id is in use again.

**Invariant:** one run of a pipeline at a time writes to a directory; no pyspark is imported here.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

LOCK_ATTEMPTS = 3  # a process that only checks has let go of it by then
LOCK_PAUSE_S = 0.02  # a process that checks whether a run is alive holds the lock for a moment
RUNNING, STOPPED, FAILED, KILLED = "running", "stopped", "failed", "killed"


@dataclass(frozen=True)
class QueryStatus:
    """One query at one moment; None is unknown."""

    name: str
    is_active: bool
    rows: int
    rows_per_second: float
    lag: int | None
    restarts: int
    """The number of restarts after Spark's timeout for a Python process."""
    batch: int | None
    batch_ms: int | None
    error: str


@dataclass(frozen=True)
class RunStatus:
    pipeline: str
    state: str
    mode: str
    pid: int
    host: str
    master: str
    bootstrap_servers: str
    started_ms: int
    updated_ms: int
    doing: str = "streams"
    """`streams`, or the day that is being loaded."""
    error: str = ""
    queries: tuple[QueryStatus, ...] = field(default=())


class AlreadyRuns(Exception):
    """Another process runs this pipeline in this directory."""


class StatusFile:
    """The file of one pipeline below the directory of its runs."""

    def __init__(self, directory: str | Path, pipeline: str) -> None:
        self._folder = Path(directory) / "status"
        self._path = self._folder / f"{pipeline}.json"
        self._lock_path = self._folder / f"{pipeline}.lock"
        self._pipeline = pipeline

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock while a run is alive. Raises `AlreadyRuns`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not any(locked(descriptor) for _ in range(LOCK_ATTEMPTS)):
                other = self.read()
                who = f"process {other.pid} on {other.host}" if other else "another process"
                raise AlreadyRuns(f"pipeline {self._pipeline} is already run in this directory by {who}")
            yield
        finally:
            os.close(descriptor)

    def write(self, status: RunStatus) -> None:
        made = self._path.with_suffix(".new")
        made.write_text(json.dumps(asdict(status), indent=1), "utf-8")
        made.replace(self._path)

    def read(self) -> RunStatus | None:
        """The status; None if the pipeline never ran here."""
        try:
            told = json.loads(self._path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        queries = tuple(QueryStatus(**query) for query in told.pop("queries"))
        status = RunStatus(**told, queries=queries)
        is_dead = status.state == RUNNING and not self._is_held()
        return replace(status, state=KILLED) if is_dead else status

    def _is_held(self) -> bool:
        try:
            descriptor = os.open(self._lock_path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            return not locked(descriptor)
        finally:
            os.close(descriptor)


def locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(LOCK_PAUSE_S)
        return False
    return True


def begun(pipeline: str, mode: str, master: str, bootstrap_servers: str) -> RunStatus:
    """The initial status of a run of this process."""
    now = now_ms()
    host = socket.gethostname()
    return RunStatus(pipeline, RUNNING, mode, os.getpid(), host, master, bootstrap_servers, now, now)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def statuses(directory: str | Path) -> list[RunStatus]:
    """The status of every pipeline that ever ran in the directory, by name."""
    names = sorted(path.stem for path in (Path(directory) / "status").glob("*.json"))
    return [status for name in names if (status := StatusFile(directory, name).read())]
