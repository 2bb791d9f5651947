"""What a person sees when something is wrong: one line, the right exit code, never a traceback."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from typer.main import get_command

from tests.cli.conftest import Tidelog
from tidelog import __version__
from tidelog.cli.commands import app
from tidelog.cli.completion import PROGRAM


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_every_command(offline: Tidelog, words: list[str]) -> None:
    shown = offline(*words)
    assert shown.exit_code == 0
    commands = [
        "serve",
        "topic",
        "produce",
        "consume",
        "config",
        "broker",
        "cluster",
        "log",
        "demo",
        "completion",
    ]
    places = [shown.out.index(f"│ {command} ") for command in commands]
    assert places == sorted(places)


def test_the_version_is_told_by_the_command_and_by_the_module(offline: Tidelog) -> None:
    told = offline("--version")
    assert (told.exit_code, told.out) == (0, f"tidelog {__version__}\n")
    words = [sys.executable, "-m", "tidelog", "--version"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == told.out
    for words in (["--version", "topic", "list"], ["--version", "--help"]):
        told = offline(*words)
        assert (told.exit_code, told.out, told.error) == (0, f"tidelog {__version__}\n", "")
    assert "--version" in offline("--help").out


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
        (["topic", "create", "t", "--partitions", "1000000"], "--partitions 1000000"),
        (["topic", "alter", "t"], "--partitions N"),
        (["topic", "alter", "t", "--partitions", "0"], "--partitions"),
        (["topic", "alter", "t", "--set", "x"], "--set x"),
        (["topic", "alter", "t", "--unset", "x=y"], "--unset x=y"),
        (["topic", "trim", "t"], "--before"),
        (["topic", "trim", "t", "--before", "then"], "--before then"),
        (["topic", "list", "--format", "xml"], "--format"),
        (["config", "get", "orders", "x"], "orders: not a resource"),
        (["config", "get", "broker/one", "x"], "broker/one"),
        (["config", "get", "topic/t"], "KEY"),
        (["config", "set", "topic/t"], "nothing to change"),
        (["config", "set", "topic/t", "x"], "x: not a setting"),
        (["config", "set", "topic/t", "x=1", "--unset", "x"], "x: named twice"),
        (["broker", "describe", "one"], "ID"),
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
        ["topic", "alter", "t", "--partitions", "2"],
        ["topic", "trim", "t", "--before", "latest"],
        ["config", "describe", "topic/t"],
        ["config", "get", "broker/1", "x"],
        ["config", "set", "topic/t", "x=1"],
        ["config", "list"],
        ["broker", "list"],
        ["broker", "describe"],
        ["produce", "t"],
        ["consume", "t"],
        ["txn", "list"],
        ["txn", "describe", "t"],
        ["txn", "find-hanging"],
        ["txn", "abort", "--topic", "t", "--partition", "0", "--start-offset", "0"],
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


def test_every_command_has_an_example_in_its_help() -> None:
    groups = [(PROGRAM, get_command(app))]
    without = []
    while groups:
        path, command = groups.pop()
        inner = getattr(command, "commands", {})
        groups += [(f"{path} {name}", found) for name, found in inner.items()]
        if not inner and path != "tidelog serve" and f"$ {path}" not in (command.epilog or ""):
            without.append(path)
    assert without == []


def test_what_does_not_speak_the_protocol_is_named(offline: Tidelog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with offline.start("broker", "list", "--bootstrap-server", address) as process:
            try:
                connection, _ = server.accept()
                with connection:
                    connection.recv(1024)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                out, error = process.communicate(timeout=240)
            finally:
                process.kill()
    assert (process.returncode, out, len(error.splitlines())) == (1, b"", 1)
    assert address in error.decode()
