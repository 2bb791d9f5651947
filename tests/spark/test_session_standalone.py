"""Sessions on a cluster of Spark's own: a master, two workers, and executors that can be killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak import is_soak
from tests.spark.programs import PROGRAM_SECONDS_MAX, awaited, run_python, running_python

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from tests.spark.standalone import StandaloneCluster, is_executor

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not is_soak(), reason="in the soak; test_source_standalone kills an executor in every run"
    ),
]
DRIVER = """
import os, pathlib, time
from tidelog.spark import session

spark = session(master={master!r}, config={settings!r} | {{
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}})

def where(number):
    gate = pathlib.Path({gate!r})
    gate.with_name(f"task-{{number}}").touch()
    while not gate.exists():
        time.sleep(0.02)
    return number, pathlib.Path(os.getcwd()).parent.parent.name

found = spark.sparkContext.parallelize(range(8), 8).map(where).collect()
print(sorted(number for number, _ in found) == list(range(8)), *sorted({{folder for _, folder in found}}))
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def driver(cluster: StandaloneCluster, folder: Path) -> str:
    return DRIVER.format(master=cluster.master, settings=cluster.settings, gate=str(folder / "gate"))


def test_a_job_runs_on_all_workers(cluster: StandaloneCluster, tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    assert run_python(driver(cluster, tmp_path), tmp_path, cluster.environment).split() == [
        "True",
        "work-0",
        "work-1",
    ]
    awaited(lambda: not cluster.executors(), "executors outlive their application")


def test_a_job_outlives_a_killed_executor(cluster: StandaloneCluster, tmp_path: Path) -> None:
    with running_python(driver(cluster, tmp_path), tmp_path, cluster.environment) as program:
        awaited(lambda: len(list(tmp_path.glob("task-*"))) == 2, "the tasks do not start")
        killed = cluster.kill_executor()
        awaited(lambda: not is_executor(killed), "the executor goes on")
        awaited(lambda: len(cluster.executors()) == 2, "there is no other executor in its place")
        (tmp_path / "gate").touch()
        output, errors = program.communicate(timeout=PROGRAM_SECONDS_MAX)
    assert program.returncode == 0, errors[-4000:]
    assert output.split()[0] == "True"


def test_nothing_is_left_of_a_cluster(tmp_path: Path) -> None:
    with StandaloneCluster(tmp_path, worker_count=1) as cluster:
        assert cluster.state()["aliveworkers"] == 1
        pids = [process.pid for process in cluster.processes]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
