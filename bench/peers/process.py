"""A broker's process as the harness sees it: spawn, pause, measure, stop.

CPU and resident memory are those of the process and all its descendants, read from /proc.

**Invariant:** a process spawned here is ended by `stop` or `kill`, also when it was paused.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from bench.load.admin import Admin

STOP_SECONDS_MAX = 60.0
READY_SECONDS_MAX = 120.0
POLL_SECONDS = 0.005
CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class PeerMissing(Exception):
    """A peer cannot be had on this machine; the message says what to install."""


class PeerFailed(Exception):
    """A peer's process ended or did not answer; the message has the end of its output."""


@dataclass(frozen=True)
class Site:
    """A broker made ready to start: its folder, its port and its command."""

    name: str
    directory: Path
    port: int
    command: list[str]

    @property
    def log_directory(self) -> Path:
        return self.directory / "logs"

    def spawn(self) -> RunningBroker:
        with open(self.directory / "output.txt", "ab") as output:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                env=_plain_environment(),
            )
        return RunningBroker(self, process)


def _plain_environment() -> dict[str, str]:
    """As a user has it: Python may keep what it compiled, as Java keeps its archives of classes."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


class Peer(Protocol):
    """A kind of broker."""

    name: str
    settings_if_paused: ClassVar[dict[str, str]]

    def prepare(self, directory: Path, settings: dict[str, str]) -> Site:
        """Choose a port and write what a broker needs in `directory`, ready to be spawned."""


class RunningBroker:
    def __init__(self, site: Site, process: subprocess.Popen[bytes]) -> None:
        self.site = site
        self.name = site.name
        self.host = "127.0.0.1"
        self.port = site.port
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self, seconds_max: float = READY_SECONDS_MAX) -> None:
        """Return once the broker lists itself in its metadata."""
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            self.assert_alive()
            try:
                with Admin(self.host, self.port) as admin:
                    if admin.broker_count() > 0:
                        return
            except OSError:
                pass
            time.sleep(POLL_SECONDS)
        raise PeerFailed(f"{self.name} did not serve within {seconds_max:.0f} s\n{self._output_tail()}")

    def assert_alive(self) -> None:
        if self._process.poll() is not None:
            raise PeerFailed(f"{self.name} exited with {self._process.returncode}\n{self._output_tail()}")

    def pause(self) -> None:
        for pid in process_tree(self.pid):
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in process_tree(self.pid):
            os.kill(pid, signal.SIGCONT)

    def cpu_seconds(self) -> float:
        return tree_cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        return sum(_resident_bytes(pid) for pid in process_tree(self.pid))

    def open_file_count(self) -> int:
        """Descriptors of the process itself: files, sockets, pipes."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def stop(self, seconds_max: float = STOP_SECONDS_MAX) -> None:
        """End in good order; by force when that takes too long."""
        if self._process.poll() is not None:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        if self._process.poll() is not None:
            return
        kill_tree(self.pid)
        self._process.wait()

    def _output_tail(self) -> str:
        return "\n".join((self.site.directory / "output.txt").read_text(errors="replace").splitlines()[-20:])


def process_tree(root: int) -> list[int]:
    """`root` and its living descendants."""
    found = [root]
    for pid in found:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                children = Path(f"/proc/{pid}/task/{thread}/children").read_text()
                found.extend(int(child) for child in children.split())
        except FileNotFoundError:
            continue
    return found


def tree_cpu_seconds(root: int) -> float:
    return sum(_cpu_ticks(pid) for pid in process_tree(root)) / CLOCK_TICKS_PER_SECOND


def kill_tree(root: int) -> None:
    for pid in process_tree(root):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def machine_cpu_seconds() -> float:
    """What all processes of the machine have used, without interrupts, plus what its host took away."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, *_, steal = (int(ticks) for ticks in file.readline().split()[1:9])
    return (user + nice + system + steal) / CLOCK_TICKS_PER_SECOND


def _cpu_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0
    return int(fields[11]) + int(fields[12])


def _resident_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
