"""Tidelog as its users start it: `tidelog serve`, or `tidelog cluster` for several brokers and a ZooKeeper.

Both are those of the environment that runs the benchmark, or of an earlier version that is named.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from bench.peers.ports import free_port
from bench.peers.process import PeerMissing, Site

SETTINGS = {"log.segment.delete.delay.ms": "100"}


class Tidelog:
    settings_if_paused: ClassVar[dict[str, str]] = {}

    def __init__(self, executable: Path | None = None, name: str = "Tidelog") -> None:
        self.name = name
        self._executable = executable or Path(sys.executable).parent / "tidelog"
        if not self._executable.exists():
            raise PeerMissing(f"{self._executable} is missing: run `make setup` in its checkout")

    def prepare(self, directory: Path, settings: dict[str, str]) -> Site:
        directory.mkdir(parents=True)
        port = free_port()
        properties = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": str(directory / "logs")}
        command = [str(self._executable), "serve"]
        for key, value in (properties | SETTINGS | settings).items():
            command += ["-o", f"{key}={value}"]
        return Site(self.name, directory, port, command)

    def prepare_cluster(self, directory: Path, brokers: int, settings: dict[str, str]) -> Site:
        """Its port stands for nothing: the brokers' are in what it prints."""
        directory.mkdir(parents=True)
        command = [str(self._executable), "cluster", "--brokers", str(brokers), "--dir", str(directory)]
        for key, value in (SETTINGS | settings).items():
            command += ["-o", f"{key}={value}"]
        return Site(self.name, directory, 0, command)
