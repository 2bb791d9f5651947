"""`tidelog serve`: what it passes on, and how little it loads."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, Tidelog
from tidelog.cli.failure import BadWord
from tidelog.cli.serve import collect_properties
from tidelog.testing.process import BrokerProcess

_LOOK = """
import sys
import tidelog.server.foreground as server
server.run = lambda properties: 0
from tidelog.cli.main import main
code = main(["serve", "-o", "node.id=3"])
print(code, [name for name in ("typer", "rich", "confluent_kafka") if name in sys.modules])
"""


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nlog.dirs=x\n")
    words = ["-o", "node.id=2", "--config", str(file), "-o", "a=b"]
    assert collect_properties(words) == {"node.id": "2", "log.dirs": "x", "a": "b"}


@pytest.mark.parametrize("words", [["--bogus"], ["stray"], ["--config"], ["-o"], ["--conf", "x"]])
def test_a_bad_word_is_refused(words: list[str]) -> None:
    with pytest.raises(BadWord, match="see 'tidelog serve --help'"):
        collect_properties(words)


def test_a_port_is_short_for_a_listener_of_the_loopback(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=3\nlisteners=PLAINTEXT://127.0.0.1:1\n")
    assert collect_properties(["--config", str(file), "--port", "9095"]) == {
        "node.id": "3",
        "listeners": "PLAINTEXT://127.0.0.1:9095",
    }


@pytest.mark.parametrize(
    "words", [["--port", "x"], ["--port", "65536"], ["--port", "1", "-o", "listeners=PLAINTEXT://:2"]]
)
def test_a_port_that_cannot_be_is_refused(words: list[str]) -> None:
    with pytest.raises(BadWord, match="--port"):
        collect_properties(words)


@pytest.mark.parametrize(
    ("setting", "meant"),
    [
        ("nod.id=1", "node.id"),
        ("retention.ms=1", "log.retention.ms"),
        ("replication.factor=3", "default.replication.factor"),
    ],
)
def test_the_setting_that_was_meant_is_named(
    offline: Tidelog, tmp_path: Path, setting: str, meant: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(setting)
    for words in (["-o", setting], ["--config", str(file)]):
        ended = offline("serve", *words)
        key = setting.partition("=")[0]
        assert (ended.exit_code, ended.error) == (
            2,
            f"tidelog: {key}: no such setting; did you mean {meant}?\n",
        )


def test_serve_loads_neither_typer_nor_rich_nor_a_client() -> None:
    seen = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "0 []"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["-o", "no.such.key=1"], "no.such.key"),
        (["-o", "num.partitions=many"], "num.partitions"),
        (["-o", "nonsense"], "nonsense"),
        (["--config", "nowhere.properties"], "nowhere.properties"),
    ],
)
def test_a_bad_setting_gets_one_line_and_code_2(
    offline: Tidelog, tmp_path: Path, words: list[str], named: str
) -> None:
    ended = offline("serve", "-o", f"log.dirs={tmp_path}", *words)
    assert ended.exit_code == 2
    assert len(ended.error.splitlines()) == 1
    assert named in ended.error


def test_the_ready_line_names_broker_and_address_and_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=7\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/data\n")
    command = [*COMMAND, "serve", "--config", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0
        finally:
            process.kill()
    assert ready.startswith("tidelog ready: broker 7 at 127.0.0.1:")


def test_sigterm_ends_with_code_0_and_the_port_is_kept_over_a_restart(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        port = broker.port
        assert broker.stop() == 0
        broker.start()
        assert broker.port == port
