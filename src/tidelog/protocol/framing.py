"""Frames out of a stream of bytes: a size of four bytes, then so many bytes.

| a reader with      | calls                                                                              |
|--------------------|------------------------------------------------------------------------------------|
| a shared buffer    | `receive_target`; where that is None, `receive` with what came in its own buffer   |
| one frame to await | `read_frame`                                                                       |

Frames that are whole in a buffer are handed on where they lie; only a frame that is cut off at its end gets
a buffer of its own. The announced size of a large frame is believed when its first MiB has come, or at once
if a spare buffer is large enough.

**Invariant:** what was announced takes no memory before its first part has come, but what the caller's
`FrameMemory` has at hand; the memory of a frame is the caller's only until the next call of `receive` or
`end_frame`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Protocol

from tidelog.base.limits import FRAME_GROWTH_SIZE
from tidelog.protocol.errors import MalformedRequest

ANSWER_SIZE_MIN = 4  # the correlation id
PREFIX_SIZE = 4
_SIZE = Struct(">i")


class FrameMemory(Protocol):
    """Where large frames are received."""

    def spare(self, size: int) -> memoryview | None:
        """A buffer that is there already, of at least this size, if there is one."""
        ...

    def allocate(self, size: int) -> memoryview:
        """A buffer of at least this size; OSError if the system has none."""
        ...

    def give_back(self, buffer: memoryview) -> None:
        """What was in it has been served."""
        ...


class PlainMemory:
    """Nothing is kept, and a large frame takes its memory at once."""

    def spare(self, size: int) -> memoryview | None:
        return None

    def allocate(self, size: int) -> memoryview:
        return memoryview(bytearray(size))

    def give_back(self, buffer: memoryview) -> None:
        pass


PLAIN_MEMORY = PlainMemory()


class FrameCutter:
    __slots__ = ("_filled", "_memory", "_partial_size", "_served", "_size_min", "partial", "size_max")

    def __init__(self, size_min: int, size_max: int, memory: FrameMemory = PLAIN_MEMORY) -> None:
        self._size_min = size_min
        self.size_max = size_max
        self._memory = memory
        self.partial: memoryview | None = None  # of a frame that has begun
        self._partial_size = 0  # of the whole frame with its size prefix; 0 if that is not known yet
        self._filled = 0
        self._served: memoryview | None = None  # of a large frame that is being served

    def problem(self, head: bytes, size: int) -> str:
        """What is wrong with a frame of that size, which begins with `head`."""
        return f"a frame of {size} bytes; expected {self._size_min} to {self.size_max}"

    @property
    def buffered_size(self) -> int:
        """The memory of a frame that has begun; of a large buffer what has come, the rest was not touched."""
        if self.partial is None:
            return 0
        return max(min(len(self.partial), FRAME_GROWTH_SIZE), self._filled)

    @property
    def missing_size(self) -> int:
        """How much is yet to come of a frame that has begun; 0 if that is not known."""
        is_known = self.partial is not None and self._partial_size
        return self._partial_size - self._filled if is_known else 0

    @property
    def missing_prefix_size(self) -> int:
        """How much of the size prefix is yet to come; only between frames, or within a prefix."""
        return PREFIX_SIZE - (self._filled if self.partial is not None else 0)

    def receive_target(self) -> memoryview | None:
        """Where the rest of a cut-off frame should be read to, or None: into the caller's buffer."""
        if self.partial is None or not self._partial_size:
            return None
        if self._filled == len(self.partial):
            grown = self._memory.allocate(self._partial_size)
            grown[: self._filled] = self.partial
            self.partial = grown
        return self.partial[self._filled : self._partial_size]

    def received_in_target(self, size: int) -> memoryview | None:
        """`size` bytes were put where `receive_target` said; the frame, if it is whole now. `end_frame` is
        due when it has been served."""
        self._filled += size
        if self._filled < self._partial_size:
            return None
        assert self.partial is not None
        frame = self.partial[PREFIX_SIZE : self._partial_size]
        if self._partial_size > FRAME_GROWTH_SIZE:
            self._served = self.partial
        self.partial = None
        return frame

    def end_frame(self) -> None:
        """The frame that came last in a buffer of its own has been served."""
        if self._served is not None:
            self._memory.give_back(self._served)
            self._served = None

    def receive(self, data: memoryview) -> list[memoryview]:
        """The whole frames in `data`, without their size prefix; the rest is kept for the next time."""
        if self.partial is not None:
            data = memoryview(bytearray().join((self.partial[: self._filled], data)))
            self.partial = None
        frames: list[memoryview] = []
        position, end = 0, len(data)
        size_min, size_max = self._size_min, self.size_max
        if end >= PREFIX_SIZE + size_min and _SIZE.unpack_from(data)[0] == end - PREFIX_SIZE <= size_max:
            frames.append(data[PREFIX_SIZE:])  # just one, as small requests come
            return frames
        while position + PREFIX_SIZE <= end:
            (size,) = _SIZE.unpack_from(data, position)
            if size < size_min or size > size_max:
                raise MalformedRequest(self.problem(bytes(data[position : position + PREFIX_SIZE]), size))
            if position + PREFIX_SIZE + size > end:
                self._keep(data[position:], size + PREFIX_SIZE)
                return frames
            frames.append(data[position + PREFIX_SIZE : position + PREFIX_SIZE + size])
            position += PREFIX_SIZE + size
        if position < end:
            self._keep(data[position:], 0)
        return frames

    def _keep(self, rest: memoryview, size: int) -> None:
        self._partial_size = size
        self._filled = len(rest)
        partial = self._memory.spare(size) if size else None
        if partial is None:
            wanted = min(size, max(FRAME_GROWTH_SIZE, self._filled)) if size else self._filled
            partial = memoryview(bytearray(wanted))
        partial[: self._filled] = rest
        self.partial = partial


def read_frame(frames: FrameCutter, read_into: Callable[[memoryview], int]) -> memoryview:
    """The next frame, and not a byte beyond it; `read_into` waits for some bytes and says how many came."""
    prefix = memoryview(bytearray(PREFIX_SIZE))
    while True:
        target = frames.receive_target()
        if target is not None:
            frame = frames.received_in_target(read_into(target))
        else:
            came = read_into(prefix[: frames.missing_prefix_size])
            frame = next(iter(frames.receive(prefix[:came])), None)
        if frame is not None:
            return frame
