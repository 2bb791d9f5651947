"""The page that `make soak` leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import Tally, choose_seed, record


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


def test_a_sampled_run_leaves_the_page_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDELOG_SOAK", raising=False)
    record("one", Tally("passed", 4, 10, 0, 0, 7), tmp_path / "SOAK.md")
    assert not (tmp_path / "SOAK.md").exists()


def test_the_seed_of_the_environment_is_used_and_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDELOG_SEED", "42")
    assert choose_seed() == 42
    assert "TIDELOG_SEED=42" in capsys.readouterr().out
