"""One client's byte stream without the socket: frames in, answers out in the order of the requests.

Bytes arrive in the shell's shared buffer. Frames that are whole in it are handed on where they lie; only
a frame that is cut off at the end of the buffer gets a buffer of its own. The announced size of a large one
is believed when its first MiB has come, or at once if a spare buffer is large enough.

**Invariant:** answers leave in the order in which their requests came; a frame's memory is the caller's
only until the next call of `receive` or `end_frame`.
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


class _PlainMemory:
    """Nothing is kept."""

    def spare(self, size: int) -> memoryview | None:
        return None

    def allocate(self, size: int) -> memoryview:
        return memoryview(bytearray(size))

    def give_back(self, buffer: memoryview) -> None:
        pass


_PLAIN_MEMORY = _PlainMemory()


class Repeated(Protocol):
    """A request of a kind that clients send again and again, with little that differs."""

    def serve(self, frame: memoryview) -> Slot | None:
        """Serve one more, to be answered later; None, and nothing done, if it is another request."""
        ...


class Connection:
    __slots__ = (
        "_filled",
        "_frame_size_max",
        "_memory",
        "_partial_size",
        "_served",
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
        self,
        frame_size_max: int,
        peer: tuple[str, int] = ("", 0),
        listener: str = PLAINTEXT,
        memory: FrameMemory = _PLAIN_MEMORY,
    ) -> None:
        self.peer = peer  # the client's address and port
        self.listener = listener  # the name of the one that it came in by
        self.repeated: Repeated | None = None  # what it has sent and may send again
        self.refusals: Refusals | None = None  # of batches that will be sent again
        self.software = ("unknown", "unknown")  # its name and version, as it says by ApiVersions
        self._frame_size_max = frame_size_max
        self._memory = memory
        self.partial: memoryview | None = None  # of a frame that has begun
        self._served: memoryview | None = None  # of a large frame that is being served
        self._partial_size = 0  # of the whole frame with its size prefix; 0 if that is not known yet
        self._filled = 0
        self.slots: deque[Slot] = deque()  # of requests without an answer, or whose answer waits for others
        self.output: list[Answer] = []
        self.held_size = 0  # of answers that wait for one before them

    @property
    def buffered_size(self) -> int:
        """The memory of a frame that has begun; of a large buffer what has come, the rest was not touched."""
        if self.partial is None:
            return 0
        return max(min(len(self.partial), FRAME_GROWTH_SIZE), self._filled)

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
        frame = self.partial[4 : self._partial_size]
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
        if end >= 4 + FRAME_SIZE_MIN and _SIZE.unpack_from(data)[0] == end - 4 <= self._frame_size_max:
            frames.append(data[4:])  # just one, as small requests come
            return frames
        while position + 4 <= end:
            (size,) = _SIZE.unpack_from(data, position)
            if size < FRAME_SIZE_MIN or size > self._frame_size_max:
                raise MalformedRequest(_size_problem(data[position:], size, self._frame_size_max))
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
        partial = self._memory.spare(size) if size > FRAME_GROWTH_SIZE else None
        if partial is None:
            wanted = min(size, max(FRAME_GROWTH_SIZE, self._filled)) if size else self._filled
            partial = memoryview(bytearray(wanted))
        partial[: self._filled] = rest
        self.partial = partial

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


_TLS_HANDSHAKE = b"\x16\x03"
_HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ")


def _size_problem(data: memoryview, size: int, size_max: int) -> str:
    """What the beginning of a frame is, that has no size that a frame can have."""
    head = bytes(data[:4])
    if head.startswith(_TLS_HANDSHAKE):
        return "a TLS handshake on a plaintext listener; set the client's security.protocol to PLAINTEXT"
    if head in _HTTP_METHODS:
        return "an HTTP request on a Kafka listener; /metrics and /health are on probe.listener"
    return f"a frame of {size} bytes; from {FRAME_SIZE_MIN} to {size_max} are taken"


def size_of(answer: Answer | None) -> int:
    """The bytes of an answer that are in memory; a slice of a file is not."""
    if not isinstance(answer, list):
        return len(answer) if answer is not None else 0
    return sum(len(piece) for piece in answer if not isinstance(piece, FileSlice))
