"""An event loop that looks again for a moment before it sleeps, and serves sockets in place.

Waking a sleeping process takes longer than serving a small request: a client that waits for each answer
spends most of its time on that. So, while looking again has lately been worth it, the loop looks for sockets
that are ready a few dozen times before it lets itself be put to sleep. A look that finds something earns one
more of them, an empty one costs one, for looking occupies a core that the peer may need. After a turn that
took long, as with large batches, nothing is gained: being woken is little beside that.

Sockets that are served in place are watched by a poll of their own. The loop sleeps in that one, and what
else it watches is one more descriptor there: who is ready is known when it wakes up, and served at once. The
event loop has its turn when something of its own is ready or due, or was called for meanwhile.

**Invariant:** an idle broker does not spin, and no timeout is overstepped by more than one look.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from contextvars import Context
from time import perf_counter
from typing import TypeVarTuple

from tidelog.base.limits import (
    SOCKETS_SECONDS_MAX,
    SPIN_AFTER_SECONDS_MAX,
    SPIN_SECONDS,
    SPIN_WORTH_MAX,
)
from tidelog.server.poll import Found, Poll

Args = TypeVarTuple("Args")
Ready = list[tuple[selectors.SelectorKey, int]]
Serve = Callable[[Found], bool]  # whether something else of the loop is ready


class EagerLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._eager = EagerSelector()
        super().__init__(self._eager)

    def serve(self, poll: Poll, callback: Serve) -> int:
        """Call back in place whenever something of a poll is ready; there can be one such poll. The
        descriptor that it has to watch for the loop."""

        def call(found: Found) -> bool:
            try:
                return callback(found)
            except Exception as bug:
                self.call_exception_handler({"message": "a turn of sockets failed", "exception": bug})
                return True

        return self._eager.serve(poll, call)

    def serve_no_more(self) -> None:
        self._eager.serve_no_more()

    def stop(self) -> None:
        self._eager.is_called_for = True
        super().stop()

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        self._eager.is_called_for = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._eager.is_called_for = True
        return super().call_at(when, callback, *args, context=context)


class EagerSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self._poll: Poll | None = None
        self._serve: Serve = bool
        self._worth = 0  # of looking again
        self.is_called_for = False  # the loop was asked for something since it was left

    def serve(self, poll: Poll, callback: Serve) -> int:
        assert self._poll is None
        self._poll, self._serve = poll, callback
        descriptor: int = self.fileno()
        return descriptor

    def serve_no_more(self) -> None:
        self._poll = None
        self.is_called_for = True

    def select(self, timeout: float | None = None) -> Ready:
        """What is ready; what is served in place has been, and is not among it."""
        poll = self._poll
        if poll is None:
            return super().select(timeout)
        if timeout is not None and timeout <= 0:
            return self._serve_meanwhile(poll)
        self.is_called_for = False
        until = None if timeout is None else perf_counter() + timeout
        while found := self._find(poll, timeout):
            begun = perf_counter()
            has_others = self._serve(found)
            now = perf_counter()
            if now - begun > SPIN_AFTER_SECONDS_MAX:
                self._worth = 0
            if has_others:
                return super().select(0)
            if until is not None:
                timeout = until - now
            if self.is_called_for or (timeout is not None and timeout <= 0):
                break
        return []

    def _serve_meanwhile(self, poll: Poll) -> Ready:
        """Where the loop has something to do all the time, as while a journal is loaded in pieces, sockets
        have more than one turn for each of those."""
        until = perf_counter() + SOCKETS_SECONDS_MAX
        while self._poll is poll and (found := poll.poll(0)):
            if self._serve(found):
                return super().select(0)
            if perf_counter() >= until:
                break
        return []

    def _find(self, poll: Poll, timeout: float | None) -> Found:
        begun = perf_counter()
        if self._worth <= 0:
            found = poll.poll(timeout)
            if found and perf_counter() - begun < SPIN_SECONDS:
                self._worth = 1
            return found
        until = begun + min(SPIN_SECONDS, timeout or SPIN_SECONDS)
        while not (found := poll.poll(0)):
            if perf_counter() >= until:
                self._worth -= 1
                return poll.poll(timeout)
        self._worth = min(self._worth + 1, SPIN_WORTH_MAX)
        return found
