"""Answers of requests that have waited: made in portions, each sent before the next one is made.

One record may wake everybody who waits for its partition, and thousands may wait until the same moment.
Each costs about as much as a request, so they have a turn as the sockets have, and the rest goes on after
others were served.

**Invariant:** a portion ends within one look of `TURN_NS_LONG`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic_ns

from tidelog.base.events import Event, error
from tidelog.base.limits import TURN_NS_LONG
from tidelog.base.metrics import MILLISECOND_NS, Histogram
from tidelog.broker.broker import Broker
from tidelog.protocol.connection import Connection
from tidelog.server.transport import Transport
from tidelog.server.watch.report import trace_of

NOT_SERVED = "a request could not be served"


class Answers:
    def __init__(
        self,
        broker: Broker,
        transports: Mapping[Connection, Transport],
        times: Sequence[Histogram],
        tell: Callable[[Event], None],
    ) -> None:
        self._broker = broker
        self._transports = transports
        self._times = times  # by API key
        self._tell = tell

    def send(self) -> bool:
        """A portion of those that can be answered now; whether there may be more."""
        waiting = self._broker.waiting
        has_more = False
        if waiting.answered:
            self._send_answered()
        if waiting.has_woken:
            has_more = self._send_woken(monotonic_ns() + TURN_NS_LONG)
        if waiting.failed:
            self._close_failed()
        return has_more

    def _send_woken(self, until_ns: int) -> bool:
        waiting = self._broker.waiting
        waiting.find_woken()
        while waiting.wake_next():  # each goes to work on its answer while the next one gets its own
            if waiting.answered:
                self._send_answered()
            if monotonic_ns() >= until_ns:
                return waiting.has_woken
        return False

    def _close_failed(self) -> None:
        waiting = self._broker.waiting
        failed, waiting.failed = waiting.failed, []
        for parked, bug in failed:
            assert parked.connection is not None
            transport = self._transports.get(parked.connection)
            if transport is not None:
                transport.close(NOT_SERVED)
                self._tell(error("request failed", peer=transport.peer, traceback=trace_of(bug)))

    def _send_answered(self) -> None:
        waiting, uptime_ms = self._broker.waiting, self._broker.uptime_ms
        answered, waiting.answered = waiting.answered, []
        for parked in answered:
            assert parked.connection is not None
            transport = self._transports.get(parked.connection)
            if transport is not None:
                transport.flush()
        for parked in answered:
            self._times[parked.api_key].observe((uptime_ms - parked.parked_ms) * MILLISECOND_NS)
