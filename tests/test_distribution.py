"""Which process runs which test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distribution import ALONE, FIRST, JAVA, SHARED, SPARK, place_of, turn_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("node_id", "turn"),
    [
        ("tests/spark/test_lag.py::test_a", SPARK),
        ("tests/spark/pipelines/test_lake.py::test_a[1::2]", SPARK),
        ("tests/spark/test_source_kills.py::test_a", "tests/spark/test_source_kills.py::test_a"),
        ("tests/compat/java/test_java.py::test_a", JAVA),
        ("tests/compat/cluster/test_java_moves.py::test_a", JAVA),
        ("tests/compat/cluster/test_moves.py::test_a", "tests/compat/cluster/test_moves.py"),
        ("tests/log/test_log.py::test_a[1::2]", "tests/log/test_log.py"),
    ],
)
def test_what_a_session_shares_is_one_turn_and_what_shares_nothing_many(node_id: str, turn: str) -> None:
    assert turn_of(node_id) == turn


def test_what_takes_minutes_comes_before_what_takes_milliseconds() -> None:
    files = (
        "spark/test_lag.py",
        "chaos/test_chaos.py",
        "spark/test_source_kills.py",
        "chaos/test_kills.py",
        "base",
    )
    places = [place_of(f"tests/{file}::test_a") for file in files]
    assert places == sorted(places) and len({*places}) == len(places)


@pytest.mark.parametrize("start", [*ALONE, *(start for start, _ in SHARED), *FIRST])
def test_every_start_names_tests_that_there_are(start: str) -> None:
    folder, _, name = start.rpartition("/")
    assert list((ROOT / folder).glob(f"{name}*"))
