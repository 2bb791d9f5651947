"""The process that Spark forks its Python workers from, with what the source's tasks need loaded already.

Spark starts it as `python -m tidelog.spark.daemon <module of the worker>` (`spark.python.daemon.module`). A
worker is otherwise PySpark's own. Without this each new worker would load numba and the compiled loops for
itself: half a second, for a task that may take a tenth of that.

**Invariant:** what cannot be loaded is left to whoever needs it, and fails there.
"""

from __future__ import annotations

import importlib
import sys

TASKS = "pyspark.worker"
LOADED = ("tidelog.spark.columns", "tidelog.spark.rows", "tidelog.spark.source", "tidelog.spark.writing")


def load() -> None:
    for name in LOADED:
        try:
            importlib.import_module(name)
        except Exception as problem:  # whatever it is, it is no reason to have no workers
            print(f"tidelog: {name} is not loaded: {problem}", file=sys.stderr)


if __name__ == "__main__":
    from pyspark.daemon import manager

    if sys.argv[1:] == [TASKS]:
        load()
    manager()
