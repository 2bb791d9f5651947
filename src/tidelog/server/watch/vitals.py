"""The shell's own numbers: how long requests, fsyncs and store calls took, and how late the loop was.

What the core counts stands on `Partition`, `WaitingRoom` and `Broker`; what it cannot know, because it has
no clock and no socket, stands here.

**Invariant:** fed on the loop only, by additions; nothing is made or looked up per request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from time import perf_counter, thread_time

from tidelog.base.clock import monotonic_ms
from tidelog.base.forms import PLAINTEXT
from tidelog.base.limits import API_KEY_MAX
from tidelog.base.metrics import RECENT_TURNS, Histogram, Recent
from tidelog.broker.outbox import JobKind

TURN_MS = 60_000  # quantiles and the idle share are of the last five of these


class Vitals:
    def __init__(self, listeners: Iterable[str] = (PLAINTEXT,)) -> None:
        self.request_times = [Histogram() for _ in range(API_KEY_MAX + 1)]  # by API key
        self.fsync_times = Histogram()
        self.job_times = {JobKind.FLUSH: self.fsync_times}  # of the kinds that are measured
        self.store_times = Histogram()
        self.loop_lag = Histogram()
        self.recent_requests = [Recent(times) for times in self.request_times]
        self.recent_fsyncs = Recent(self.fsync_times)
        self.accepted_counts = dict.fromkeys(listeners, 0)  # connections since the start, by listener
        self.refused_count = 0  # for the limits' sake
        self.broken_count = 0  # closed for a cause that was the client's
        self._clocks: deque[tuple[float, float]] = deque(maxlen=RECENT_TURNS)
        self._started_ms = monotonic_ms()

    def turn(self) -> None:
        """Begin a new stretch of the recent past: every `TURN_MS`."""
        self._clocks.append((perf_counter(), thread_time()))
        for recent in (*self.recent_requests, self.recent_fsyncs):
            recent.turn()

    @property
    def uptime_ms(self) -> int:
        """Since the shell was made."""
        return monotonic_ms() - self._started_ms

    @property
    def idle_share(self) -> float:
        """How much of the recent past the loop's thread did not use; asked on the loop."""
        if not self._clocks:
            return 1.0
        since, used = self._clocks[0]
        passed = perf_counter() - since
        return 1.0 - min(max((thread_time() - used) / passed, 0.0), 1.0) if passed > 0 else 1.0
