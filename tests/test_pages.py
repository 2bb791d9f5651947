"""What the pages under docs/ say of the source and the tests, held against both."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tidy_rules import ROOT, tracked_files

DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "tidelog"
ID = re.compile(r"\b[LRCPDO]\d{1,2}\b")
SHOWN_BY = re.compile(r"`(tests/[\w/]+\.py)`\s\(([^)]*)\)")


def rows_of(page: Path) -> list[list[str]]:
    """The cells of all rows of all tables but their heads."""
    lines = page.read_text("utf-8").splitlines()
    rows = [
        line
        for above, line in zip(["", *lines], lines, strict=False)
        if line[:2] == "| " and above[:1] == "|"
    ]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_glossary_is_in_order_and_has_each_word_once() -> None:
    words = [row[0].lower() for row in rows_of(DOCS / "glossary.md")]
    assert len(words) > 100
    assert words == sorted(set(words))


def test_the_glossary_points_to_what_there_is() -> None:
    rows = rows_of(DOCS / "glossary.md")
    assert [row for row in rows if not is_in_package(row[2].strip("`"))] == []
    assert not is_in_package("log/nowhere") and is_in_package("broker/data_plane")


def is_in_package(name: str) -> bool:
    path = PACKAGE / name
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_a_table_gives_its_rows(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# x\n\n| a | b |\n|---|---|\n| `c` | d |\n| e | f |\n\ntext\n")
    assert rows_of(page) == [["`c`", "d"], ["e", "f"]]


def guarantees() -> dict[str, list[tuple[str, str]]]:
    """By id: (file, test) for each test that is said to show it; none for what is not there yet."""
    page = (DOCS / "guarantees.md").read_text("utf-8")
    holds = {part.split(" ", 1)[0]: part for part in page.split("\n**")[1:]}
    shown = {id_: list(named_tests(text.split("\nShown by", 1)[-1])) for id_, text in holds.items()}
    missing: dict[str, list[tuple[str, str]]] = {row[0]: [] for row in rows_of(DOCS / "guarantees.md")}
    assert not shown.keys() & missing.keys()
    return {**shown, **missing}


def named_tests(text: str) -> list[tuple[str, str]]:
    return [(path, name) for path, names in SHOWN_BY.findall(text) for name in re.findall(r"`(\w+)`", names)]


def is_test(path: str, name: str) -> bool:
    return (ROOT / path).is_file() and f"def {name}(" in (ROOT / path).read_text("utf-8")


def test_what_the_source_cites_is_a_guarantee() -> None:
    pages = [path for path in tracked_files() if path.suffix in (".py", ".md") and is_ours(path)]
    cited = {id_ for path in pages for id_ in ID.findall(path.read_text("utf-8"))}
    assert len(cited) > 30
    assert sorted(cited - guarantees().keys()) == []


def is_ours(path: Path) -> bool:
    return path.is_relative_to(ROOT / "src") or path.is_relative_to(DOCS) or path.name == "ARCHITECTURE.md"


def test_every_guarantee_is_shown_by_tests_that_exist() -> None:
    shown = {id_: tests for id_, tests in guarantees().items() if id_ not in unkept()}
    assert [id_ for id_, tests in shown.items() if not tests] == []
    named = [test for tests in shown.values() for test in tests]
    assert len(named) > 80
    assert [test for test in named if not is_test(*test)] == []
    assert not is_test("tests/test_pages.py", "test_nothing") and not is_test("tests/nowhere.py", "test_x")


def unkept() -> set[str]:
    return {row[0] for row in rows_of(DOCS / "guarantees.md")}


def test_a_guarantee_that_nothing_shows_is_noticed() -> None:
    assert named_tests("Shown by nothing") == []
    assert named_tests("`tests/a.py`\n(`test_b`,\n`test_c`), `tests/d.py` (`test_e`)") == [
        ("tests/a.py", "test_b"),
        ("tests/a.py", "test_c"),
        ("tests/d.py", "test_e"),
    ]


UNFOLLOWABLE = re.compile(r"\b(?:SPEC|DESIGN|TRUST|CORE|GROWTH|HOUSE|EXACTLY_ONCE)(?:\.md\b|\s+[A-Z]?\d)")


def test_no_reference_leaves_the_repository() -> None:
    assert (
        UNFOLLOWABLE.search("(DESIGN 9)")
        and UNFOLLOWABLE.search("CORE.md")
        and UNFOLLOWABLE.search("SPEC R7")
    )
    pages = [path for path in tracked_files() if path.suffix in (".py", ".md") and is_ours(path)]
    assert [str(path) for path in pages if UNFOLLOWABLE.search(path.read_text("utf-8"))] == []
