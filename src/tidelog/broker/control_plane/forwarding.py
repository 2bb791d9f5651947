"""Requests that are the controller's, handed on by the broker that got them (as in KRaft).

A request goes as it came, under a number of this broker's; the answer goes back under the client's own. A
broker that needs a topic itself (for a client that named one, or for groups) asks the controller in the same
way.

**Invariant:** a request is forwarded once, or served here if this broker has become the controller by then;
without an answer its client is told to try again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.base.limits import CONTROLLER_WAIT_MS, FORWARD_WAIT_MS, FORWARDED_BYTES_MAX
from tidelog.broker.asking import Asking, Frame, OnAnswer
from tidelog.broker.control_plane.control import Control
from tidelog.broker.kernel import Kernel
from tidelog.broker.peers import FORWARD
from tidelog.broker.waiting import Parked, WaitingRoom
from tidelog.cluster.facts import NOBODY
from tidelog.cluster.image import Image
from tidelog.protocol.connection import Answer


class Unsent(NamedTuple):
    """What waits for a controller."""

    frame: Frame
    on_answer: OnAnswer
    serve: Callable[[], None]  # for when this broker becomes the controller itself
    due_ms: int


class Forwarded(Parked):
    """A client's request that another broker answers."""

    __slots__ = ("_refuse",)

    def __init__(self, deadline_ms: int, refuse: Callable[[], Answer | None]) -> None:
        super().__init__(deadline_ms, [])
        self._refuse = refuse

    def finish_late(self) -> Answer | None:
        return self._refuse()


class Forwarding:
    def __init__(self, kernel: Kernel, image: Image, control: Control, waiting: WaitingRoom) -> None:
        self._node_id = kernel.node_id
        self._clock = kernel.clock
        self._image = image
        self._control = control
        self._waiting = waiting
        self.asking = Asking(kernel, image, FORWARD, FORWARD_WAIT_MS)
        self._unsent: list[Unsent] = []
        self._unsent_size = 0  # of their frames
        self._topic_waiters: dict[str, list[tuple[Callable[[], None], int]]] = {}

    def forward(
        self,
        frame: Frame,
        correlation_id: int,
        handle: Callable[[], Answer | Parked | None],
        timeout_ms: int | None = None,
        hear: Callable[[bytearray], None] | None = None,
    ) -> Forwarded:
        """Hand a client's frame, in its envelope, on to the controller, and wait for as long as the client
        does, if it says. To `handle` it is to answer it here, also where too much was handed on already;
        `hear` gets the controller's answer before the client does. The frame's memory is its own."""
        wait_ms = FORWARD_WAIT_MS
        if timeout_ms is not None:
            wait_ms = min(timeout_ms + CONTROLLER_WAIT_MS, FORWARD_WAIT_MS)

        def refuse() -> Answer | None:
            answered = handle()
            if not isinstance(answered, Parked):
                return answered
            if not answered.is_gone:  # this broker has become the controller, and the store has it now
                answered.is_gone, answered.early = True, answered.finish_late()
            return answered.early

        parked = Forwarded(self._clock.uptime_ms + wait_ms, refuse)

        def on_answer(answer: memoryview | None) -> None:
            if answer is None:
                if not parked.is_gone:
                    self._waiting.finish(parked, refuse())
                return
            head = len(answer).to_bytes(4, "big") + correlation_id.to_bytes(4, "big")
            whole = bytearray().join((head, answer[4:]))
            if hear is not None and not parked.is_gone:
                hear(whole)
            self._waiting.finish(parked, whole)

        def serve() -> None:
            if parked.is_gone:
                return
            answered = handle()
            if not isinstance(answered, Parked):
                self._waiting.finish(parked, answered)
            elif answered.is_gone:
                self._waiting.finish(parked, answered.early)
            else:
                self._waiting.replace(parked, answered)

        held_size = (
            self._unsent_size + self.asking.sent_size
        )  # both kept: they may be answered here after all
        if held_size and held_size + len(frame) > FORWARDED_BYTES_MAX:
            parked.is_gone, parked.early = True, refuse()
        else:
            self.send(frame, on_answer, serve, wait_ms)
        return parked

    def send(
        self, frame: Frame, on_answer: OnAnswer, serve: Callable[[], None], wait_ms: int = FORWARD_WAIT_MS
    ) -> None:
        """Send a frame (without its size) to the controller, now or when there is one."""
        self._unsent.append(Unsent(frame, on_answer, serve, self._clock.uptime_ms + wait_ms))
        self._unsent_size += len(frame)
        self._send()

    def _send(self) -> None:
        if self._control.is_controller:
            while self._unsent:
                first = self._unsent.pop(0)
                self._unsent_size -= len(first.frame)
                first.serve()
            return
        node_id = self._control.controller_id
        address = self._image.brokers.get(node_id)
        if node_id in (NOBODY, self._node_id) or address is None:
            return
        unsent, self._unsent = self._unsent, []
        for frame, on_answer, _, _ in unsent:
            self._unsent_size -= len(frame)
            self.asking.ask(node_id, frame, on_answer)

    def tick(self) -> None:
        self._send()
        now_ms = self._clock.uptime_ms
        late = [each for each in self._unsent if each.due_ms <= now_ms]
        self._unsent = [each for each in self._unsent if each.due_ms > now_ms]
        for each in late:
            self._unsent_size -= len(each.frame)
            each.on_answer(None)
        self.asking.tick()
        self.note_topics()

    # Topics that somebody here waits for.

    def when_known(self, name: str, then: Callable[[], None]) -> None:
        """Tell when the image has a topic, or has not got it in time."""
        deadline_ms = self._clock.uptime_ms + FORWARD_WAIT_MS
        self._topic_waiters.setdefault(name, []).append((then, deadline_ms))
        self.note_topics()

    def note_topics(self) -> None:
        if not self._topic_waiters:
            return
        now_ms, topics = self._clock.uptime_ms, self._image.topics
        for name in list(self._topic_waiters):
            waiters = self._topic_waiters[name]
            done = [then for then, due_ms in waiters if name in topics or due_ms <= now_ms]
            left = [each for each in waiters if each[0] not in done]
            if left:
                self._topic_waiters[name] = left
            else:
                del self._topic_waiters[name]
            for then in done:
                then()
