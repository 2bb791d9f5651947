"""A broker to talk to, and the `tidelog` command as a process.

`TIDELOG_COMPAT_BOOTSTRAP=host:port` points the commands at another broker, such as Apache Kafka.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.forks import Outcome, run
from tests.testing.watching import Watcher
from tidelog.testing.process import BrokerProcess

COMMAND = [sys.executable, "-m", "tidelog.cli.main"]


class Tidelog:
    """Runs commands with the broker's address in the environment."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.environment = os.environ | {"TIDELOG_BOOTSTRAP_SERVER": bootstrap_servers}

    def __call__(self, *words: str, stdin: bytes = b"") -> Outcome:
        return run(words, self.environment, stdin)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen([*COMMAND, *words], env=self.environment, stdout=pipe, stderr=pipe)


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    existing = os.environ.get("TIDELOG_COMPAT_BOOTSTRAP")
    if existing:
        yield existing
        return
    with BrokerProcess(tmp_path_factory.mktemp("cli")) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def tidelog(bootstrap_servers: str) -> Tidelog:
    return Tidelog(bootstrap_servers)


@pytest.fixture
def offline() -> Tidelog:
    """Commands that need no broker, or must cope without one: nothing listens on port 1."""
    return Tidelog("127.0.0.1:1")


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """A topic of one partition that keeps records of any age."""
    name = f"cli-{uuid4().hex[:12]}"
    Watcher(bootstrap_servers).create(name, retention_ms=-1)
    return name


@pytest.fixture
def lines_file(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.write_text("one\ntwo\nthree\n")
    return path
