"""Processes of `transacting`, their diaries, and what has come of their transactions.

**Invariant:** who ends without being asked, and neither has given up nor hangs, fails the test.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.transacting import ABORTED, ASKED, BEGUN, COMMITTED, GIVEN_UP

END_S = 120.0


@dataclass
class Deal:
    """One transaction as its process has written it down."""

    accounts: list[int] = field(default_factory=list)
    asked_ns: int | None = None
    outcome: str = ""  # committed, aborted, or nobody knows


class Worker:
    def __init__(self, kind: str, bootstrap: str, name: str, folder: Path, *words: str) -> None:
        self.name = name
        self.diary = folder / f"{name}.diary"
        self.ends = Counter[int]()  # by itself, by status
        self._log = folder / f"{name}.stderr"
        words = (kind, bootstrap, name, str(self.diary), *words)
        self._command = [sys.executable, "-m", "tests.chaos.transacting", *words]
        self._read_size, self._counts = 0, Counter[str]()
        self.diary.touch()
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def see(self) -> None:
        """Somebody takes the place of one that has given up."""
        status = self._process.poll()
        if status is not None:
            assert status in (GIVEN_UP, -signal.SIGALRM), (
                f"{self.name} ended with {status}: {self._log.read_text()[-2_000:]}"
            )
            self.ends[status] += 1
            self.start()

    def end(self) -> None:
        """It finishes the transaction that it is in."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(END_S) in (0, GIVEN_UP, -signal.SIGALRM), self._log.read_text()[-2_000:]

    def counts(self) -> Counter[str]:
        """How often it has written each word so far."""
        with self.diary.open("rb") as diary:
            diary.seek(self._read_size)
            written = diary.read()
        whole = written[: written.rfind(b"\n") + 1]
        self._read_size += len(whole)
        self._counts.update(line.partition(b" ")[0].decode() for line in whole.splitlines())
        return self._counts

    def deals(self) -> dict[int, Deal]:
        deals: dict[int, Deal] = {}
        for line in self.diary.read_text().splitlines():
            word, number, time_ns, *more = line.split()
            deal = deals.setdefault(int(number), Deal())
            if word == BEGUN:
                deal.accounts = [int(each) for each in more[0].split(",")]
            elif word == ASKED:
                deal.asked_ns = int(time_ns)
            else:
                assert word in (COMMITTED, ABORTED), line
                deal.outcome = word
        return deals


class Crew:
    """Context manager of several."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []

    def add(self, worker: Worker) -> None:
        self.workers.append(worker)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.workers:
            each.kill()

    def see(self) -> None:
        for each in self.workers:
            each.see()

    def end(self) -> None:
        for each in self.workers:
            each.end()

    @property
    def committed_count(self) -> int:
        return sum(each.counts()[COMMITTED] for each in self.workers)

    @property
    def ends(self) -> Counter[int]:
        """Of workers by themselves, by status."""
        return sum((each.ends for each in self.workers), Counter[int]())
