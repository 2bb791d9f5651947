"""Python workers that end quietly and do not look through what they have loaded again and again.

A worker of PySpark's daemon serves one task after another. Two things are changed in it:

- A worker that waits for its next task when Spark closes it, after a minute or at the end of a session, tries
  to report that. With Unix sockets nobody can hear it any more: it printed a traceback (BrokenPipeError).
- After each task the daemon runs the garbage collector over everything that is loaded: 13 to 59 ms in the two
  processes of the driver that a streaming sink takes part in at each micro-batch. What is frozen is skipped.

Workers of `tidelog.spark.daemon` are quiet before they are forked, from a process that is frozen already.
Those in which Spark plans come from PySpark's own daemon: they change themselves when they load the source.

**Invariant:** what a task does and what it answers stays the same.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

Worker = Callable[[Any, bool], int]
ENDED = 1  # the daemon waits until the connection is closed, and ends the process
TASKS_UNTIL_LOADED = (2, 3)  # by then everything that tasks import is there


def quiet(worker: Worker, *, freezes: bool) -> Worker:
    """PySpark's `daemon.worker`, in one process. Where users' tasks run, nothing of theirs is frozen."""
    done = 0

    def run(sock: Any, authenticated: bool) -> int:
        nonlocal done
        try:
            code = worker(sock, authenticated)
        except BrokenPipeError:
            return ENDED
        done += 1
        if freezes and done in TASKS_UNTIL_LOADED:
            gc.collect()
            gc.freeze()
        return code

    run.is_quiet = True  # type: ignore[attr-defined]
    return run


def make_quiet(daemon: ModuleType, *, freezes: bool) -> None:
    worker = getattr(daemon, "worker", None)
    if worker is not None and not hasattr(worker, "is_quiet"):
        daemon.worker = quiet(worker, freezes=freezes)  # type: ignore[attr-defined]


@contextmanager
def without_hypothesis() -> Iterator[None]:
    """kio imports hypothesis, if installed, for its own tests: a tenth of a second at the start of a stream.
    What a user's task imports later is not concerned."""
    if "hypothesis" in sys.modules:
        yield
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["hypothesis"]


def make_this_process_quiet() -> None:
    """If it was forked by PySpark's own daemon: from its next task on."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if main is not None and spec is not None and spec.name == "pyspark.daemon":
        make_quiet(main, freezes=True)
