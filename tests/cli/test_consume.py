"""`tidelog consume` against a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, Tidelog
from tidelog.testing.process import BrokerProcess


@pytest.fixture
def ten(tidelog: Tidelog, topic: str) -> str:
    """A topic with the records 0 to 9, whose timestamps are 1,000 ms apart."""
    lines = [json.dumps({"value": str(number), "timestamp": at(number)}) for number in range(10)]
    assert tidelog("produce", topic, "--format", "json", stdin="\n".join(lines).encode()).exit_code == 0
    return topic


def at(number: int) -> int:
    return 1_700_000_000_000 + number * 1_000


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 0),
        ("latest", 10),
        ("0", 0),
        ("7", 7),
        ("10", 10),
        ("-3", 7),
        ("-99", 0),
        (f"@{at(4)}", 4),
        (f"@{at(4) + 1}", 5),
        ("@1000", 0),
        ("@2040-01-01", 10),
        ("@2023-11-14T22:13:26Z", 6),
    ],
)
def test_reading_starts_where_it_is_told(tidelog: Tidelog, ten: str, start: str, first: int) -> None:
    shown = tidelog("consume", ten, "--from", start, "--exit")
    assert (shown.exit_code, shown.error) == (0, "")
    assert shown.lines == [str(number) for number in range(first, 10)]


def test_count_ends_it(tidelog: Tidelog, ten: str) -> None:
    assert tidelog("consume", ten, "--count", "3").lines == ["0", "1", "2"]
    assert tidelog("consume", ten, "--count", "99", "-e", "--from", "-2").lines == ["8", "9"]


def test_one_partition_of_several_can_be_chosen(tidelog: Tidelog, topic: str) -> None:
    name = f"{topic}-two"
    tidelog("topic", "create", name, "--partitions", "2")
    tidelog("produce", name, "--partition", "0", stdin=b"zero\n")
    tidelog("produce", name, "--partition", "1", stdin=b"one\n")
    assert tidelog("consume", name, "-e", "--partition", "1").lines == ["one"]
    assert sorted(tidelog("consume", name, "-e").lines) == ["one", "zero"]


def test_the_json_line_holds_all_of_a_record(tidelog: Tidelog, topic: str) -> None:
    tidelog("produce", topic, "--key-delimiter", ":", "--header", "a=b", stdin=b"k:\xff\n")
    record = json.loads(tidelog("consume", topic, "-e", "--format", "json").out)
    assert isinstance(record.pop("timestamp"), int)
    assert record == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "key": "k",
        "value": {"base64": "/w=="},
        "headers": [["a", "b"]],
    }


def test_keys_are_printed_when_asked_for(tidelog: Tidelog, topic: str) -> None:
    tidelog("produce", topic, "--key-delimiter", ":", stdin=b"k:v\nbare\n")
    assert tidelog("consume", topic, "-e", "--key-delimiter", "=").lines == ["k=v", "=bare"]


@pytest.mark.parametrize(
    ("words", "exit_code"), [(["--partition", "5"], 2), (["--from", "11"], 1), (["--from", "x"], 2)]
)
def test_what_is_not_there_is_one_line(tidelog: Tidelog, ten: str, words: list[str], exit_code: int) -> None:
    ended = tidelog("consume", ten, "-e", *words)
    assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (exit_code, "", 1)


def test_a_topic_that_is_not_there_is_named_and_not_created(tidelog: Tidelog) -> None:
    ended = tidelog("consume", "no-such-topic", "-e")
    assert (ended.exit_code, len(ended.error.splitlines())) == (1, 1)
    assert "no-such-topic" not in tidelog("topic", "list").out


def test_without_exit_it_waits_for_more_and_ctrl_c_ends_it_quietly(tidelog: Tidelog, ten: str) -> None:
    with tidelog.start("consume", ten, "--from", "-1") as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline() == b"9\n"
            tidelog("produce", ten, stdin=b"later\n")
            assert process.stdout.readline() == b"later\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 130
            assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
        finally:
            process.kill()


def test_a_reader_that_has_seen_enough_ends_it_quietly(tidelog: Tidelog, topic: str) -> None:
    lines = b"".join(b"%0100d\n" % number for number in range(20_000))
    assert tidelog("produce", topic, stdin=lines).exit_code == 0
    with tidelog.start("consume", topic) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(120) == 0
            assert process.stderr.read() == b""
        finally:
            process.kill()


def test_no_topic_of_groups_comes_of_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        here = Tidelog(broker.bootstrap_servers)
        assert here("produce", "read", stdin=b"x\n").exit_code == 0
        assert here("consume", "read", "--exit").lines == ["x"]
        assert here("topic", "describe", "read").exit_code == 0
        assert here("topic", "trim", "read", "--before", "latest").exit_code == 0
        listed = json.loads(here("topic", "list", "--format", "json").out)
        assert [row["topic"] for row in listed] == ["read"]


def test_a_broker_that_goes_away_for_good_ends_it_with_its_address(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        tidelog = Tidelog(broker.bootstrap_servers)
        tidelog("produce", "gone", stdin=b"x\n")
        with subprocess.Popen(
            [*COMMAND, "consume", "gone"],
            env=tidelog.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                assert process.stdout is not None and process.stderr is not None
                assert process.stdout.readline() == b"x\n"
                broker.kill()
                assert process.wait(60) == 1
                said = process.stderr.read().decode().splitlines()
                assert len(said) == 1 and broker.bootstrap_servers in said[0]
            finally:
                process.kill()
