"""`tidelog topic alter` against a real broker."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Tidelog


def partition_count(tidelog: Tidelog, topic: str) -> int:
    return len(json.loads(tidelog("topic", "describe", topic, "--format", "json").out)["partitions"])


def test_partitions_are_added_and_settings_changed(tidelog: Tidelog, topic: str) -> None:
    words = ["--partitions", "3", "--set", "segment.bytes=20000", "--unset", "retention.ms"]
    done = tidelog("topic", "alter", topic, *words)
    assert done.lines == [
        f"topic/{topic}: 3 partitions",
        f"topic/{topic}: segment.bytes=20000",
        f"topic/{topic}: retention.ms unset",
    ]
    assert partition_count(tidelog, topic) == 3
    assert tidelog("config", "get", f"topic/{topic}", "segment.bytes").out == "20000\n"


def test_a_dry_run_changes_nothing(tidelog: Tidelog, topic: str) -> None:
    words = ["--partitions", "3", "--set", "segment.bytes=20000", "--dry-run", "--format", "json"]
    tried = json.loads(tidelog("topic", "alter", topic, *words).out)
    assert (tried["topic"], tried["partitions"], tried["dry_run"]) == (topic, 3, True)
    assert partition_count(tidelog, topic) == 1
    assert tidelog("config", "get", f"topic/{topic}", "segment.bytes").out == "1073741824\n"


def test_a_wrong_setting_keeps_the_partitions_from_being_added(tidelog: Tidelog, topic: str) -> None:
    ended = tidelog("topic", "alter", topic, "--partitions", "3", "--set", "segment.bytes=x")
    assert (ended.exit_code, ended.out) == (2, "")
    assert partition_count(tidelog, topic) == 1


def test_too_few_partitions_keep_the_settings_from_being_changed(tidelog: Tidelog, topic: str) -> None:
    ended = tidelog("topic", "alter", topic, "--partitions", "1", "--set", "segment.bytes=20000")
    assert (ended.exit_code, ended.out, len(ended.error.splitlines())) == (2, "", 1)
    assert tidelog("config", "get", f"topic/{topic}", "segment.bytes").out == "1073741824\n"


@pytest.mark.parametrize("words", [["--partitions", "3"], ["--set", "retention.ms=1"]])
def test_altering_nothing_says_so(tidelog: Tidelog, words: list[str]) -> None:
    ended = tidelog("topic", "alter", "no-such-topic", *words)
    assert (ended.exit_code, len(ended.error.splitlines())) == (1, 1)
    assert "'no-such-topic' does not exist" in ended.error
