"""Files to unlink, when they are due: readers that found them before may go on until then.

**Invariant:** the loop unlinks nothing itself.
"""

from __future__ import annotations

from concurrent.futures import Executor

from tidelog.broker.outbox import Removal


class Removals:
    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._removals: list[Removal] = []

    def add(self, removal: Removal) -> None:
        self._removals.append(removal)

    def remove_due(self, now_ms: int) -> None:
        due = [removal for removal in self._removals if removal.due_ms <= now_ms]
        self._removals = [removal for removal in self._removals if removal.due_ms > now_ms]
        for removal in due:
            for name in removal.names:
                self._threads.submit(removal.directory.remove, name)
