"""`tidelog group reset` and `tidelog group delete` against a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cli.test_group import (
    PROTOCOLS,
    Here,
    commit,
    group,
    here,
    lag_of,
    make_topic,
    member,
    wide,
)

__all__ = ["group", "here", "member", "wide"]  # fixtures

FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def trimmed(bootstrap_servers: str) -> str:
    """A topic of two partitions: records 0 to 9, 1,000 ms apart, of which 0 to 2 are trimmed; nothing."""
    name = make_topic(bootstrap_servers, partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(10):
        producer.produce(name, str(number), partition=0, timestamp=FIRST_MS + number * 1_000)
    assert producer.flush(60) == 0
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_records([TopicPartition(name, 0, 3)]).values():
        future.result()
    return name


@pytest.fixture
def timed(bootstrap_servers: str, trimmed: str, group: str) -> str:
    """That topic, once the group has committed 5 in its first partition."""
    commit(bootstrap_servers, group, trimmed, p0=5)
    return trimmed


def committed(here: Here, group: str) -> dict[int, int]:
    rows = lag_of(here, group)
    return {row["partition"]: row["committed_offset"] for row in rows}


def moves(here: Here, group: str, *words: str) -> list[dict[str, Any]]:
    done = here("group", "reset", group, *words, "--format", "json")
    assert done.exit_code == 0, done.error
    found = json.loads(done.out)
    assert (found["group"], found["dry_run"]) == (group, "--dry-run" in words)
    partitions: list[dict[str, Any]] = found["partitions"]
    return partitions


@pytest.mark.parametrize(
    ("words", "offset", "requested"),
    [
        (["--to-earliest"], 3, None),
        (["--to-latest"], 10, None),
        (["--to-current"], 5, None),
        (["--to-offset", "7"], 7, None),
        (["--to-offset", "0"], 3, 0),
        (["--to-offset", "700"], 10, 700),
        (["--shift-by", "2"], 7, None),
        (["--shift-by", "-1"], 4, None),
        (["--shift-by", "-4"], 3, 1),
        (["--shift-by", "100"], 10, 105),
        (["--to-time", str(FIRST_MS + 6_000)], 6, None),
        (["--to-time", "2023-11-14T22:13:27.500"], 8, None),
        (["--to-time", "2023-11-14T23:13:27.500+01:00"], 8, None),
        (["--by-duration", "36500d"], 3, None),
        (["--by-duration", "PT1M"], 10, None),
    ],
)
def test_a_group_is_moved_to_where_it_is_told(
    here: Here, timed: str, group: str, words: list[str], offset: int, requested: int | None
) -> None:
    (move,) = moves(here, group, "--all-topics", *words)
    assert (move["topic"], move["partition"], move["from_offset"]) == (timed, 0, 5)
    assert (move["to_offset"], move["requested_offset"]) == (offset, requested)
    assert committed(here, group) == {0: offset}


def test_a_dry_run_moves_nothing(here: Here, timed: str, group: str) -> None:
    assert [
        move["to_offset"] for move in moves(here, group, "--topic", timed, "--to-latest", "--dry-run")
    ] == [
        10,
        0,
    ]
    shown = here("group", "reset", group, "--topic", timed, "--to-offset", "99", "--dry-run")
    assert shown.lines[-1] == "(dry run: nothing changed)"
    assert [line.split() for line in shown.lines if line.split()[:1] == [timed]] == [
        [timed, "0", "5", "10", "99", "is", "beyond", "the", "end"],
        [timed, "1", "-", "0", "99", "is", "beyond", "the", "end"],
    ]
    assert committed(here, group) == {0: 5}


def test_only_the_named_partitions_are_moved(here: Here, timed: str, group: str) -> None:
    assert len(moves(here, group, "--topic", f"{timed}:1", "--to-latest")) == 1
    assert committed(here, group) == {0: 5, 1: 0}
    assert len(moves(here, group, "--topic", f"{timed}:0,1", "--topic", timed, "--to-earliest")) == 2
    assert committed(here, group) == {0: 3, 1: 0}


def test_offsets_go_to_a_file_and_come_back(here: Here, timed: str, group: str, tmp_path: Path) -> None:
    saved = here("group", "reset", group, "--topic", timed, "--to-current", "--dry-run", "--format", "csv")
    assert saved.out == f"{timed},0,5\n{timed},1,0\n"
    assert "nothing committed" in saved.error
    file = tmp_path / "offsets.csv"
    file.write_text(saved.out)
    moves(here, group, "--all-topics", "--to-earliest")
    assert here("group", "reset", group, "--from-file", str(file)).exit_code == 0
    assert committed(here, group) == {0: 5, 1: 0}
    from_stdin = here("group", "reset", group, "--from-file", "-", stdin=f'"{timed}",0,8\r\n'.encode())
    assert (from_stdin.exit_code, committed(here, group)) == (0, {0: 8, 1: 0})


def test_a_group_that_is_to_come_can_be_given_offsets(here: Here, timed: str, group: str) -> None:
    fresh = f"{group}-fresh"
    done = here("group", "reset", fresh, "--topic", timed, "--to-time", str(FIRST_MS + 4_000))
    assert (done.exit_code, done.lines[-1]) == (0, f"group {fresh} is new")
    assert committed(here, fresh) == {0: 4, 1: 0}


@pytest.mark.parametrize(
    ("words", "exit_code", "named"),
    [
        (["--topic", "{topic}", "--shift-by", "1"], 1, "partition 1 of '{topic}' has no committed offset"),
        (["--topic", "{topic}:7", "--to-latest"], 2, "'{topic}' has partitions 0 to 1"),
        (["--topic", "{topic}x", "--to-latest"], 1, "topic '{topic}x' does not exist"),
    ],
)
def test_what_cannot_be_reset_is_one_line(
    here: Here, timed: str, group: str, words: list[str], exit_code: int, named: str
) -> None:
    ended = here("group", "reset", group, *(word.format(topic=timed) for word in words))
    assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (exit_code, "", 1)
    assert named.format(topic=timed) in ended.error
    assert committed(here, group) == {0: 5}


def test_a_file_with_a_partition_that_is_not_there_moves_nothing(here: Here, timed: str, group: str) -> None:
    lines = f"{timed},0,7\n{timed},9,0\n".encode()
    ended = here("group", "reset", group, "--from-file", "-", stdin=lines)
    assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (1, "", 1)
    assert f"partition 9 of {timed!r} does not exist" in ended.error
    assert committed(here, group) == {0: 5}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_with_members_is_left_alone(here: Here, wide: str, group: str, member: Consumer) -> None:
    for words in (["reset", group, "--all-topics", "--to-latest"], ["delete", group]):
        ended = here("group", *words)
        assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (1, "", 1)
        assert f"group {group!r} has 1 member: porter (client lobby at " in ended.error
        assert f"then {words[0]} it" in ended.error
    ended = here("group", "delete", group, "--topic", wide)
    assert (ended.exit_code, len(ended.error.splitlines())) == (1, 1)
    assert f"subscribed to {wide!r}" in ended.error
    shown = here("group", "reset", group, "--all-topics", "--to-latest", "--dry-run")
    assert shown.lines[-1] == "(dry run: nothing changed; refused while the group has members)"
    assert committed(here, group)[0] == 4
    assert member.memberid()


def test_a_deleted_group_is_gone(here: Here, bootstrap_servers: str, timed: str, group: str) -> None:
    commit(bootstrap_servers, f"{group}-b", timed, p0=1)
    assert here("group", "delete", group, f"{group}-b").out == f"deleted {group}, {group}-b\n"
    names = [row["group"] for row in json.loads(here("group", "list", "--format", "json").out)]
    assert not {group, f"{group}-b"} & set(names)


def test_what_can_be_deleted_is_deleted_though_another_cannot(here: Here, timed: str, group: str) -> None:
    ended = here("group", "delete", f"{group}-not", group)
    assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (1, f"deleted {group}\n", 1)
    assert f"{group}-not" in ended.error
    assert here("group", "describe", group).exit_code == 1
    assert timed


def test_offsets_are_deleted_though_another_group_has_none(here: Here, timed: str, group: str) -> None:
    ended = here("group", "delete", f"{group}-not", group, "--topic", timed, "--format", "json")
    assert (ended.exit_code, len(ended.error.splitlines())) == (1, 1)
    assert [row["group"] for row in json.loads(ended.out)["deleted_offsets"]] == [group]
    assert f"{group}-not" in ended.error


def test_the_offsets_of_one_topic_can_be_deleted(
    here: Here, bootstrap_servers: str, timed: str, group: str
) -> None:
    other = make_topic(bootstrap_servers, partitions=3)
    commit(bootstrap_servers, group, other, p0=0, p1=0, p2=0)
    words = ("group", "delete", group, "--topic", f"{other}:0,2", "--format", "json")
    assert json.loads(here(*words).out) == {
        "deleted_offsets": [
            {"group": group, "topic": other, "partition": number, "deleted_offset": 0} for number in (0, 2)
        ]
    }
    assert [(row["topic"], row["partition"]) for row in lag_of(here, group)] == sorted(
        [(timed, 0), (other, 1)]
    )
    again = here("group", "delete", group, "--topic", f"{other}:0")
    assert (again.exit_code, len(again.error.splitlines())) == (1, 1)
    assert f"has no committed offsets in {other}:0" in again.error
