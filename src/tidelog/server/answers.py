"""Answers of requests that have waited: made in portions, each sent before the next one is made.

One record may wake everybody who waits for its partition, and thousands may wait until the same moment.
Each costs about as much as a request, so they have a turn as the sockets have, and the rest goes on after
others were served.

**Invariant:** a portion ends within one look of `TURN_NS_LONG`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic_ns

from tidelog.base.limits import TURN_NS_LONG
from tidelog.base.metrics import MILLISECOND_NS, Histogram
from tidelog.broker.broker import Broker
from tidelog.protocol.connection import Connection
from tidelog.server.transport import Transport


class Answers:
    def __init__(
        self, broker: Broker, transports: Mapping[Connection, Transport], times: Sequence[Histogram]
    ) -> None:
        self._broker = broker
        self._transports = transports
        self._times = times  # by API key

    def send(self) -> bool:
        """A portion of those that can be answered now; whether there may be more."""
        waiting = self._broker.waiting
        if waiting.answered:
            self._send_answered()
        if not waiting.has_woken:
            return False
        until_ns = monotonic_ns() + TURN_NS_LONG
        waiting.find_woken()
        while waiting.wake_next():  # each goes to work on its answer while the next one gets its own
            if waiting.answered:
                self._send_answered()
            if monotonic_ns() >= until_ns:
                return waiting.has_woken
        return False

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
