"""One client's byte stream without the socket: frames in, answers out in the order of the requests.

How frames are cut and where they are received is `framing`'s.

**Invariant:** answers leave in the order in which their requests came.
"""

from __future__ import annotations

from collections import deque

from tidelog.base.files import FileSlice
from tidelog.protocol.framing import PLAIN_MEMORY, FrameCutter, FrameMemory

Piece = bytes | bytearray | FileSlice
Answer = bytes | bytearray | list[Piece]

FRAME_SIZE_MIN = 8  # api key, version, correlation id
_TLS_HANDSHAKE = b"\x16\x03"
_HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ")


class Slot:
    """The place of one request in the order of answers."""

    __slots__ = ("answer", "is_done")

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.is_done = False


class Connection(FrameCutter):
    __slots__ = (
        "held_size",
        "output",
        "slots",
    )

    def __init__(self, frame_size_max: int, memory: FrameMemory = PLAIN_MEMORY) -> None:
        super().__init__(FRAME_SIZE_MIN, frame_size_max, memory)
        self.slots: deque[Slot] = deque()  # of requests without an answer, or whose answer waits for others
        self.output: list[Answer] = []
        self.held_size = 0  # of answers that wait for one before them

    def problem(self, head: bytes, size: int) -> str:
        if head.startswith(_TLS_HANDSHAKE):
            return "a TLS handshake on a plaintext listener; set the client's security.protocol to PLAINTEXT"
        if head in _HTTP_METHODS:
            return "an HTTP request on a Kafka listener; /metrics and /health are on probe.listener"
        return super().problem(head, size)

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
