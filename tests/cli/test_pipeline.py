"""`tidelog pipeline list | status | generate`, and what a person sees when something is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.conftest import Tidelog
from tests.compat.client import eventually
from tidelog.cli import pipeline_run
from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.pipeline_options import registry, split
from tidelog.spark.pipelines.status import AlreadyRuns, QueryStatus, StatusFile, begun, statuses
from tidelog.testing.process import BrokerProcess

HEAVY = ("pyspark", "pyarrow", "numba", "numpy", "pandas", "matplotlib")


def test_list_says_what_each_pipeline_reads_writes_and_keeps(offline: Tidelog) -> None:
    found = json.loads(offline("pipeline", "list", "--format", "json").out)
    assert [pipeline["pipeline"] for pipeline in found] == ["activity", "metrics"]
    for pipeline in found:
        assert pipeline["summary"] and pipeline["topics_in"] and pipeline["topics_out"] and pipeline["tables"]
    shown = offline("pipeline", "list").out
    assert all(word in shown for one in found for word in (*one["topics_in"], *one["tables"]))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["run", "bogus"], "activity, metrics"),
        (["run", "metrics", "--once", "--continuous"], "--once, --continuous and --day"),
        (["run", "metrics", "--day", "yesterday"], "--day"),
        (["run", "metrics", "-o", "nonsense"], "-o nonsense"),
        (["generate", "metrics", "--events", "0"], "--events"),
    ],
)
def test_a_bad_word_about_pipelines_gets_one_line(offline: Tidelog, words: list[str], named: str) -> None:
    ended = offline("pipeline", *words)
    assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (2, "", 1), ended.error
    assert named in ended.error


def test_topics_that_are_missing_are_named_before_spark_starts(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        ended = Tidelog(broker.bootstrap_servers)("pipeline", "run", "metrics", "--dir", str(tmp_path / "x"))
    assert (ended.exit_code, len(ended.error.splitlines())) == (1, 1)
    assert "metrics.measurements" in ended.error and "--create-topics" in ended.error


def test_generate_fills_the_topics_and_the_same_seed_gives_the_same(tmp_path: Path) -> None:
    words = ("--events", "500", "--seed", "3", "--create-topics", "--start", "2026-03-02", "--format", "json")
    read = ("activity.orders", "--exit", "--format", "json", "--partition", "0")
    days = []
    for number in range(2):
        with BrokerProcess(tmp_path / str(number), {"log.retention.ms": "-1"}) as broker:
            tidelog = Tidelog(broker.bootstrap_servers)
            told = json.loads(tidelog("pipeline", "generate", "activity", *words).out)
            assert sum(told["topics"].values()) == 500 and len(told["topics"]) == 4
            days.append([json.loads(line) for line in tidelog("consume", *read).lines])
    assert days[0] == days[1] and days[0]
    assert json.loads(days[0][0]["value"])["time"] <= days[0][0]["timestamp"]


def test_without_spark_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(Failure, match=r"pyspark missing.*pip install pyspark=="):
        registry()


def test_options_are_split_into_those_of_spark_and_those_of_the_source() -> None:
    given = ["kafka.security.protocol=SSL", "spark.driver.memory=2g", "maxOffsetsPerTrigger=10"]
    assert split(given) == (
        {"kafka.security.protocol": "SSL", "maxOffsetsPerTrigger": "10"},
        {"spark.driver.memory": "2g"},
    )
    with pytest.raises(BadWord):
        split(["=x"])


@pytest.mark.parametrize(
    "words", [["--help"], ["topic", "--help"], ["pipeline", "--help"], ["serve", "--help"]]
)
def test_plain_commands_import_nothing_of_spark(words: list[str]) -> None:
    program = f"""
import sys
from tidelog.cli.main import main
try:
    main({words!r})
finally:
    heavy = [name for name in {HEAVY!r} if name in sys.modules]
    print("imported:", heavy, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert b"imported: []" in done.stderr, done.stderr.decode()


QUERY = QueryStatus("metrics.live", True, 1_000, 250.5, 40, 0, 7, 1_700_000_000_000, "")


def test_status_tells_a_run_that_lives_from_one_that_was_killed(offline: Tidelog, tmp_path: Path) -> None:
    nobody = offline("pipeline", "status", "--dir", str(tmp_path))
    assert (nobody.exit_code, len(nobody.error.splitlines())) == (1, 1)
    file = StatusFile(tmp_path, "metrics")
    begin = begun("metrics", "continuous", "local[2]", "broker:9092")
    with file.held():
        file.write(begin.__class__(**{**begin.__dict__, "queries": (QUERY,)}))
        told = json.loads(offline("pipeline", "status", "--dir", str(tmp_path), "--format", "json").out)
        assert [(run["state"], run["pid"]) for run in told] == [("running", os.getpid())]
        assert told[0]["queries"][0]["lag"] == 40
        with pytest.raises(AlreadyRuns, match=str(os.getpid())), StatusFile(tmp_path, "metrics").held():
            pass
    shown = offline("pipeline", "status", "--dir", str(tmp_path)).out
    assert "killed" in shown and "metrics.live" in shown and "1,000" in shown


def test_a_run_that_ended_well_or_failed_stays_so(tmp_path: Path) -> None:
    for name, state in ((uuid4().hex, "stopped"), (uuid4().hex, "failed")):
        begin = begun(name, "once", "local[2]", "broker:9092")
        file = StatusFile(tmp_path, name)
        with file.held():
            file.write(begin.__class__(**{**begin.__dict__, "state": state, "error": "why"}))
    assert sorted((run.state, run.error) for run in statuses(tmp_path)) == [
        ("failed", "why"),
        ("stopped", "why"),
    ]


def test_a_run_tells_every_second_that_it_lives_whatever_it_is_busy_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")
    from tidelog.spark.pipelines.runner import Place

    monkeypatch.setattr(pipeline_run, "LOOK_SECONDS", 0.01)
    job = pipeline_run.Job(registry()["metrics"], Place("broker:9092", str(tmp_path)), is_quiet=True)
    file = StatusFile(tmp_path, "metrics")
    with job.booked("once", "local[2]"):
        seen = set()

        def is_written_again() -> bool:
            status = file.read()
            assert status is not None and status.state == "running"
            seen.add(status.updated_ms)
            return len(seen) > 3

        eventually(is_written_again, "the status is not written again")
    status = file.read()
    assert status is not None and status.state == "stopped"
