"""Python workers that nobody waits for any more, and what the garbage collector looks through."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tests.spark.programs import awaited, run_python
from tidelog.spark.workers import ENDED, TASKS_UNTIL_LOADED, make_quiet, quiet

IDLE = """
import os, socket, sys
from pyspark import daemon
from tidelog.spark.workers import quiet
os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"
for program in ("pyspark.worker", "pyspark.sql.worker.commit_data_source_write"):
    sys.argv = ["daemon", program]
    for worker in (daemon.worker, quiet(daemon.worker, freezes=False)):
        here, spark = socket.socketpair()
        spark.close()
        try:
            print(worker(here, True))
        except BrokenPipeError:
            print("traceback")
"""


def test_an_idle_worker_ends_quietly_when_spark_closes_it(tmp_path: Path) -> None:
    assert run_python(IDLE, tmp_path).split() == ["traceback", str(ENDED)] * 2


@pytest.mark.parametrize("freezes", [True, False])
def test_what_a_planning_worker_has_loaded_is_not_looked_through_again(freezes: bool) -> None:
    run = quiet(lambda sock, authenticated: 0, freezes=freezes)
    frozen = gc.get_freeze_count()
    try:
        counts = []
        for _ in range(TASKS_UNTIL_LOADED[-1]):
            assert run(None, True) == 0
            counts.append(gc.get_freeze_count())
        assert (counts[0] == frozen) and (counts[-1] > frozen) is freezes
    finally:
        gc.unfreeze()


LOADING = """
import sys
from tidelog.spark.workers import without_hypothesis
with without_hypothesis():
    import tidelog.spark.survey
print("hypothesis" in sys.modules)
import hypothesis
with without_hypothesis():
    import hypothesis.strategies
print("hypothesis" in sys.modules)
"""


def test_a_stream_does_not_load_what_only_tests_need_and_users_still_may(tmp_path: Path) -> None:
    assert run_python(LOADING, tmp_path).split() == ["False", "True"]


def test_the_processes_in_which_spark_plans_are_frozen(spark: SparkSession) -> None:
    class Looking(DataSource):  # inside, so that it is sent as it is
        @classmethod
        def name(cls) -> str:
            return "looking"

        def schema(self) -> str:
            return "frozen long"

        def reader(self, schema: StructType) -> DataSourceReader:
            import tidelog.spark.source  # noqa: F401

            return LookingReader()

    class LookingReader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(gc.get_freeze_count())]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (partition.value,)

    spark.dataSource.register(Looking)
    awaited(lambda: spark.read.format("looking").load().collect()[0].frozen, "nothing is frozen")


def test_a_daemon_is_changed_once() -> None:
    daemon = ModuleType("daemon")
    make_quiet(daemon, freezes=False)  # another PySpark
    daemon.worker = lambda sock, authenticated: 7  # type: ignore[attr-defined]
    make_quiet(daemon, freezes=False)
    first = daemon.worker
    make_quiet(daemon, freezes=False)
    assert daemon.worker is first
    assert first(None, True) == 7
