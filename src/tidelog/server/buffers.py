"""Memory for large frames of all connections: lazily backed by the system, and kept for the next frame.

A new buffer of 10 MB costs as much as what is received into it: the system clears every page of it. A buffer
that was served is therefore kept, up to a bound and while frames keep coming.

**Invariant:** a new buffer takes memory as it is filled, not by its size.
"""

from __future__ import annotations

import mmap

from tidelog.base.limits import FRAME_BUFFERS_KEPT_SIZE, FRAME_GROWTH_SIZE

_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


class FrameBuffers:
    def __init__(self) -> None:
        self._spare: list[memoryview] = []
        self._spare_size = 0
        self._is_used = False  # since the last `age`

    def spare(self, size: int) -> memoryview | None:
        if size <= FRAME_GROWTH_SIZE:  # there is memory for those at once
            return None
        for place, buffer in enumerate(self._spare):
            if len(buffer) >= size:
                del self._spare[place]
                self._spare_size -= len(buffer)
                self._is_used = True
                return buffer
        return None

    def allocate(self, size: int) -> memoryview:
        return self.spare(size) or memoryview(mmap.mmap(-1, size, flags=_FLAGS))

    def give_back(self, buffer: memoryview) -> None:
        """Keep it instead of older ones, which may be too small for what comes now."""
        if len(buffer) > FRAME_BUFFERS_KEPT_SIZE:
            return
        self._is_used = True
        self._spare.append(buffer)
        self._spare_size += len(buffer)
        while self._spare_size > FRAME_BUFFERS_KEPT_SIZE:
            self._spare_size -= len(self._spare.pop(0))

    def age(self) -> None:
        """Let go of what nobody has used since the last call."""
        if not self._is_used:
            self._spare.clear()
            self._spare_size = 0
        self._is_used = False
