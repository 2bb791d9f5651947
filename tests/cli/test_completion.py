"""Shell completion: the scripts are valid, and what they ask for is answered."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.cli.conftest import COMMAND, Tidelog


def completed(tidelog: Tidelog, line: str) -> list[str]:
    """What bash would offer behind the cursor at the end of the line."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TIDELOG_COMPLETE": "complete_bash"}
    done = subprocess.run(
        COMMAND, capture_output=True, env=tidelog.environment | asked, timeout=60, check=True
    )
    assert done.stderr == b""
    return done.stdout.decode().split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_can_read(offline: Tidelog, shell: str) -> None:
    printed = offline("completion", shell)
    assert (printed.exit_code, printed.error) == (0, "")
    assert "_TIDELOG_COMPLETE=complete_" + shell in printed.out
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=printed.out.encode(), capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, b"")


def test_another_shell_is_a_bad_word(offline: Tidelog) -> None:
    ended = offline("completion", "csh")
    assert (ended.exit_code, len(ended.error.splitlines())) == (2, 1)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tidelog co", ["consume", "config", "completion"]),
        ("tidelog topic d", ["describe", "delete"]),
        ("tidelog topic alter x --p", ["--partitions"]),
        ("tidelog topic list --format ", ["table", "json"]),
        ("tidelog serve --c", ["--config"]),
        ("tidelog config get b", ["broker/"]),
    ],
)
def test_commands_and_options_are_completed_without_a_broker(
    offline: Tidelog, line: str, offered: list[str]
) -> None:
    assert completed(offline, line) == offered


def test_names_are_asked_of_the_broker(tidelog: Tidelog, topic: str) -> None:
    assert completed(tidelog, f"tidelog topic describe {topic[:-1]}") == [topic]
    assert completed(tidelog, f"tidelog consume {topic[:-1]}") == [topic]
    assert completed(tidelog, f"tidelog config set topic/{topic[:-1]}") == [f"topic/{topic}"]
    assert completed(tidelog, "tidelog config describe broker/d") == ["broker/default"]


def test_a_broker_that_is_not_there_is_passed_over_in_silence(offline: Tidelog) -> None:
    assert completed(offline, "tidelog topic describe x") == []
