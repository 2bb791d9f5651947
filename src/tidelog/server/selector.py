"""An event loop that looks again for a moment before it sleeps, and serves sockets in place.

Waking a sleeping process takes longer than serving a small request: a client that waits for each answer
spends most of its time on that. So, while looking again has lately been worth it, the loop looks for sockets
that are ready a few dozen times before it lets itself be put to sleep; as soon as it is not, it sleeps at
once.

Sockets that are served in place are seen to as soon as the kernel says that one is ready: the event loop
would first make a callback of each, and run that in a context of its own. As long as one always is, what else
the loop watches is looked at once in a millisecond.

**Invariant:** an idle broker does not spin, and no timeout is overstepped by more than one look.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from time import perf_counter

from tidelog.base.limits import LOOK_AROUND_SECONDS, SPIN_MISSES_MAX, SPIN_SECONDS

Ready = list[tuple[selectors.SelectorKey, int]]
Serve = Callable[[], bool]  # whether there was anything to serve


class EagerLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._eager = EagerSelector()
        super().__init__(self._eager)

    def serve(self, descriptor: int, callback: Serve) -> None:
        """Call back in place whenever that can be read; there can be one such descriptor."""

        def call() -> bool:
            try:
                return callback()
            except Exception as bug:
                self.call_exception_handler({"message": "a turn of sockets failed", "exception": bug})
                return True

        self._eager.serve(descriptor, call)

    def serve_no_more(self, descriptor: int) -> None:
        self._eager.serve_no_more(descriptor)


class EagerSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self._misses = SPIN_MISSES_MAX  # looks in vain since the last that was worth it
        self._served: selectors.SelectorKey | None = None
        self._look_around_at = 0.0

    def serve(self, descriptor: int, callback: Serve) -> None:
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
        begun = perf_counter()
        if self._misses < SPIN_MISSES_MAX and self._served is not None:
            if begun >= self._look_around_at:
                self._look_around_at = begun + LOOK_AROUND_SECONDS
                ready = super().select(0)
                if ready:
                    self._misses = 0
                    return ready
            if self._spin(self._served.data, begun + min(SPIN_SECONDS, timeout or SPIN_SECONDS)):
                self._misses = 0
                return []
            self._misses += 1
            begun = perf_counter()
        ready = super().select(timeout)
        if ready and perf_counter() - begun < SPIN_SECONDS:
            self._misses = 0
        return ready

    @staticmethod
    def _spin(serve: Serve, until: float) -> bool:
        """Whether there was something to serve."""
        while not serve():
            if perf_counter() >= until:
                return False
        return True
