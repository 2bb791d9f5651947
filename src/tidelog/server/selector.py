"""An event loop that looks again for a moment before it sleeps, and serves sockets in place.

Waking a sleeping process takes longer than serving a small request: a client that waits for each answer
spends most of its time on that. So, while looking again has lately been worth it, the loop asks the
kernel a few dozen times before it lets itself be put to sleep; as soon as it is not, it sleeps at once.

What is ready on a descriptor that is served in place is seen to as soon as the kernel says so: the event loop
would first make a callback of it, and run that in a context of its own.

**Invariant:** an idle broker does not spin, and no timeout is overstepped by more than one look.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from time import perf_counter

from tidelog.base.limits import SPIN_MISSES_MAX, SPIN_SECONDS

Ready = list[tuple[selectors.SelectorKey, int]]


class EagerLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._eager = EagerSelector()
        super().__init__(self._eager)

    def serve(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Call back in place whenever that can be read; there can be one such descriptor."""

        def call() -> None:
            try:
                callback()
            except Exception as bug:
                self.call_exception_handler({"message": "a turn of sockets failed", "exception": bug})

        self._eager.serve(descriptor, call)

    def serve_no_more(self, descriptor: int) -> None:
        self._eager.serve_no_more(descriptor)


class EagerSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self._misses = SPIN_MISSES_MAX  # looks in vain since the last that was worth it
        self._served: selectors.SelectorKey | None = None

    def serve(self, descriptor: int, callback: Callable[[], None]) -> None:
        assert self._served is None
        self._served = self.register(descriptor, selectors.EVENT_READ, callback)

    def serve_no_more(self, descriptor: int) -> None:
        self._served = None
        self.unregister(descriptor)

    def select(self, timeout: float | None = None) -> Ready:
        """What is ready; what is served in place has been, and is not among it."""
        ready = self._find(timeout)
        served = self._served
        for place, (key, _) in enumerate(ready):
            if key is served:
                del ready[place]
                key.data()
                break
        return ready

    def _find(self, timeout: float | None) -> Ready:
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
