"""Numbered requests to other brokers over one lane, each with its answer, or with none.

Who asks gives a frame without its size, from the API key on; the number stands where the correlation id does.

**Invariant:** a request has one end: its answer, or None when the connection has ended or the answer is late;
nobody knows then what became of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.broker.kernel import Kernel
from tidelog.broker.peers import PeerClose, PeerSend
from tidelog.cluster.image import Image

_NUMBER_MAX = 2**31 - 1  # of a correlation id: four bytes
BODY_POSITION = 5  # of an answer by a flexible version: behind its number and the header's tagged fields

Frame = bytes | memoryview
OnAnswer = Callable[[memoryview | None], None]


class Sent(NamedTuple):
    """What another broker is to answer."""

    on_answer: OnAnswer
    due_ms: int
    size: int


class Asking:
    def __init__(self, kernel: Kernel, image: Image, lane: int, wait_ms: int) -> None:
        self._clock = kernel.clock
        self._outbox = kernel.outbox
        self._image = image
        self._lane = lane
        self._wait_ms = wait_ms
        self._number = 0
        self._sent: dict[tuple[int, int], Sent] = {}  # by node and number
        self.sent_size = 0  # of the frames that are not answered

    def ask(self, node_id: int, frame: Frame, on_answer: OnAnswer) -> None:
        """Send a frame to a broker; one that is not there gives no answer."""
        address = self._image.brokers.get(node_id)
        if address is None:
            on_answer(None)
            return
        self._number = self._number % _NUMBER_MAX + 1
        due_ms = self._clock.uptime_ms + self._wait_ms
        self._sent[node_id, self._number] = Sent(on_answer, due_ms, len(frame))
        self.sent_size += len(frame)
        numbered = bytearray().join((len(frame).to_bytes(4, "big"), frame))
        numbered[8:12] = self._number.to_bytes(4, "big")
        self._outbox.effects.append(PeerSend(node_id, self._lane, address.host, address.port, numbered))

    def on_frame(self, node_id: int, frame: memoryview) -> None:
        key = (node_id, int.from_bytes(frame[:4], "big"))
        if key in self._sent:
            self._end(key, frame)

    def on_closed(self, node_id: int) -> None:
        """The connection has ended: nobody knows what became of what was sent on it."""
        for key in [key for key in self._sent if key[0] == node_id]:
            self._end(key, None)

    def _end(self, key: tuple[int, int], answer: memoryview | None) -> None:
        sent = self._sent.pop(key)
        self.sent_size -= sent.size
        sent.on_answer(answer)

    def tick(self) -> None:
        """Give up connections on which an answer is late: those behind it would be later still."""
        now_ms = self._clock.uptime_ms
        for node_id in {node_id: None for (node_id, _), sent in self._sent.items() if sent.due_ms <= now_ms}:
            self._outbox.effects.append(PeerClose(node_id, self._lane))
            self.on_closed(node_id)
