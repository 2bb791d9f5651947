"""The process from which Spark forks its Python workers, with the modules of the source's tasks preloaded.

Spark starts it as `python -m tidelog.spark.daemon <module of the worker>` (`spark.python.daemon.module`). The
workers are PySpark's own. Without preloading, each new worker would load numba, the compiled loops and
pandas itself: half a second, for a task that may take a tenth of that. After each task PySpark runs the
garbage collector over all loaded objects, which takes 80 ms; frozen objects are skipped.

**Invariant:** a module that cannot be loaded here is skipped; a task that needs it reports the error.
"""

from __future__ import annotations

import gc
import importlib
import sys

from tidelog.spark.workers import make_quiet, without_hypothesis

TASKS = "pyspark.worker"
LOADED = (
    "tidelog.client.sender",
    "tidelog.client.transactions",
    "tidelog.spark.columns",
    "tidelog.spark.exactly_once.tasks",
    "tidelog.spark.reading",
    "tidelog.spark.rows",
    "tidelog.spark.source",
    "tidelog.spark.writing",
    # The imports of PySpark's worker at its first task.
    "pandas",
    "pyarrow.pandas_compat",
    "pyspark.worker",
    "pyspark.sql.conversion",
    "pyspark.sql.worker.plan_data_source_read",
)


def load() -> None:
    for name in LOADED:
        try:
            with without_hypothesis():
                importlib.import_module(name)
        except Exception as problem:  # no failure here may prevent the workers
            print(f"tidelog: {name} is not loaded: {problem}", file=sys.stderr)


if __name__ == "__main__":
    from pyspark import daemon

    make_quiet(daemon, freezes=False)
    if sys.argv[1:] == [TASKS]:
        load()
    gc.collect()
    gc.freeze()
    daemon.manager()
