"""A broker in its own process, which the demo and the crash tests can kill.

    with BrokerProcess(directory) as broker:
        broker.kill()     # SIGKILL: nothing is flushed
        broker.start()    # same directory, same port

**Invariant:** no process outlives the `with` block.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

_READY = re.compile(rb"tidelog ready: broker (\d+) at (\S+):(\d+)\s")

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0


class BrokerDidNotStart(Exception):
    """The process ended or did not answer; the message has its stderr."""


class BrokerProcess:
    """`tidelog serve` on a free port that it keeps over restarts."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        properties: Mapping[str, str] | None = None,
        is_detached: bool = False,
    ) -> None:
        """A detached process does not get the Ctrl-C that is meant for its parent."""
        self._is_detached = is_detached
        self.directory = os.fspath(directory)
        self.properties = {"log.dirs": os.path.join(self.directory, "data")} | dict(properties or {})
        self.stderr_path = os.path.join(self.directory, "broker.stderr")
        self.port = 0
        self.start_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        os.makedirs(self.directory, exist_ok=True)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    def start(self) -> None:
        """Start the process and wait until it serves."""
        assert not self.is_running, "the broker is already running"
        started = time.monotonic()
        with open(self.stderr_path, "ab") as stderr:
            self._process = subprocess.Popen(
                self.command(), stdout=subprocess.PIPE, stderr=stderr, start_new_session=self._is_detached
            )
        self.port = self._await_ready(self._process, started + START_TIMEOUT_S)
        self.start_seconds = time.monotonic() - started

    @property
    def settings(self) -> dict[str, str]:
        """All settings of the process; after the first start with its port."""
        return {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}"} | self.properties

    def command(self) -> list[str]:
        """The command line that `start` runs."""
        words = [word for key, value in self.settings.items() for word in ("-o", f"{key}={value}")]
        return [sys.executable, "-m", "tidelog.cli.main", "serve", *words]

    def kill(self) -> None:
        """SIGKILL, and wait for the process to be gone."""
        self.signal(signal.SIGKILL)
        self._reap()

    def stop(self) -> int:
        """SIGTERM, and wait for the controlled shutdown; the exit code."""
        self.signal(signal.SIGTERM)
        return self._reap()

    def pause(self) -> None:
        """SIGSTOP: the process is alive, but does nothing."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the broker was not started"
        self._process.send_signal(number)

    def stderr(self) -> str:
        """The stderr of the broker's processes so far."""
        with open(self.stderr_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self.is_running:
            self.kill()

    def _reap(self) -> int:
        process = self._process
        assert process is not None
        try:
            exit_code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()
        return exit_code

    def _await_ready(self, process: subprocess.Popen[bytes], deadline: float) -> int:
        assert process.stdout is not None
        written = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                piece = os.read(process.stdout.fileno(), 4096)
                written += piece
                if found := _READY.search(written):
                    return int(found.group(3))
                if not piece:
                    break
        process.kill()
        exit_code = self._reap()
        raise BrokerDidNotStart(f"exit code {exit_code}: {self.stderr().strip()[-2000:]}")
