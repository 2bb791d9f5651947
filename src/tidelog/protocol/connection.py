"""One client's byte stream without the socket: frames in, answers out in the order of the requests.

Bytes arrive in the shell's shared buffer. Frames that are whole in it are handed on where they lie; only
a frame that is cut off at the end of the buffer gets a buffer of its own, which grows with what arrives
and not with what the client announced.

**Invariant:** answers leave in the order in which their requests came; a frame's memory is the caller's
only until the next call of `receive`.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Protocol

from tidelog.base.files import FileSlice
from tidelog.base.forms import PLAINTEXT
from tidelog.base.limits import FRAME_GROWTH_SIZE
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.refusals import Refusals

Piece = bytes | bytearray | FileSlice
Answer = bytes | bytearray | list[Piece]

_SIZE = Struct(">i")
FRAME_SIZE_MIN = 8  # api key, version, correlation id


class Slot:
    """The place of one request in the order of answers."""

    __slots__ = ("answer", "is_done")

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.is_done = False


class Repeated(Protocol):
    """A request of a kind that clients send again and again, with little that differs."""

    def serve(self, frame: memoryview) -> Slot | None:
        """Serve one more, to be answered later; None, and nothing done, if it is another request."""
        ...


class Connection:
    __slots__ = (
        "_filled",
        "_frame_size_max",
        "_partial_size",
        "held_size",
        "listener",
        "output",
        "partial",
        "peer",
        "refusals",
        "repeated",
        "slots",
        "software",
    )

    def __init__(
        self, frame_size_max: int, peer: tuple[str, int] = ("", 0), listener: str = PLAINTEXT
    ) -> None:
        self.peer = peer  # the client's address and port
        self.listener = listener  # the name of the one that it came in by
        self.repeated: Repeated | None = None  # what it has sent and may send again
        self.refusals: Refusals | None = None  # of batches that will be sent again
        self.software = ("unknown", "unknown")  # its name and version, as it says by ApiVersions
        self._frame_size_max = frame_size_max
        self.partial: bytearray | None = None  # of a frame that has begun
        self._partial_size = 0  # of the whole frame with its size prefix; 0 if that is not known yet
        self._filled = 0
        self.slots: deque[Slot] = deque()  # of requests without an answer, or whose answer waits for others
        self.output: list[Answer] = []
        self.held_size = 0  # of answers that wait for one before them

    @property
    def buffered_size(self) -> int:
        return len(self.partial) if self.partial is not None else 0

    @property
    def missing_size(self) -> int:
        """How much is yet to come of a frame that has begun; 0 if nobody knows."""
        is_known = self.partial is not None and self._partial_size
        return self._partial_size - self._filled if is_known else 0

    def receive_target(self) -> memoryview | None:
        """Where the rest of a cut-off frame should be read to, or None: into the shared buffer."""
        if self.partial is None or not self._partial_size:
            return None
        if self._filled == len(self.partial):
            self._grow()
        return memoryview(self.partial)[self._filled :]

    def _grow(self) -> None:
        assert self.partial is not None
        size = min(self._partial_size, max(FRAME_GROWTH_SIZE, 2 * self._filled))
        grown = bytearray(size)
        grown[: self._filled] = memoryview(self.partial)[: self._filled]
        self.partial = grown

    def received_in_target(self, size: int) -> memoryview | None:
        """`size` bytes were put where `receive_target` said; the frame, if it is whole now."""
        self._filled += size
        if self._filled < self._partial_size:
            return None
        assert self.partial is not None
        frame = memoryview(self.partial)[4 : self._partial_size]
        self.partial = None
        return frame

    def receive(self, data: memoryview) -> list[memoryview]:
        """The whole frames in `data`, without their size prefix; the rest is kept for the next time."""
        if self.partial is not None:
            data = memoryview(self.partial[: self._filled] + data)
            self.partial = None
        frames: list[memoryview] = []
        position, end = 0, len(data)
        if end >= 4 + FRAME_SIZE_MIN and _SIZE.unpack_from(data)[0] == end - 4 <= self._frame_size_max:
            frames.append(data[4:])  # just one, as small requests come
            return frames
        while position + 4 <= end:
            (size,) = _SIZE.unpack_from(data, position)
            if size < FRAME_SIZE_MIN or size > self._frame_size_max:
                raise MalformedRequest(f"a frame of {size} bytes; from 8 to {self._frame_size_max} are taken")
            if position + 4 + size > end:
                self._keep(data[position:], size + 4)
                return frames
            frames.append(data[position + 4 : position + 4 + size])
            position += 4 + size
        if position < end:
            self._keep(data[position:], 0)
        return frames

    def _keep(self, rest: memoryview, size: int) -> None:
        self._partial_size = size
        self._filled = len(rest)
        self.partial = bytearray(min(size, max(FRAME_GROWTH_SIZE, self._filled)) if size else self._filled)
        self.partial[: self._filled] = rest

    def answer(self, answer: Answer) -> None:
        """Answer a request at once, in its turn."""
        if self.slots:
            slot = Slot()
            slot.answer = answer
            slot.is_done = True
            self.slots.append(slot)
            self.held_size += size_of(answer)
        else:
            self.output.append(answer)

    def hold(self, slot: Slot) -> None:
        """Keep the place of a request that will be answered later."""
        self.slots.append(slot)

    def held(self) -> list[Slot]:
        """The places of requests that have no answer yet."""
        return [slot for slot in self.slots if not slot.is_done]

    def fill(self, slot: Slot, answer: Answer | None) -> None:
        """The answer of a held request, or None if it gets none; moves what is ready to the output."""
        slots = self.slots
        if slots and slots[0] is slot:
            slots.popleft()
            if answer is not None:
                self.output.append(answer)
        else:
            slot.answer = answer
            slot.is_done = True
            self.held_size += size_of(answer)
        while slots and slots[0].is_done:
            ready = slots.popleft().answer
            if ready is not None:
                self.output.append(ready)
                self.held_size -= size_of(ready)

    def drop_answers(self) -> None:
        """Nobody will take them: let go of the files that they would be sent from."""
        for answer in [*self.output, *(slot.answer for slot in self.slots)]:
            for piece in answer if isinstance(answer, list) else ():
                if isinstance(piece, FileSlice):
                    piece.release()
        self.output = []
        self.slots.clear()


def size_of(answer: Answer | None) -> int:
    """The bytes of an answer that are in memory; a slice of a file is not."""
    if not isinstance(answer, list):
        return len(answer) if answer is not None else 0
    return sum(len(piece) for piece in answer if not isinstance(piece, FileSlice))
