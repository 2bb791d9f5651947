"""The sockets of clients, watched apart from everything else of the event loop.

Whoever is ready at the same moment is served in one turn, and what follows from it (appends that commits
share, answers of requests that waited) is seen to once, at its end. The event loop knows one descriptor for
all of them, so a request costs it nothing: it would make a callback for each.

**Invariant:** a callback that was taken back is not called any more, not in the same turn either.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from time import monotonic_ns

from tidelog.base.limits import SOCKET_TURN_NS_MAX, SOCKETS_PER_TURN

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class _Watched:
    __slots__ = ("reader", "writer")

    def __init__(self) -> None:
        self.reader: Callable[[], None] | None = None
        self.writer: Callable[[], None] | None = None

    @property
    def events(self) -> int:
        return (_READ if self.reader is not None else 0) | (_WRITE if self.writer is not None else 0)


class Sockets:
    def __init__(self, loop: asyncio.AbstractEventLoop, end_turn: Callable[[], None]) -> None:
        self._loop = loop
        self._end_turn = end_turn
        self._selector = selectors.DefaultSelector()
        self._watched: dict[int, _Watched] = {}
        self._descriptor: int = self._selector.fileno()  # epoll and kqueue have one
        loop.add_reader(self._descriptor, self._serve)

    def close(self) -> None:
        self._loop.remove_reader(self._descriptor)
        self._selector.close()

    def add_reader(self, descriptor: int, reader: Callable[[], None]) -> None:
        watched = self._watched.setdefault(descriptor, _Watched())
        self._change(descriptor, watched, reader, watched.writer)

    def remove_reader(self, descriptor: int) -> None:
        watched = self._watched[descriptor]
        self._change(descriptor, watched, None, watched.writer)

    def add_writer(self, descriptor: int, writer: Callable[[], None]) -> None:
        watched = self._watched.setdefault(descriptor, _Watched())
        self._change(descriptor, watched, watched.reader, writer)

    def remove_writer(self, descriptor: int) -> None:
        watched = self._watched[descriptor]
        self._change(descriptor, watched, watched.reader, None)

    def _change(
        self,
        descriptor: int,
        watched: _Watched,
        reader: Callable[[], None] | None,
        writer: Callable[[], None] | None,
    ) -> None:
        before = watched.events
        watched.reader, watched.writer = reader, writer
        after = watched.events
        if not before:
            self._selector.register(descriptor, after, watched)
        elif after:
            self._selector.modify(descriptor, after, watched)
        else:
            self._selector.unregister(descriptor)
            del self._watched[descriptor]

    def _serve(self) -> None:
        """Turns, as long as several are ready at once; others of the loop wait that long at most."""
        until_ns = monotonic_ns() + SOCKET_TURN_NS_MAX
        while ready := self._selector.select(0):
            for place, (key, mask) in enumerate(ready, 1):
                watched: _Watched = key.data
                if mask & _READ and watched.reader is not None:
                    watched.reader()
                if mask & _WRITE and watched.writer is not None:
                    watched.writer()
                if not place % SOCKETS_PER_TURN:
                    self._end_turn()
            self._end_turn()
            if len(ready) == 1 or monotonic_ns() > until_ns:
                return
