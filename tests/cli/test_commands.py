"""What a person sees when something is wrong: one line, the right exit code, never a traceback."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Tidelog


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_every_command(offline: Tidelog, words: list[str]) -> None:
    shown = offline(*words)
    assert shown.exit_code == 0
    for command in ("serve", "topic", "produce", "consume", "log", "demo"):
        assert f" {command} " in shown.out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["bogus"], "bogus"),
        (["topic"], "tidelog topic --help"),
        (["topic", "bogus"], "bogus"),
        (["topic", "list", "--bogus"], "--bogus"),
        (["topic", "create"], "TOPIC"),
        (["topic", "create", "t", "--partitions", "many"], "--partitions"),
        (["topic", "create", "t", "--partitions", "0"], "--partitions 0"),
        (["topic", "create", "t", "--replication-factor", "-2"], "--replication-factor -2"),
        (["topic", "create", "t", "--set", "x"], "--set x"),
        (["topic", "list", "--format", "xml"], "--format"),
        (["topic", "list", "--bootstrap-server", "nonsense:port"], "nonsense:port"),
        (["consume", "t", "--from", "somewhere"], "--from somewhere"),
        (["consume", "t", "--count", "0"], "--count"),
        (["consume", "t", "--isolation", "x"], "--isolation"),
        (["produce", "t", "--header", "x"], "--header x"),
        (["produce", "t", "--key-delimiter", ""], "--key-delimiter"),
        (["produce", "t", "--acks", "2"], "--acks"),
        (["log", "dump", "nowhere.log"], "nowhere.log"),
        (["log", "dump", "x.jpeg"], "x.jpeg"),
    ],
)
def test_a_bad_word_gets_one_line_and_code_2(offline: Tidelog, words: list[str], named: str) -> None:
    ended = offline(*words)
    assert (ended.exit_code, ended.out) == (2, "")
    assert len(ended.error.splitlines()) == 1
    assert named in ended.error


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "list"],
        ["topic", "create", "t"],
        ["topic", "describe", "t"],
        ["topic", "delete", "t"],
        ["produce", "t"],
        ["consume", "t"],
    ],
)
def test_a_broker_that_is_not_there_is_named_with_code_1(offline: Tidelog, words: list[str]) -> None:
    ended = offline(*words)
    assert (ended.exit_code, ended.out) == (1, "")
    assert len(ended.error.splitlines()) == 1
    assert "127.0.0.1:1 " in ended.error


def test_an_address_on_the_command_line_wins_over_the_environment(offline: Tidelog) -> None:
    ended = offline("topic", "list", "--bootstrap-server", "127.0.0.1:2")
    assert "127.0.0.1:2 " in ended.error
