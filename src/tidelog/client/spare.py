"""Memory for large answers, used again as soon as nobody looks at the answer any more.

A new buffer is filled with zeros before anything is received into it, which takes half as long as receiving.

**Invariant:** memory that somebody has a view of is not handed out; no more than a few buffers are kept.
"""

from __future__ import annotations

SPARE_SIZE_MIN = 64 << 10
SPARE_SIZE_MAX = 5 << 20  # what a reader asks for, and the answer's own fields
SPARE_STEP = 256 << 10  # the next answer will be a little larger or smaller
SPARE_COUNT_MAX = 2  # one that is looked at while the next is received


class SpareBuffers:
    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def take(self, size: int) -> bytearray | None:
        """At least `size` bytes, whatever they were used for before; None for sizes that are not kept."""
        if not SPARE_SIZE_MIN <= size <= SPARE_SIZE_MAX:
            return None
        for buffer in self._buffers:
            if len(buffer) >= size and is_free(buffer):
                return buffer
        buffer = bytearray(-(-size // SPARE_STEP) * SPARE_STEP)
        self._buffers = [*self._buffers, buffer][-SPARE_COUNT_MAX:]
        return buffer


def is_free(buffer: bytearray) -> bool:
    """Whether there is no view of it: as long as there is, it refuses to change its size."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
