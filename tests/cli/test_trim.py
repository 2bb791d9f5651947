"""`tidelog topic trim` against a real broker."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Tidelog

FIRST_MS = 1_700_000_000_000


@pytest.fixture
def ten(tidelog: Tidelog, topic: str) -> str:
    """A topic of two partitions; the first has the records 0 to 9, 1,000 ms apart."""
    assert tidelog("topic", "alter", topic, "--partitions", "2").exit_code == 0
    lines = [json.dumps({"value": str(n), "timestamp": FIRST_MS + n * 1_000}) for n in range(10)]
    words = ["produce", topic, "--format", "json", "--partition", "0"]
    assert tidelog(*words, stdin="\n".join(lines).encode()).exit_code == 0
    return topic


@pytest.mark.parametrize(
    ("where", "first"),
    [
        ("0:4", 4),
        ("-3", 7),
        ("latest", 10),
        ("earliest", 0),
        (f"@{FIRST_MS + 5_000}", 5),
        ("0:latest", 10),
    ],
)
def test_records_before_the_place_are_gone(tidelog: Tidelog, ten: str, where: str, first: int) -> None:
    done = tidelog("topic", "trim", ten, "--before", where, "--format", "json")
    assert done.exit_code == 0, done.error
    trimmed = json.loads(done.out)
    assert (trimmed["topic"], trimmed["dry_run"]) == (ten, False)
    assert trimmed["partitions"][0] == {"partition": 0, "deleted_offsets": first, "log_start_offset": first}
    assert tidelog("consume", ten, "--exit").lines == [str(number) for number in range(first, 10)]


def test_a_dry_run_deletes_nothing(tidelog: Tidelog, ten: str) -> None:
    shown = tidelog("topic", "trim", ten, "--before", "latest", "--dry-run")
    assert shown.lines[-1] == "(dry run: nothing deleted)"
    assert len(tidelog("consume", ten, "--exit").lines) == 10


def test_each_partition_can_have_a_place_of_its_own(tidelog: Tidelog, ten: str) -> None:
    tidelog("produce", ten, "--partition", "1", stdin=b"x\ny\n")
    assert tidelog("topic", "trim", ten, "--before", "0:8", "--before", "1:1").exit_code == 0
    assert sorted(tidelog("consume", ten, "--exit").lines) == ["8", "9", "y"]


@pytest.mark.parametrize(
    ("words", "exit_code", "named"),
    [
        (["--before", "5"], 1, "partition 1 "),
        (["--before", "0:11"], 1, "offsets 0 to 10"),
        (["--before", "7:1"], 2, "partitions 0 to 1"),
        (["--before", "0:1", "--before", "latest"], 2, "partition 0 is named twice"),
        (["--before", "0:x"], 2, "--before x"),
    ],
)
def test_what_cannot_be_is_one_line(
    tidelog: Tidelog, ten: str, words: list[str], exit_code: int, named: str
) -> None:
    ended = tidelog("topic", "trim", ten, *words)
    assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (exit_code, "", 1)
    assert named in ended.error
    assert len(tidelog("consume", ten, "--exit").lines) == 10


def test_a_compacted_topic_is_not_trimmed(tidelog: Tidelog, topic: str) -> None:
    name = f"{topic}-compacted"
    tidelog("topic", "create", name, "--set", "cleanup.policy=compact")
    ended = tidelog("topic", "trim", name, "--before", "latest")
    assert (ended.exit_code, len(ended.error.splitlines())) == (1, 1)
    assert "a policy forbids it" in ended.error
