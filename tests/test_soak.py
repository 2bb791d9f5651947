"""The page that `make soak` leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import FuzzTally, Tally, choose_seed, record, record_chaos, record_fuzzing


def test_a_suite_s_row_is_replaced_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_SOAK", "1")
    page = tmp_path / "SOAK.md"
    record("one", Tally("passed", 60, 1_000, 0, 0, 7), page)
    record("two", Tally("passed", 5, 50, 0, 0, 8), page)
    record("one", Tally("passed", 61, 2_000, 0, 0, 9), page)
    rows = [line for line in page.read_text().splitlines() if line.startswith(("| one", "| two"))]
    assert [row.split("|")[1:4] for row in rows] == [
        [" one ", " passed ", " 61 "],
        [" two ", " passed ", " 5 "],
    ]


def test_what_was_fuzzed_stands_behind_the_suites_and_each_leaves_the_other_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_SOAK", "1")
    page = tmp_path / "SOAK.md"
    record("one", Tally("passed", 60, 1_000, 0, 0, 7), page)
    record_fuzzing([FuzzTally("old", "failed", 1, 1, 1, 1, 1, 1)], page)
    request = FuzzTally("request", "passed", 2_000, 10, 300, 0, 70, 5)
    batch = FuzzTally("batch", "failed", 1_000, 5, 20, 1, 80, 5)
    record_fuzzing([request, batch], page)
    record("two", Tally("passed", 5, 50, 0, 0, 8), page)
    rows = [line.split("|")[1:-3] for line in page.read_text().splitlines() if line.startswith("| ")]
    assert [[word.strip() for word in row[:3]] for row in rows] == [
        ["suite", "outcome", "kills"],
        ["one", "passed", "60"],
        ["two", "passed", "5"],
        ["target", "outcome", "inputs"],
        ["request", "passed", "2,000"],
        ["batch", "failed", "1,000"],
        ["all", "failed", "3,000"],
    ]


def test_what_chaos_counted_stands_between_them_and_is_replaced_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_SOAK", "1")
    page = tmp_path / "SOAK.md"
    record("one", Tally("passed", 60, 1_000, 0, 0, 7), page)
    record_fuzzing([FuzzTally("request", "passed", 2_000, 10, 300, 0, 70, 5)], page)
    record_chaos({"old": 1}, {}, {"lost-write": 1}, page)
    record_chaos({"kill-leader": 3, "drop": 1_000}, {"drop": 4.04}, {"lost-write": 0}, page)
    record("two", Tally("passed", 5, 50, 0, 0, 8), page)
    record_fuzzing([FuzzTally("batch", "passed", 2_000, 10, 300, 0, 70, 5)], page)
    rows = [line.split("|")[1:-1] for line in page.read_text().splitlines() if line.startswith("| ")]
    assert [[word.strip() for word in row[:3]] for row in rows] == [
        ["suite", "outcome", "kills"],
        ["one", "passed", "60"],
        ["two", "passed", "5"],
        ["fault", "times", "seconds"],
        ["drop", "1,000", "4.0"],
        ["kill-leader", "3", ""],
        ["all", "1,003", ""],
        ["anomaly", "seen"],
        ["lost-write", "0"],
        ["target", "outcome", "inputs"],
        ["batch", "passed", "2,000"],
        ["all", "passed", "2,000"],
    ]


def test_a_sampled_run_leaves_the_page_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDELOG_SOAK", raising=False)
    record("one", Tally("passed", 4, 10, 0, 0, 7), tmp_path / "SOAK.md")
    record_chaos({"drop": 1}, {}, {}, tmp_path / "SOAK.md")
    assert not (tmp_path / "SOAK.md").exists()


def test_the_seed_of_the_environment_is_used_and_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDELOG_SEED", "42")
    assert choose_seed() == 42
    assert "TIDELOG_SEED=42" in capsys.readouterr().out
