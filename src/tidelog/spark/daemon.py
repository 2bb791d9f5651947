"""The process that Spark forks its Python workers from, with what the source's tasks need loaded already.

Spark starts it as `python -m tidelog.spark.daemon <module of the worker>` (`spark.python.daemon.module`). A
worker is otherwise PySpark's own. Without this each new worker would load numba, the compiled loops and
pandas for itself: half a second, for a task that may take a tenth of that. And after each task PySpark has
the garbage collector walk all that is loaded, some 80 ms; what is frozen here is not walked.

**Invariant:** what cannot be loaded is left to whoever needs it, and fails there.
"""

from __future__ import annotations

import gc
import importlib
import sys

TASKS = "pyspark.worker"
LOADED = (
    "tidelog.client.sender",
    "tidelog.spark.columns",
    "tidelog.spark.reading",
    "tidelog.spark.rows",
    "tidelog.spark.source",
    "tidelog.spark.writing",
    # What PySpark's worker imports when its first task comes.
    "pandas",
    "pyarrow.pandas_compat",
    "pyspark.worker",
    "pyspark.sql.conversion",
    "pyspark.sql.worker.plan_data_source_read",
)


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
    gc.collect()
    gc.freeze()
    manager()
