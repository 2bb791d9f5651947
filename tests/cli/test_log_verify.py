"""`tidelog log verify`: what it prints, what it takes, and its exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.files import batches_of, segments
from tests.cli.conftest import Tidelog
from tests.log.check.directories import FIRST, RECORDS, SETTINGS, fill, flip, tear, write_directory
from tidelog.testing.process import BrokerProcess


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_directory(tmp_path_factory.mktemp("verify"))


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(written, tmp_path / "data"))


def test_a_broker_s_directory_is_well(offline: Tidelog, written: Path) -> None:
    shown = offline("log", "verify", str(written), "--format", "json")
    assert (shown.exit_code, shown.error) == (0, "")
    verdict: dict[str, Any] = json.loads(shown.out)
    assert verdict["problems"] == verdict["in_use"] == []
    assert (verdict["partitions"], verdict["records"]) == (2, RECORDS)
    logs = segments(written / "checked-0")
    assert verdict["segments"] == len(logs) + 1
    assert verdict["batches"] == sum(len(batches_of(path)) for path in logs)
    assert verdict["size"] == sum(path.stat().st_size for path in logs)


def test_one_partition_can_be_checked_alone_or_with_others(offline: Tidelog, written: Path) -> None:
    both = [str(written / "checked-0"), str(written / "checked-1")]
    assert "no problems in 1 partition," in offline("log", "verify", both[0]).out
    assert "no problems in 2 partitions," in offline("log", "verify", *both).out


def test_verifying_changes_nothing(offline: Tidelog, copy: Path) -> None:
    tear(copy / "checked-0")
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert offline("log", "verify", str(copy)).exit_code == 1
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_a_directory_in_use_is_checked_and_said_to_be(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        tidelog = Tidelog(broker.bootstrap_servers)
        fill(broker.bootstrap_servers)
        ended = tidelog("log", "verify", str(tmp_path / "data"), "--format", "json")
        assert (ended.exit_code, len(ended.error.splitlines())) == (0, 1)
        assert "in use by a broker" in ended.error
        assert json.loads(ended.out)["in_use"] == [str(tmp_path / "data")]
        tidelog("produce", "checked", stdin=b"still at work\n")


@pytest.mark.parametrize("word", ["nowhere", "empty", "file"])
def test_what_is_no_log_directory_is_a_bad_word(offline: Tidelog, tmp_path: Path, word: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    ended = offline("log", "verify", str(tmp_path / word))
    assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (2, "", 1)
    assert word in ended.error


def test_what_is_no_log_directory_keeps_no_other_from_being_checked(
    offline: Tidelog, written: Path, tmp_path: Path
) -> None:
    ended = offline("log", "verify", str(tmp_path / "missing"), str(written), "--format", "json")
    assert (ended.exit_code, len(ended.error.splitlines())) == (2, 1)
    assert json.loads(ended.out)["records"] == RECORDS


def test_each_problem_is_a_line_and_the_last_line_counts_them(offline: Tidelog, copy: Path) -> None:
    flip(segments(copy / "checked-0")[0], 100)
    flip(segments(copy / "checked-0")[1], 100)
    shown = offline("log", "verify", str(copy))
    assert (shown.exit_code, len(shown.lines)) == (1, 3)
    assert shown.lines[0].startswith(f"checked-0/{FIRST}.log at 0 (offset 0): checksum does not match;")
    assert shown.lines[2].startswith("2 problems in 2 partitions, ")
