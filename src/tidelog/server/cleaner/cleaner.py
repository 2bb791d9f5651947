"""Who runs the rounds of a broker: a process of the cleaner's own, or the thread that asks.

The process is started for the first round and kept for a while after the last. It is killed if its round is
not wanted any more, if nothing has been heard of it for long, and when the broker stops.

**Invariant:** a process that dies or hangs ends its round, and nothing else.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Protocol

from tidelog.base.events import Event, warning
from tidelog.base.extras import install_command
from tidelog.base.files import Directory
from tidelog.broker.data_plane.compacting import Pace, RoundFailed
from tidelog.log.compaction.keys import PlainKeyMap
from tidelog.log.compaction.request import CleaningRequest, CleaningResult
from tidelog.server.cleaner.lines import decode_end, encode_order
from tidelog.server.cleaner.round import run_round

WORKER = "tidelog.server.cleaner.worker"
IDLE_S = 60.0  # how long a process is kept that has nothing to do
SILENCE_S_MAX = 600.0  # an fsync of a disk that is busy may take minutes
_LOOK_MS = 200  # how often it is asked whether the round is still wanted
_READ_SIZE = 65_536


class Cleaner(Protocol):
    def clean(self, directory: Directory, request: CleaningRequest, pace: Pace) -> CleaningResult:
        """On a thread, one round at a time."""

    def age(self) -> None:
        """Now and then: let go of what is not used."""

    def close(self) -> None: ...


class ThreadCleaner:
    """Rounds on the thread that asks for them: for brokers inside a test."""

    def clean(self, directory: Directory, request: CleaningRequest, pace: Pace) -> CleaningResult:
        return run_round(directory.path, request, pace, PlainKeyMap)

    def age(self) -> None:
        """There is nothing to let go of."""

    def close(self) -> None:
        """The thread is the caller's."""


class ProcessCleaner:
    def __init__(self, tell: Callable[[Event], object], silence_s_max: float = SILENCE_S_MAX) -> None:
        """`tell` is called on any thread."""
        self._tell = tell
        self._silence_s_max = silence_s_max
        self._lock = Lock()  # held by a round, and to let go of the process
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._is_busy = False  # with a round whose end it has not told
        self._idle_since_s = 0.0
        self._is_slowness_told = False

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def clean(self, directory: Directory, request: CleaningRequest, pace: Pace) -> CleaningResult:
        with self._lock:
            try:
                process = self._running()
                self._send(process, encode_order(os.path.abspath(directory.path), request))
                return self._await_end(process, pace)
            except BaseException:
                if self._process is not None and self._is_busy:
                    self._end_process()
                raise
            finally:
                self._idle_since_s = monotonic()

    def _running(self) -> subprocess.Popen[bytes]:
        self._is_busy = True
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end_process()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        except OSError as problem:
            raise RoundFailed(f"the cleaner's process could not be started: {problem}") from problem
        return self._process

    def _send(self, process: subprocess.Popen[bytes], line: str) -> None:
        assert process.stdin is not None
        rest = memoryview(line.encode() + b"\n")
        try:
            while rest:
                rest = rest[process.stdin.write(rest) :]
        except OSError:
            raise RoundFailed("the cleaner's process has died") from None

    def _await_end(self, process: subprocess.Popen[bytes], pace: Pace) -> CleaningResult:
        heard_s = monotonic()
        while True:
            pace(0)
            for line in self._read_lines(process):
                heard_s = monotonic()
                self._note(line)
                pace(_size_in(line))
                self._is_busy = "done" in line or "compiled" in line
                result = decode_end(line)
                if result is not None:
                    return result
            if monotonic() - heard_s > self._silence_s_max:
                raise RoundFailed(f"the cleaner's process is silent for {self._silence_s_max:.0f} s")

    def _read_lines(self, process: subprocess.Popen[bytes]) -> list[dict[str, object]]:
        """What has come within a moment."""
        assert process.stdout is not None
        poll = select.poll()  # descriptors may be above what select takes
        poll.register(process.stdout, select.POLLIN)
        if not poll.poll(_LOOK_MS):
            return []
        data = os.read(process.stdout.fileno(), _READ_SIZE)
        if not data:
            raise RoundFailed("the cleaner's process has died")
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def _note(self, line: dict[str, object]) -> None:
        if line.get("compiled") is False and not self._is_slowness_told:
            self._is_slowness_told = True
            reason = f"numba is not installed; {install_command('spark')}"
            self._tell(warning("cleaner slowed", reason=reason))

    def age(self) -> None:
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._process is not None and monotonic() - self._idle_since_s > IDLE_S:
                self._end_process()
        finally:
            self._lock.release()

    def _end_process(self) -> None:
        process, self._process, self._unread = self._process, None, b""
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        process.wait()

    def close(self) -> None:
        """No round is under way any more."""
        with self._lock:
            self._end_process()


def _size_in(line: dict[str, object]) -> int:
    size = line.get("done", 0)
    assert isinstance(size, int)
    return size
