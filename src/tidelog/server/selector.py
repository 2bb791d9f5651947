"""A selector that looks again for a moment before it sleeps.

Waking a sleeping process takes longer than serving a small request: a client that waits for each answer
spends most of its time on that. So, while looking again has lately been worth it, the loop asks the
kernel a few dozen times before it lets itself be put to sleep; as soon as it is not, it sleeps at once.

**Invariant:** an idle broker does not spin, and no timeout is overstepped by more than one look.
"""

from __future__ import annotations

import selectors
from time import perf_counter

from tidelog.base.limits import SPIN_MISSES_MAX, SPIN_SECONDS

Ready = list[tuple[selectors.SelectorKey, int]]


class EagerSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self._misses = SPIN_MISSES_MAX  # looks in vain since the last that was worth it

    def select(self, timeout: float | None = None) -> Ready:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        if self._misses < SPIN_MISSES_MAX:
            ready = self._spin(timeout)
            if ready:
                return ready
        slept_from = perf_counter()
        ready = super().select(timeout)
        if ready and perf_counter() - slept_from < SPIN_SECONDS:
            self._misses = 0
        return ready

    def _spin(self, timeout: float | None) -> Ready:
        until = perf_counter() + (SPIN_SECONDS if timeout is None else min(SPIN_SECONDS, timeout))
        while perf_counter() < until:
            ready = super().select(0)
            if ready:
                self._misses = 0
                return ready
        self._misses += 1
        return []
