"""The checker held against recovery: what one says of a segment, the other does."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.making import NOW_MS, append, make_batch, make_settings
from tidelog.base.files import DiskDirectory
from tidelog.base.reading import ReadOnlyFolder
from tidelog.log.check.findings import Findings
from tidelog.log.check.partition import Known, PartitionCheck
from tidelog.log.directory import write_topic_id
from tidelog.log.recovery import open_log

BATCHES = 40
SETTINGS = make_settings(segment_bytes=4096, index_interval_bytes=256)
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of several segments, closed cleanly."""
    path = tmp_path_factory.mktemp("orders") / "orders-0"
    directory = DiskDirectory(str(path))
    log, _ = open_log(directory, SETTINGS, now_ms=0)
    for number in range(BATCHES):
        append(log, make_batch(1 + number % 3, value=b"x" * 100, timestamp=NOW_MS + number), now_ms=NOW_MS)
    log.close(clean=True)
    write_topic_id(directory, TOPIC_ID)
    return path


@pytest.mark.parametrize("timestamp", [-1, 0])
def test_a_log_without_times_is_well(tmp_path: Path, timestamp: int) -> None:
    path = tmp_path / "orders-0"
    directory = DiskDirectory(str(path))
    log, _ = open_log(directory, SETTINGS, now_ms=0)
    for _ in range(BATCHES):
        append(log, make_batch(1, value=b"x" * 1_000, timestamp=timestamp), now_ms=NOW_MS)
    assert len(log.segments) > 3
    log.close(clean=True)
    write_topic_id(directory, TOPIC_ID)
    findings = Findings()
    PartitionCheck(findings, ReadOnlyFolder(str(path)), Known(recovery_point=BATCHES)).run()
    assert findings.problems == []


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_recovery_cuts_exactly_where_verify_says(partition: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(partition, Path(folder) / "orders-0"))
        log = data.draw(st.sampled_from(sorted(copy.glob("*.log"))))
        content = bytearray(log.read_bytes())
        position = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[position] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del content[position:]
        log.write_bytes(content)
        findings = Findings()
        PartitionCheck(findings, ReadOnlyFolder(str(copy)), Known(recovery_point=0)).run()
        _, report = open_log(DiskDirectory(str(copy)), SETTINGS, now_ms=0)
    cuts = [problem for problem in findings.problems if problem.at_start.startswith("cut off here")]
    losses = [problem for problem in findings.problems if re.search("cut off|dropped", problem.at_start)]
    assert bool(report.problems) == bool(losses), (report, findings.problems)
    if report.problems and "dropped" not in report.problems[0]:
        name, what = report.problems[0].split(": ", 1)
        assert cuts[0].file == f"orders-0/{name}"
        assert what.startswith(f"a batch at {cuts[0].position} ")


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_no_damage_to_any_file_is_too_much(partition: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(partition, Path(folder) / "orders-0"))
        file = data.draw(st.sampled_from(sorted(copy.iterdir())))
        file.write_bytes(data.draw(st.binary(max_size=200) | st.just(file.read_bytes() * 2)))
        known = Known(was_clean=data.draw(st.booleans()))
        PartitionCheck(Findings(), ReadOnlyFolder(str(copy)), known).run()
