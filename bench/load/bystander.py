"""A client that wants little while others want much: one small request every few milliseconds.

It runs in a process of its own, so that what it measures is the broker and not the interpreter it would
share with the load. `python -m bench.load.bystander HOST PORT` asks for the metadata of no topic until its
input ends, then prints the latencies.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from bench.load.admin import Admin, metadata_frame

PAUSE_SECONDS = 0.002
ROOT = Path(__file__).resolve().parents[2]


class Bystander:
    """Measures while the `with` block runs; all that it has is nanoseconds, known after it."""

    def __init__(self, host: str, port: int) -> None:
        self._command = [sys.executable, "-m", "bench.load.bystander", host, str(port)]
        self._taken: list[
            tuple[int, int]
        ] = []  # when it asked, by time.perf_counter_ns, and how long it took

    def __enter__(self) -> Bystander:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it is connected and has been answered
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(subprocess.TimeoutExpired):
            output, _ = self._process.communicate("", timeout=60)
            self._taken = json.loads(output) if output else []
        self._process.kill()
        self._process.wait()

    @property
    def latencies(self) -> list[int]:
        return [taken for _, taken in self._taken]

    def between(self, start_ns: int, end_ns: int) -> list[int]:
        """The latencies of what was asked or answered in between."""
        return [taken for asked, taken in self._taken if asked + taken >= start_ns and asked < end_ns]

    @property
    def worst_ms(self) -> float:
        return max(self.latencies, default=0) / 1e6


def watch(host: str, port: int) -> list[tuple[int, int]]:
    frame = metadata_frame(())
    taken: list[tuple[int, int]] = []
    with Admin(host, port) as admin:
        admin.exchange(frame)
        print("ready", flush=True)
        while not _is_input_over():
            started = time.perf_counter_ns()
            admin.exchange(frame)
            taken.append((started, time.perf_counter_ns() - started))
    return taken


def _is_input_over() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], PAUSE_SECONDS)
    return bool(readable)


if __name__ == "__main__":
    print(json.dumps(watch(sys.argv[1], int(sys.argv[2]))))
