"""The one loop of a simulated cluster: what is to happen, in the order of its time, and what has happened.

**Invariant:** two things at the same time happen in the order in which they were planned; the same seed gives
the same trace.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from zlib import crc32

TRACE_LENGTH = 400
Action = Callable[[], None]


class Violation(AssertionError):
    """A claim that the cluster makes did not hold."""


class Clock:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.counts: Counter[str] = Counter()
        self.digest = 0  # of everything that was noted
        self.trace: deque[str] = deque(maxlen=TRACE_LENGTH)
        self._planned: list[tuple[int, int, Action]] = []
        self._number = 0

    def after(self, delay_ms: int, action: Action) -> None:
        self.at(self.now_ms + delay_ms, action)

    def at(self, time_ms: int, action: Action) -> None:
        self._number += 1
        heappush(self._planned, (max(time_ms, self.now_ms), self._number, action))

    @property
    def next_ms(self) -> int | None:
        return self._planned[0][0] if self._planned else None

    def step(self) -> None:
        """The next thing happens."""
        self.now_ms, _, action = heappop(self._planned)
        action()

    def note(self, what: str) -> None:
        line = f"{self.now_ms:>7} {what}"
        self.trace.append(line)
        self.digest = crc32(line.encode(), self.digest)

    def note_frame(self, frame: bytes) -> None:
        self.digest = crc32(frame, self.digest)

    def count(self, what: str) -> None:
        self.counts[what] += 1
        self.note(what)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability
