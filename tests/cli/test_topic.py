"""`tidelog topic` against a real broker."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Tidelog
from tests.client.scripted import TOPIC, ScriptedBroker
from tests.client.told_log import ends_at


def test_a_created_topic_is_listed_and_described(tidelog: Tidelog, topic: str) -> None:
    listed = json.loads(tidelog("topic", "list", "--format", "json").out)
    assert {"topic": topic, "partitions": 1, "replication_factor": 1} in listed
    described = json.loads(tidelog("topic", "describe", topic, "--format", "json").out)
    assert described["topic"] == topic
    (partition,) = described["partitions"]
    assert (partition["log_start_offset"], partition["high_watermark"]) == (0, 0)
    assert partition["replicas"] == partition["in_sync_replicas"] == [partition["leader"]]


def test_partitions_and_settings_are_passed_on(tidelog: Tidelog, topic: str) -> None:
    name = f"{topic}-wide"
    made = tidelog("topic", "create", name, "--partitions", "3", "--config", "segment.bytes=1048576")
    assert made.exit_code == 0, made.error
    described = json.loads(tidelog("topic", "describe", name, "--format", "json").out)
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]


def test_the_end_offset_follows_what_was_produced(tidelog: Tidelog, topic: str) -> None:
    tidelog("produce", topic, stdin=b"a\nb\nc\n")
    shown = tidelog("topic", "describe", topic)
    assert shown.exit_code == 0
    assert shown.lines[3].split()[-1] == "3"


def test_a_table_is_not_cut_in_a_pipe(tidelog: Tidelog, topic: str) -> None:
    name = topic + "-" + "x" * 180
    tidelog("topic", "create", name)
    assert name in tidelog("topic", "list").out


def test_a_deleted_topic_is_gone(tidelog: Tidelog, topic: str) -> None:
    assert tidelog("topic", "delete", topic).exit_code == 0
    assert topic not in tidelog("topic", "list").out


def test_deleting_names_what_is_not_there_and_deletes_the_rest(tidelog: Tidelog, topic: str) -> None:
    ended = tidelog("topic", "delete", topic, "no-such-topic")
    assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (1, f"deleted {topic}\n", 1)
    assert "'no-such-topic'" in ended.error
    assert topic not in tidelog("topic", "list").out


def test_each_topic_that_could_not_be_deleted_has_a_line(tidelog: Tidelog, topic: str) -> None:
    ended = tidelog("topic", "delete", "no-such-a", topic, "no-such-b", "--format", "json")
    told = json.loads(ended.out)
    assert (ended.exit_code, told["deleted"]) == (1, [topic])
    assert [(row["topic"], row["error"]) for row in told["failed"]] == [
        (name, f"topic {name!r} does not exist; see 'tidelog topic list'")
        for name in ("no-such-a", "no-such-b")
    ]
    assert ended.error.splitlines() == [f"tidelog: {row['error']}" for row in told["failed"]]


def test_a_topic_that_exists_is_not_created_again(tidelog: Tidelog, topic: str) -> None:
    ended = tidelog("topic", "create", topic)
    assert (ended.exit_code, ended.error) == (1, f"tidelog: topic {topic!r} already exists\n")


@pytest.mark.parametrize(
    "words",
    [
        ["bad name"],
        ["fine", "--config", "no.such.setting=1"],
        ["fine", "--config", "segment.bytes=small"],
        ["fine", "--replication-factor", "9"],
    ],
)
def test_what_the_broker_refuses_is_one_line_and_code_2(tidelog: Tidelog, words: list[str]) -> None:
    ended = tidelog("topic", "create", *words)
    assert (ended.exit_code, len(ended.error.splitlines())) == (2, 1), ended


def test_the_setting_that_was_meant_is_named(tidelog: Tidelog, topic: str) -> None:
    for words in (["create", "fine"], ["alter", topic]):
        ended = tidelog("topic", *words, "--set", "retain.ms=1")
        assert (ended.exit_code, ended.out) == (2, "")
        assert ended.error.endswith("did you mean retention.ms?\n")


def test_internal_topics_may_be_left_out(tidelog: Tidelog, topic: str) -> None:
    tidelog("group", "describe", "no-such-group")  # the first question about a group makes their topic
    with_internal = json.loads(tidelog("topic", "list", "--format", "json").out)
    without = json.loads(tidelog("topic", "list", "--no-internal", "--format", "json").out)
    left_out = [row["topic"] for row in with_internal if row not in without]
    assert left_out == ["__consumer_offsets"] and topic in [row["topic"] for row in without]


def test_describing_nothing_says_so(tidelog: Tidelog) -> None:
    ended = tidelog("topic", "describe", "no-such-topic")
    assert (ended.exit_code, len(ended.error.splitlines())) == (1, 1)
    assert "no-such-topic" not in tidelog("topic", "list").out, "asking must not create it"


def test_a_partition_without_a_leader_is_shown_beside_the_others() -> None:
    with ScriptedBroker(list_offsets=ends_at(lambda: 7)) as broker:
        broker.partition_count, broker.leaderless = 2, {0}
        here = Tidelog(broker.bootstrap_servers)
        shown = json.loads(here("topic", "describe", TOPIC, "--format", "json").out)["partitions"]
        assert [row["leader"] for row in shown] == [-1, 1]
        assert [(row["log_start_offset"], row["high_watermark"]) for row in shown] == [(None, None), (0, 7)]
        assert here("topic", "describe", TOPIC).lines[3].split()[-2:] == ["-", "-"]
