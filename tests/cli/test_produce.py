"""`tidelog produce` against a real broker, read back by `tidelog consume`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Tidelog


def read(tidelog: Tidelog, topic: str) -> list[dict[str, Any]]:
    shown = tidelog("consume", topic, "-e", "--format", "json")
    assert shown.exit_code == 0, shown.error
    return [json.loads(line) for line in shown.lines]


def test_lines_of_stdin_become_records(tidelog: Tidelog, topic: str) -> None:
    done = tidelog("produce", topic, stdin=b"one\ntwo\n\nfour")
    assert (done.exit_code, done.out) == (0, "")
    assert done.error.startswith("4 records in ")
    assert [record["value"] for record in read(tidelog, topic)] == ["one", "two", "", "four"]
    assert {record["key"] for record in read(tidelog, topic)} == {None}


def test_lines_of_a_file_become_records(tidelog: Tidelog, topic: str, lines_file: Path) -> None:
    assert tidelog("produce", topic, str(lines_file)).exit_code == 0
    assert [record["value"] for record in read(tidelog, topic)] == ["one", "two", "three"]


def test_keys_headers_and_nulls_are_set(tidelog: Tidelog, topic: str) -> None:
    words = ["--key-delimiter", ":", "--null", "NULL", "--header", "a=b", "--header", "a="]
    done = tidelog("produce", topic, *words, stdin=b"k:v:w\nk:NULL\nNULL:v\nbare\n")
    assert done.exit_code == 0, done.error
    records = read(tidelog, topic)
    assert [(record["key"], record["value"]) for record in records] == [
        ("k", "v:w"),
        ("k", None),
        (None, "v"),
        (None, "bare"),
    ]
    assert all(record["headers"] == [["a", "b"], ["a", ""]] for record in records)


def test_what_consume_prints_as_json_produce_takes(tidelog: Tidelog, topic: str) -> None:
    lines = (
        b'{"key": "k", "value": {"base64": "/w=="}, "headers": [["h", null]], "timestamp": 1700000000000}\n'
        b'\n{"key": null, "value": "\\u00e4"}\n'
    )
    assert tidelog("produce", topic, "--format", "json", stdin=lines).exit_code == 0
    first = tidelog("consume", topic, "-e", "--format", "json")
    assert tidelog("produce", topic, "--format", "json", stdin=first.out.encode()).exit_code == 0
    records = read(tidelog, topic)
    assert records[0]["timestamp"] == 1_700_000_000_000
    assert records[0]["headers"] == [["h", None]]
    contents = [
        {name: record[name] for name in ("key", "value", "headers", "timestamp")} for record in records
    ]
    assert contents[:2] == contents[2:]


@pytest.mark.parametrize(
    ("codec", "acks"),
    [
        ("none", "0"),
        ("none", "1"),
        ("none", "all"),
        ("gzip", "all"),
        ("snappy", "1"),
        ("lz4", "0"),
        ("zstd", "all"),
    ],
)
def test_every_codec_and_acks_arrives(tidelog: Tidelog, topic: str, codec: str, acks: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(200))
    done = tidelog("produce", topic, "--compression", codec, "--acks", acks, stdin=lines)
    assert done.exit_code == 0, done.error
    shown = tidelog("consume", topic, "--count", "200")
    assert shown.out.encode() == lines


def test_a_copy_may_have_fewer_partitions(tidelog: Tidelog, topic: str) -> None:
    wide, narrow = f"{topic}-wide", f"{topic}-narrow"
    for name, count in ((wide, 6), (narrow, 2)):
        assert tidelog("topic", "create", name, "--partitions", str(count)).exit_code == 0
    keyed = "".join(f"k{number % 20}:{number}\n" for number in range(100))
    tidelog("produce", wide, "--key-delimiter", ":", stdin=keyed.encode())
    shown = tidelog("consume", wide, "-e", "--format", "json")
    copied = tidelog("produce", narrow, "--format", "json", stdin=shown.out.encode())
    assert copied.exit_code == 0
    assert "records of higher partitions are placed by key" in copied.error
    before, after = [json.loads(line) for line in shown.lines], read(tidelog, narrow)
    assert len(after) == 100
    for key in {record["key"] for record in before}:
        placed = [(record["partition"], record["value"]) for record in after if record["key"] == key]
        was = [(record["partition"], record["value"]) for record in before if record["key"] == key]
        assert [value for _, value in placed] == [value for _, value in was], "the order of a key is kept"
        assert len({partition for partition, _ in placed}) == 1
        if was[0][0] < 2:
            assert placed == was, "a partition that both have is kept"


def test_a_bad_json_line_is_named_and_those_before_it_are_sent(tidelog: Tidelog, topic: str) -> None:
    ended = tidelog("produce", topic, "--format", "json", stdin=b'{"value": "a"}\n{"value": 1}\n')
    assert ended.exit_code == 2
    assert "line 2, value" in ended.error
    assert [record["value"] for record in read(tidelog, topic)] == ["a"]


def test_a_partition_that_is_not_there_is_refused(tidelog: Tidelog, topic: str) -> None:
    ended = tidelog("produce", topic, "--partition", "4", stdin=b"x\n")
    assert (ended.exit_code, len(ended.error.splitlines())) == (2, 1)


def test_a_record_that_is_too_large_fails_the_command(tidelog: Tidelog, topic: str) -> None:
    ended = tidelog("produce", topic, stdin=b"small\n" + b"x" * 1_200_000 + b"\n")
    assert ended.exit_code == 1
    assert "1 records were not delivered" in ended.error
    assert [record["value"] for record in read(tidelog, topic)] == ["small"]


def test_a_missing_file_is_named(tidelog: Tidelog, topic: str) -> None:
    ended = tidelog("produce", topic, "no/such/file")
    assert (ended.exit_code, len(ended.error.splitlines())) == (2, 1)
    assert "no/such/file" in ended.error


def test_an_invalid_topic_name_is_refused(tidelog: Tidelog) -> None:
    ended = tidelog("produce", "bad name", stdin=b"x\n")
    assert (ended.exit_code, len(ended.error.splitlines())) == (2, 1)
