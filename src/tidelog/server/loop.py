"""The broker on the event loop: what comes in, one after the other, and what each of it leads to.

| input                           | by                                 | then                             |
|---------------------------------|------------------------------------|----------------------------------|
| frames of clients               | `Requests.serve`, from the sockets | `end_turn`, for all that came    |
| a frame of another broker       | `on_peer_frame`, from the sockets  | the same                         |
| its connection has ended        | `on_peer_closed`                   | `settle`                         |
| a job has ended                 | `on_job_ended`                     | `settle`                         |
| an event of the store           | `StoreLink`                        | `settle`                         |
| time                            | a row of the schedule              | `settle`                         |

**Invariant:** the broker is touched on the loop only, with its clock set before; what it asks for is
carried out before the next input, but for the frames of one turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tidelog.base.clock import monotonic_ms, wall_ms
from tidelog.base.events import Event, error
from tidelog.base.limits import HAND_OVER_SECONDS_MAX, TICK_MS
from tidelog.base.metrics import SECOND_NS, Histogram
from tidelog.base.schedule import Schedule
from tidelog.broker.broker import Broker
from tidelog.broker.outbox import Effect, Job
from tidelog.server.life import Life
from tidelog.server.watch.report import trace_of


class BrokerLoop:
    def __init__(
        self,
        broker: Broker,
        life: Life,
        loop: asyncio.AbstractEventLoop,
        lag: Histogram,
        tell: Callable[[Event], None],
    ) -> None:
        self._broker = broker
        self._life = life
        self._loop = loop
        self._lag = lag
        self._tell = tell
        self._send_answers: Callable[[], bool]
        self._carry_out: Callable[[list[Effect]], None]
        self._schedule: Schedule
        self._timer: asyncio.TimerHandle | None = None
        self._next_tick_ms = 0
        self._unneeded: asyncio.Event | None = None  # while leaderships are handed over
        self._is_working = False  # what takes long is about to have its next turn

    def connect(self, send_answers: Callable[[], bool], carry_out: Callable[[list[Effect]], None]) -> None:
        """Before the first input: `send_answers` sends a portion and says whether there may be more."""
        self._send_answers = send_answers
        self._carry_out = carry_out

    def set_time(self) -> None:
        self._broker.clock.set(wall_ms(), monotonic_ms())

    # Inputs.

    def end_turn(self) -> None:
        """Some clients have been served."""
        if not self._life.is_stopping:
            self._broker.transacting.write()
            self.settle()

    def on_peer_frame(self, node_id: int, lane: int, frame: memoryview) -> None:
        self.set_time()
        try:
            self._broker.on_peer_frame(node_id, lane, frame)
        except Exception as bug:
            self._tell(error("peer response failed", peer=node_id, traceback=trace_of(bug)))

    def on_peer_closed(self, node_id: int, lane: int) -> None:
        self.set_time()
        self._broker.on_peer_closed(node_id, lane)
        self.settle()

    def on_job_ended(self, job: Job, failure: OSError | None) -> None:
        self.set_time()
        job.on_done(failure)

    # What they lead to.

    def settle(self) -> None:
        """After any input: answer some of those who waited, run what the broker asked for."""
        broker, life = self._broker, self._life
        has_more = self._send_answers()
        outbox = broker.outbox
        if outbox.effects:
            self._carry_out(outbox.take_effects())
        if outbox.events:
            self.tell_events()
        if broker.is_failing and broker.has_failed:
            life.fail("every log directory is offline")
        if self._unneeded is not None and not broker.replicas.is_needed:
            self._unneeded.set()
        if (has_more or broker.has_work) and not self._is_working:
            self._is_working = True
            self._loop.call_soon(self._work)
        deadline_ms = None if has_more else broker.next_due_ms
        if deadline_ms is not None and deadline_ms < self._next_tick_ms and not life.is_stopping:
            self._tick_in(max(deadline_ms - broker.clock.uptime_ms, 1))

    def tell_events(self) -> None:
        for event in self._broker.outbox.take_events():
            self._tell(event)

    def _work(self) -> None:
        """One piece of what takes long, between the turns of clients."""
        self._is_working = False
        if not self._life.is_stopping:
            self.set_time()
            if self._broker.has_work:
                self._broker.work()
            self.settle()

    # Time.

    def start(self, schedule: Schedule) -> None:
        """Have this done as time passes, from now on."""
        self._schedule = schedule
        self._on_tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick_in(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_tick_ms = self._broker.clock.uptime_ms + delay_ms
        self._timer = self._loop.call_later(delay_ms / 1_000, self._on_tick)

    def _on_tick(self) -> None:
        if self._timer is not None:
            late_s = self._loop.time() - self._timer.when()
            self._lag.observe(max(int(late_s * SECOND_NS), 0))
        self.set_time()
        self._tick_in(TICK_MS)
        self._schedule.tick(self._broker.clock.uptime_ms)

    async def hand_over(self) -> None:
        """Let others lead before this broker goes, if there are any; not for ever."""
        self.set_time()
        self._broker.registration.announce_stop()
        self.settle()
        if self._broker.replicas.is_needed:
            self._unneeded = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._unneeded.wait(), HAND_OVER_SECONDS_MAX)
