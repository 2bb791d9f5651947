"""The sockets of clients and peers, watched apart from everything else of the event loop.

Sockets that are ready at the same moment are served in one turn, and what follows from it (appends that
commits share, answers of requests that waited) is seen to once, at its end. The event loop knows one
descriptor for all of them, so a request costs it nothing: it would make a callback for each. An `EagerLoop`
does not even make one for all of them.

**Invariant:** a callback that was taken back is not called any more, not in the same turn either.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from time import monotonic_ns

from tidelog.base.limits import RECEIVE_LOW_WATER, SOCKETS_PER_TURN, TURN_NS_LONG
from tidelog.server.poll import READABLE, WRITABLE, Found, new_poll
from tidelog.server.selector import EagerLoop

Callback = Callable[[], None]


def set_low_water(sock: socket.socket, missing_size: int, low_water: int) -> int:
    """Have a socket be ready only when all that is missing of a frame has come, or a good part of it: waking
    up for each packet of a large one costs as much as taking it. What is asked of the socket now; it was
    asked `low_water` before."""
    wanted = min(missing_size, RECEIVE_LOW_WATER) or 1
    if wanted != low_water:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
    return wanted


class _Watched:
    __slots__ = ("reader", "writer")

    def __init__(self) -> None:
        self.reader: Callback | None = None
        self.writer: Callback | None = None

    @property
    def events(self) -> int:
        return (READABLE if self.reader is not None else 0) | (WRITABLE if self.writer is not None else 0)


class Sockets:
    def __init__(self, loop: asyncio.AbstractEventLoop, end_turn: Callback) -> None:
        self._loop = loop
        self._end_turn = end_turn
        self._poll = new_poll()
        self._watched: dict[int, _Watched] = {}
        self._has_others = False  # something else of the loop is ready
        if isinstance(loop, EagerLoop):
            self.add_reader(loop.serve(self._poll, self._serve), self._note_others)
        else:
            loop.add_reader(self._poll.fileno(), self._look)

    def close(self) -> None:
        if isinstance(self._loop, EagerLoop):
            self._loop.serve_no_more()
        else:
            self._loop.remove_reader(self._poll.fileno())
        self._poll.close()

    def _note_others(self) -> None:
        self._has_others = True

    def add_reader(self, descriptor: int, reader: Callback) -> None:
        watched = self._watched.setdefault(descriptor, _Watched())
        self._change(descriptor, watched, reader, watched.writer)

    def remove_reader(self, descriptor: int) -> None:
        watched = self._watched[descriptor]
        self._change(descriptor, watched, None, watched.writer)

    def add_writer(self, descriptor: int, writer: Callback) -> None:
        watched = self._watched.setdefault(descriptor, _Watched())
        self._change(descriptor, watched, watched.reader, writer)

    def remove_writer(self, descriptor: int) -> None:
        watched = self._watched[descriptor]
        self._change(descriptor, watched, watched.reader, None)

    def remove(self, descriptor: int) -> None:
        self._change(descriptor, self._watched[descriptor], None, None)

    def _change(
        self, descriptor: int, watched: _Watched, reader: Callback | None, writer: Callback | None
    ) -> None:
        before = watched.events
        watched.reader, watched.writer = reader, writer
        after = watched.events
        if not before:
            self._poll.register(descriptor, after)
        elif after:
            self._poll.modify(descriptor, after)
        else:
            self._poll.unregister(descriptor)
            del self._watched[descriptor]

    def _look(self) -> None:
        self._serve(self._poll.poll(0))

    def _serve(self, found: Found) -> bool:
        """One turn; whether something else of the loop is ready too."""
        self._has_others = False
        # All of them first: a descriptor that is closed in this turn may be another's before its end.
        due = [(self._watched[descriptor], events) for descriptor, events in found]
        until_ns = monotonic_ns() + TURN_NS_LONG
        for place, (watched, events) in enumerate(due, 1):
            if events & ~WRITABLE and watched.reader is not None:
                watched.reader()
            if events & ~READABLE and watched.writer is not None:
                watched.writer()
            if place == len(due) or not place % SOCKETS_PER_TURN or monotonic_ns() > until_ns:
                self._end_turn()
                until_ns = monotonic_ns() + TURN_NS_LONG
        return self._has_others
