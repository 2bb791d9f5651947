"""Frames of one client to the broker, for one turn of that client.

**Invariant:** one client's pipelined requests do not keep the loop from the others: the turn ends by its
time, and the rest of the frames is kept back. A bug in one request ends one connection.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from time import monotonic_ns, time_ns

from tidelog.base.events import Event, debug, error
from tidelog.base.limits import ANSWERS_PER_FLUSH, PIPELINED_REQUESTS_MAX, TURN_MS_MAX
from tidelog.base.metrics import DURATION_BOUNDS_NS, MILLISECOND_NS, Histogram
from tidelog.broker.broker import Broker
from tidelog.handlers.table import dispatch
from tidelog.protocol.errors import MalformedRequest
from tidelog.server.answers import NOT_SERVED
from tidelog.server.transport import Transport
from tidelog.server.watch.report import trace_of

TURN_NS_MAX = TURN_MS_MAX * MILLISECOND_NS  # as the loop counts
SLOW_NS = 100 * MILLISECOND_NS


class Requests:
    def __init__(self, broker: Broker, times: Sequence[Histogram], tell: Callable[[Event], None]) -> None:
        self._broker = broker
        self._times = times  # by API key
        self._tell = tell

    def serve(self, transport: Transport, frames: list[memoryview]) -> None:
        broker = self._broker
        begun_ns = before_ns = monotonic_ns()
        broker.clock.set(time_ns() // MILLISECOND_NS, begun_ns // MILLISECOND_NS)
        transport.last_active_ms = transport.last_served_ms = broker.clock.uptime_ms
        client, connection = transport.client, transport.connection
        quotas = broker.quotas
        times = self._times
        is_kept = False
        try:
            for place, frame in enumerate(frames):
                if place and (before_ns - begun_ns >= TURN_NS_MAX or transport.is_choked):
                    transport.keep(frames[place:])
                    is_kept = True
                    break
                api_key = dispatch(broker, client, frame)
                now_ns = monotonic_ns()
                if quotas.is_on:
                    quotas.end(now_ns - before_ns)
                if api_key >= 0:  # `Histogram.observe`, without the call
                    took_ns = now_ns - before_ns
                    histogram = times[api_key]
                    histogram.counts[bisect_left(DURATION_BOUNDS_NS, took_ns)] += 1
                    histogram.sum += took_ns
                before_ns = now_ns
                if len(connection.output) >= ANSWERS_PER_FLUSH:
                    transport.flush()
                    if transport.is_closed:
                        break
        except MalformedRequest as problem:
            transport.flush()
            transport.close(str(problem))
        except Exception as bug:
            transport.close(NOT_SERVED)
            self._tell(error("request failed", peer=transport.peer, traceback=trace_of(bug)))
        else:
            if (
                connection.output
                or is_kept
                or client.muted_until_ms
                or len(connection.slots) >= PIPELINED_REQUESTS_MAX
            ):
                transport.flush()
        if before_ns - begun_ns >= SLOW_NS:
            took_ms = (before_ns - begun_ns) // MILLISECOND_NS
            self._tell(
                debug("slow turn detected", peer=transport.peer, requests=len(frames), took_ms=took_ms)
            )
