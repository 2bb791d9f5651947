"""Which descriptors are ready: epoll as it is or, where there is none, the same of whatever the system has.

Python's selectors make an object of every event, and look each up twice: two microseconds of every request.
"""

from __future__ import annotations

import select
import selectors
from typing import Protocol

Found = list[tuple[int, int]]  # descriptors, and what they are ready for
READABLE, WRITABLE = 0x1, 0x4  # epoll's own; what is neither (an error, an end) is both


class Poll(Protocol):
    def fileno(self) -> int: ...

    def close(self) -> None: ...

    def register(self, descriptor: int, events: int, /) -> None: ...

    def modify(self, descriptor: int, events: int, /) -> None: ...

    def unregister(self, descriptor: int, /) -> None: ...

    def poll(self, timeout: float | None, /) -> Found:
        """What is ready within that time, or at last if it is None."""


class SelectorPoll:
    """By kqueue, as on macOS."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def fileno(self) -> int:
        descriptor: int = self._selector.fileno()
        return descriptor

    def close(self) -> None:
        self._selector.close()

    def register(self, descriptor: int, events: int, /) -> None:
        self._selector.register(descriptor, _to_selector(events))

    def modify(self, descriptor: int, events: int, /) -> None:
        self._selector.modify(descriptor, _to_selector(events))

    def unregister(self, descriptor: int, /) -> None:
        self._selector.unregister(descriptor)

    def poll(self, timeout: float | None, /) -> Found:
        return [(key.fd, _from_selector(events)) for key, events in self._selector.select(timeout)]


def _to_selector(events: int) -> int:
    readable = selectors.EVENT_READ if events & READABLE else 0
    return readable | (selectors.EVENT_WRITE if events & WRITABLE else 0)


def _from_selector(events: int) -> int:
    readable = READABLE if events & selectors.EVENT_READ else 0
    return readable | (WRITABLE if events & selectors.EVENT_WRITE else 0)


def new_poll() -> Poll:
    return select.epoll() if hasattr(select, "epoll") else SelectorPoll()
