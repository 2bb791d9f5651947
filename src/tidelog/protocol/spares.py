"""Memory for large frames that come in pieces, shared by all connections: made anew for each frame it would
be filled with zeros first.

**Invariant:** there are never more than `SPARES_MAX`; who finds none takes memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.base.limits import SPARE_SIZE, SPARES_MAX


class Spares:
    """Buffers of `SPARE_SIZE` or more for whoever needs one for a moment."""

    def __init__(self, make: Callable[[int], memoryview]) -> None:
        self._make = make
        self._free: list[memoryview] = []
        self.made_count = 0

    def take(self) -> memoryview | None:
        if self._free:
            return self._free.pop()
        if self.made_count == SPARES_MAX:
            return None
        self.made_count += 1
        return self._make(SPARE_SIZE)

    def give(self, buffer: memoryview) -> None:
        self._free.append(buffer)
