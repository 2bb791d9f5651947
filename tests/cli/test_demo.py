"""`tidelog demo`: the whole of it, smaller than by default, and that it would notice what is wrong."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, Tidelog
from tests.soak import is_soak
from tidelog.cli.demo import PORTION_MS, in_portions
from tidelog.cli.demo_check import Finding

DEMO_SECONDS_MAX = 900


@pytest.mark.soak
@pytest.mark.skipif(
    not is_soak(), reason="two minutes of Spark: in the soak, and whenever `make demo` is run"
)
@pytest.mark.timeout(DEMO_SECONDS_MAX + 60)
def test_the_demo_finds_everything_after_the_kill_and_leaves_the_report_alone(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")
    words = ["demo", "--events", "1000", "--timeout", str(DEMO_SECONDS_MAX), "--format", "json"]
    done = subprocess.run([*COMMAND, *words], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    facts = json.loads(done.stdout)
    assert facts["is_complete"] and facts["killed_after"] > 1000
    assert all(check["expected"] == pytest.approx(check["found"]) for check in facts["checks"])
    assert {"table events: activity.orders", "table live: windows"} <= {c["what"] for c in facts["checks"]}
    # kio draws hypothesis in where that is installed, which leaves a folder of its own.
    assert {path.name for path in tmp_path.iterdir()} - {".hypothesis"} == {"tidelog-demo"}
    assert all((tmp_path / path).stat().st_size > 1000 for path in facts["reports"] + facts["pictures"])
    assert len(facts["reports"]) == 2 and len(facts["pictures"]) > 5


def test_a_directory_that_is_in_use_is_refused(offline: Tidelog, tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    ended = offline("demo", "--dir", str(tmp_path))
    assert (ended.exit_code, len(ended.error.splitlines())) == (2, 1)
    assert str(tmp_path) in ended.error


@pytest.mark.parametrize(
    ("finding", "is_well"),
    [
        (Finding("rows", 10, 10), True),
        (Finding("rows", 10, 9), False),
        (Finding("rows", 10, 11), False),
        (Finding("rows", 10, 10, doubled=1), False),
        (Finding("records", 10, 10, doubled=1, may_double=True), True),
        (Finding("records", 10, 9, doubled=1, may_double=True), False),
        (Finding("sum", 1e9, 1e9 + 0.5), True),
        (Finding("sum", 1e9, 1e9 + 5), False),
    ],
)
def test_a_row_too_few_or_too_many_is_noticed(finding: Finding, is_well: bool) -> None:
    assert finding.is_well is is_well


def test_no_portion_spans_more_of_the_day_than_a_stream_tolerates() -> None:
    records = [("t", b"", b"", at) for at in range(0, 10 * PORTION_MS, PORTION_MS // 7)]
    portions = list(in_portions(records))
    assert [record for portion in portions for record in portion] == records
    assert all(portion[-1][3] - portion[0][3] < PORTION_MS for portion in portions)
