"""Buffers for large answers, used again as soon as nothing refers to the previous answer.

A new buffer is filled with zeros before anything is received into it, which takes half as long as receiving.

**Invariant:** a buffer that has a view is not reused; at most a few buffers are kept.
"""

from __future__ import annotations

import mmap

from tidelog.base.limits import SPARE_COUNT_MAX, SPARE_SIZE_MAX, SPARE_SIZE_MIN

SPARE_STEP = 256 << 10  # the next answer will be a little larger or smaller

_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


class SpareBuffers:
    """Where frames are received (`framing.FrameMemory`)."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def spare(self, size: int) -> memoryview | None:
        """At least `size` bytes, whatever they were used for before; None for sizes that are not kept."""
        if not SPARE_SIZE_MIN <= size <= SPARE_SIZE_MAX:
            return None
        for buffer in self._buffers:
            if len(buffer) >= size and is_free(buffer):
                return memoryview(buffer)
        buffer = bytearray(-(-size // SPARE_STEP) * SPARE_STEP)
        self._buffers = [*self._buffers, buffer][-SPARE_COUNT_MAX:]
        return memoryview(buffer)

    def allocate(self, size: int) -> memoryview:
        """Backed by the system as it is filled, not by its size."""
        return memoryview(mmap.mmap(-1, size, flags=_FLAGS))

    def give_back(self, buffer: memoryview) -> None:
        """Views of it say when it can be used again."""


def is_free(buffer: bytearray) -> bool:
    """Whether no view of the buffer exists: with one, it cannot be resized."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
