"""Timers of a state machine, in the order in which they expire.

Moving a timer to a later time only writes a field (a heartbeat does that thousands of times before
a session ends); its place in the queue is corrected when it reaches the front.

**Invariant:** a timer that was stopped or moved later never fires early; ties go by the order of setting.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from tidelog.base.limits import STALE_TIMERS_KEPT_MAX

Subject = TypeVar("Subject")
_IDLE = -1


class Timer(Generic[Subject]):
    __slots__ = ("due_ms", "queued_ms", "subject")

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.due_ms = _IDLE
        self.queued_ms = _IDLE  # when its queue entry reaches the front

    @property
    def is_set(self) -> bool:
        return self.due_ms != _IDLE


class Timers(Generic[Subject]):
    def __init__(self) -> None:
        self._queue: list[tuple[int, int, Timer[Subject]]] = []
        self._sequence = 0
        self._set_count = 0

    def set(self, timer: Timer[Subject], due_ms: int) -> None:
        if timer.due_ms == _IDLE:
            self._set_count += 1
        timer.due_ms = due_ms
        if timer.queued_ms > due_ms or timer.queued_ms == _IDLE:
            self._push(timer)

    def stop(self, timer: Timer[Subject]) -> None:
        self._set_count -= timer.is_set
        timer.due_ms = _IDLE

    def _push(self, timer: Timer[Subject]) -> None:
        if len(self._queue) > 2 * self._set_count + STALE_TIMERS_KEPT_MAX:
            self._queue = [entry for entry in self._queue if self._keep(entry)]
            heapify(self._queue)
        self._sequence += 1
        timer.queued_ms = timer.due_ms
        heappush(self._queue, (timer.due_ms, self._sequence, timer))

    @staticmethod
    def _keep(entry: tuple[int, int, Timer[Subject]]) -> bool:
        """Whether an entry stays in the queue; a stopped timer has none from then on."""
        queued_ms, _, timer = entry
        if timer.queued_ms == queued_ms and not timer.is_set:
            timer.queued_ms = _IDLE
        return timer.queued_ms == queued_ms

    def pop_due(self, now_ms: int) -> Subject | None:
        """The subject of the next expired timer, which is idle from now on; None if no timer has expired."""
        queue = self._queue
        while queue and queue[0][0] <= now_ms:
            entry = heappop(queue)
            queued_ms, _, timer = entry
            if timer.queued_ms != queued_ms:
                continue  # a stale entry: the timer was moved earlier and has fired
            timer.queued_ms = _IDLE
            if not timer.is_set:
                continue
            if timer.due_ms > now_ms:
                self._push(timer)
                continue
            self.stop(timer)
            return timer.subject
        return None

    @property
    def next_ms(self) -> int | None:
        """A lower bound for the next expiry, or None."""
        return self._queue[0][0] if self._queue else None
