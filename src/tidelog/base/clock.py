"""The two clocks: the wall clock that stamps records, and the monotonic clock that measures waiting.

The core never reads a clock: `now_ms` is an argument. The shell reads the clocks and passes the times in.
"""

from __future__ import annotations

import time


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
