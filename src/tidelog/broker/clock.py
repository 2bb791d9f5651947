"""The time as the shell last set it.

**Invariant:** only the shell moves it: within one input it stands still.
"""

from __future__ import annotations


class Clock:
    __slots__ = ("now_ms", "uptime_ms")

    def __init__(self) -> None:
        self.now_ms = 0  # the wall clock, for records
        self.uptime_ms = 0  # the monotonic one, for waiting

    def set(self, now_ms: int, uptime_ms: int) -> None:
        self.now_ms = now_ms
        self.uptime_ms = uptime_ms
