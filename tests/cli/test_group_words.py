"""The words and files that `tidelog group` takes, and what it says of the wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from tests.cli.conftest import Tidelog
from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.group import partitions_text
from tidelog.cli.group_file import read_offsets
from tidelog.cli.group_lag_table import GroupLag, Row, fitted_picture
from tidelog.cli.group_members import Group, Partition, classic_group
from tidelog.cli.group_target import parse_duration, parse_time
from tidelog.cli.nodes import Node

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "tidelog group --help"),
        (["list", "--state", "happy"], "--state"),
        (["list", "--type", "large"], "--type"),
        (["describe"], "GROUP"),
        (["lag"], "--all"),
        (["lag", "g", "--all"], "--all"),
        (["lag", "g", "--interval", "0"], "--interval"),
        (["delete"], "GROUP"),
        (["delete", "g", "--topic", "t:x"], "--topic t:x"),
        (["reset", "g", "--to-latest"], "--all-topics"),
        (["reset", "g", "--to-latest", "--topic", "t", "--all-topics"], "not both"),
        (["reset", "g", "--to-latest", "--topic", ":1"], "--topic :1"),
        (["reset", "g", "--all-topics"], "one of --to-earliest, --to-latest"),
        (["reset", "g", "--all-topics", "--to-latest", "--shift-by", "0"], "--to-latest and --shift-by"),
        (
            ["reset", "g", "--all-topics", "--to-offset", "0", "--to-earliest"],
            "--to-earliest and --to-offset",
        ),
        (["reset", "g", "--all-topics", "--to-offset", "-1"], "--to-offset"),
        (["reset", "g", "--all-topics", "--to-time", "noon"], "--to-time noon"),
        (["reset", "g", "--all-topics", "--to-time", "2999-01-01"], "in the future; write --to-latest"),
        (["reset", "g", "--all-topics", "--by-duration", "soon"], "--by-duration soon"),
        (["reset", "g", "--from-file", "nowhere.csv"], "nowhere.csv"),
        (["reset", "g", "--from-file", "-", "--all-topics"], "--from-file: has the partitions"),
    ],
)
def test_a_bad_word_gets_one_line_and_code_2(offline: Tidelog, words: list[str], named: str) -> None:
    ended = offline("group", *words)
    assert (ended.exit_code, ended.out) == (2, "")
    assert len(ended.error.splitlines()) == 1
    assert named in ended.error


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["describe", "g"],
        ["lag", "g"],
        ["lag", "--all", "--watch"],
        ["reset", "g", "--all-topics", "--to-latest"],
        ["delete", "g"],
        ["delete", "g", "--topic", "t"],
    ],
)
def test_a_broker_that_is_not_there_is_named_with_code_1(offline: Tidelog, words: list[str]) -> None:
    ended = offline("group", *words)
    assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (1, "", 1)
    assert "127.0.0.1:1 " in ended.error


@pytest.mark.parametrize(
    ("lines", "offsets"),
    [
        ("t,0,5\n", {("t", 0): 5}),
        (
            '"a-topic-with-a-long-name-that-is-quoted",3,5',
            {("a-topic-with-a-long-name-that-is-quoted", 3): 5},
        ),
        ("t,0,5\r\n\r\nt,1,6\r\n", {("t", 0): 5, ("t", 1): 6}),
        ("g,t,0,5\nother,t,0,9\n", {("t", 0): 5}),
        ("\ufefft, 0, 5", {("t", 0): 5}),
    ],
)
def test_files_of_kafkas_tool_are_read(tmp_path: Path, lines: str, offsets: dict[Partition, int]) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(lines.encode())
    assert read_offsets(file, "g") == offsets


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ("t,0,5\nt,1\n", "line 2: 't,1' is not topic,partition,offset"),
        ("t,0,5\n\nt,zero,5\n", "line 3: 'zero' is not a partition"),
        ("t,0,-5\n", "line 1: '-5' is not an offset"),
        ("t,0,99999999999999999999\n", "line 1: '99999999999999999999' is not an offset"),
        (",0,5\n", "line 1"),
        ("topic,partition,offset\nt,0,5\n", "line 1: 'partition' is not a partition"),
        ('"t,0,5\n', "line 1"),
        ("t,0,5\nt,0,6\n", "line 2: t,0 appears twice"),
        ("\x00\n", "line 1"),
    ],
)
def test_a_line_that_is_wrong_is_named_by_its_number(tmp_path: Path, lines: str, named: str) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(lines)
    with pytest.raises(BadWord) as refused:
        read_offsets(file, "g")
    assert f"{file} {named}" in str(refused.value)


def test_a_file_without_the_group_is_no_plan_for_it(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("other,t,0,5\n")
    with pytest.raises(Failure, match="no offsets for group 'g'"):
        read_offsets(file, "g")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadWord, match="not a text file"):
        read_offsets(file, "g")


@pytest.mark.parametrize(
    ("word", "duration_ms"),
    [
        ("5m", 300_000),
        ("PT5M", 300_000),
        ("1h30m", 5_400_000),
        ("P1DT1H", 90_000_000),
        ("7d", 604_800_000),
        ("PT0.25S", 250),
        ("0s", 0),
    ],
)
def test_a_duration_is_written_as_people_or_as_iso_do(word: str, duration_ms: int) -> None:
    assert parse_duration(word) == duration_ms


@pytest.mark.parametrize("word", ["", "P", "PT", "5", "m", "5m1h", "-5m", "PT5", "5 m"])
def test_what_is_no_duration_is_refused(word: str) -> None:
    with pytest.raises(BadWord, match="--by-duration"):
        parse_duration(word)


def test_a_time_is_utc_unless_it_says_otherwise_and_not_in_the_future() -> None:
    assert parse_time("1700000000000", NOW_MS) == 1_700_000_000_000
    assert parse_time("2023-11-14T22:13:20", NOW_MS) == 1_700_000_000_000
    assert parse_time("2023-11-14T22:13:20Z", NOW_MS) == 1_700_000_000_000
    assert parse_time("2023-11-14T23:13:20+01:00", NOW_MS) == 1_700_000_000_000
    assert parse_time(str(NOW_MS), NOW_MS) == NOW_MS
    with pytest.raises(BadWord, match="in the future"):
        parse_time(str(NOW_MS + 1), NOW_MS)


def test_partitions_in_a_row_are_written_as_a_range() -> None:
    partitions = tuple(Partition("t", number) for number in (0, 1, 2, 4, 6, 7))
    assert partitions_text((*partitions, Partition("u", 3))) == "t 0–2, 4, 6–7; u 3"
    assert partitions_text(()) == ""


def test_what_a_foreign_assignor_wrote_is_passed_over() -> None:
    class Found:
        group_id, group_state, protocol_type, protocol_data = "g", "Stable", "consumer", "own"
        member_id, client_id, client_host = "m", "c", "/10.0.0.1"
        member_metadata, member_assignment = b"", b"\x00\x00\x7f\xff\xff\xff"
        members: tuple[type, ...] = ()

    Found.members = (Found,)
    (member,) = classic_group(Found, Node(1, "h", 1, None, False)).members
    assert (member.partitions, member.subscription, member.host) == ((), (), "10.0.0.1")


def drawn(found: list[GroupLag], height: int, problem: str = "") -> list[str]:
    console = Console(width=80, height=height)
    with console.capture() as capture:
        console.print(fitted_picture(found, height, problem))
    return capture.get().splitlines()


def lagging(name: str, lags: list[int]) -> GroupLag:
    group = Group(
        name, "classic", "Stable", "consumer", "range", None, None, Node(1, "h", 1, None, False), ()
    )
    member = "reader-133ce3a0-dac5-4150-9ccb-351fa34ad4dc-which-is-long"
    rows = [Row(name, "t", number, 0, lag, lag, member, None, "c", "h") for number, lag in enumerate(lags)]
    return GroupLag(group, rows)


def test_a_table_that_is_drawn_again_stays_within_the_screen() -> None:
    one = [lagging("g", list(range(100)))]
    many = [lagging(f"g{number}", [number, 1]) for number in range(50)]
    for found in (one, many, [lagging("g", [1, 2])]):
        lines = drawn(found, 24, "no broker at x; trying again")
        assert len(lines) <= 24
        assert lines[-1] == "no broker at x; trying again"
        assert all(len(line) <= 80 for line in lines)


def test_what_lags_most_is_kept_on_a_small_screen_with_the_whole_total() -> None:
    lines = drawn([lagging("g", list(range(100)))], 24)
    assert [line.split()[4] for line in lines if line.split()[:1] == ["t"]] == [
        str(99 - n) for n in range(14)
    ]
    assert lines[-1] == "and 86 partitions that lag less"
    assert [line.split() for line in lines if "total" in line] == [["total", "4950"]]
    groups = drawn([lagging(f"g{number}", [number, 1]) for number in range(50)], 24)
    assert next(line.split() for line in groups if " g49" in line) == ["g49", "Stable", "0", "2", "50"]
