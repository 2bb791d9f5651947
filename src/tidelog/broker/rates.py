"""How much of something came lately: Kafka's sampled rate, and its bucket of tokens (KIP-599).

A `Rate` has samples of one window each and divides their sum by the time since the oldest of them began, or
by all windows but one where fewer have passed: the first window may take a burst of ten. It says what
`SampledStat` and `Rate` of Kafka's metrics say, so that clients are throttled as they would be there.

**Invariant:** time is the process's uptime, which never goes back; a rate that nobody has used for all its
windows is as good as a new one.
"""

from __future__ import annotations

from math import floor

from tidelog.base.limits import THROTTLE_MS_MAX

SECOND_MS = 1_000


class Rate:
    __slots__ = (
        "_current",
        "_expiry_ms",
        "_lasts",
        "_oldest_ms",
        "_purge_ms",
        "_sample_count_max",
        "_span_ms_min",
        "_starts",
        "_total",
        "_values",
        "_window_ms",
    )

    def __init__(self, sample_count: int, window_ms: int, now_ms: int) -> None:
        self._window_ms = window_ms
        self._sample_count_max = sample_count + 1  # one more than are measured: the oldest overlaps them
        self._span_ms_min = (sample_count - 1) * window_ms
        self._expiry_ms = sample_count * window_ms
        self._starts = [now_ms]
        self._lasts = [now_ms]
        self._values = [0.0]
        self._current = 0
        self._total = 0.0
        self._oldest_ms = now_ms
        self._purge_ms = now_ms + self._expiry_ms  # no sample is too old before that

    def record(self, value: float, now_ms: int) -> None:
        current = self._current
        if now_ms - self._starts[current] >= self._window_ms:
            current = self._advance(now_ms)
        self._values[current] += value
        self._lasts[current] = now_ms
        self._total += value

    def _advance(self, now_ms: int) -> int:
        current = self._current = (self._current + 1) % self._sample_count_max
        if current >= len(self._starts):
            self._starts.append(now_ms)
            self._lasts.append(now_ms)
            self._values.append(0.0)
        else:
            self._reset(current, now_ms)
            self._after_resets()
        return current

    def _reset(self, place: int, now_ms: int) -> None:
        self._starts[place] = self._lasts[place] = now_ms
        self._values[place] = 0.0

    def _after_resets(self) -> None:
        self._total = sum(self._values)
        self._oldest_ms = min(self._starts)
        self._purge_ms = min(self._lasts) + self._expiry_ms

    def _purge(self, now_ms: int) -> None:
        for place, last_ms in enumerate(self._lasts):
            if now_ms - last_ms >= self._expiry_ms:
                self._reset(place, now_ms)
        self._after_resets()

    def span_ms(self, now_ms: int) -> int:
        """The time that the rate is of, from the oldest sample on, and the windows that are missing."""
        if now_ms >= self._purge_ms:
            self._purge(now_ms)
        elapsed_ms = now_ms - self._oldest_ms
        missing = self._sample_count_max - 2 - elapsed_ms // self._window_ms
        return elapsed_ms + missing * self._window_ms if missing > 0 else elapsed_ms

    def total(self, now_ms: int) -> float:
        """What was recorded in the samples that count."""
        if now_ms >= self._purge_ms:
            self._purge(now_ms)
        return self._total

    def per_second(self, now_ms: int) -> float:
        span_ms = self.span_ms(now_ms)
        return self._total * SECOND_MS / span_ms if span_ms else 0.0

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long a client over this limit per second must wait to be within it; 0 if it is not over it."""
        if now_ms >= self._purge_ms:
            self._purge(now_ms)
        if self._total * SECOND_MS <= limit * self._span_ms_min:  # mostly: no need to know the span
            return 0
        span_ms = self.span_ms(now_ms)
        bound = limit * span_ms / SECOND_MS
        if self._total <= bound or not span_ms:
            return 0
        if limit <= 0:
            return THROTTLE_MS_MAX
        return min(floor((self._total - bound) / bound * span_ms + 0.5), THROTTLE_MS_MAX)

    def is_unused(self, now_ms: int) -> bool:
        """Nothing that was recorded counts any more."""
        return now_ms - max(self._lasts) >= self._expiry_ms or not any(self._values)


class Bucket:
    """Tokens that come at a rate, up to a burst; who takes more than there are owes them."""

    __slots__ = ("_last_ms", "_seconds_max", "_tokens")

    def __init__(self, sample_count: int, window_ms: int, limit: float, now_ms: int) -> None:
        self._seconds_max = sample_count * window_ms / SECOND_MS  # of the rate that are kept
        self._tokens = self._seconds_max * limit
        self._last_ms = now_ms

    def tokens(self, limit: float, now_ms: int) -> float:
        came = limit * (now_ms - self._last_ms) / SECOND_MS
        self._tokens = min(self._seconds_max * limit, self._tokens + came)
        self._last_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> None:
        self._tokens = min(self._seconds_max * limit, self.tokens(limit, now_ms) - count)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long until nothing is owed."""
        tokens = self.tokens(limit, now_ms)
        if tokens >= 0:
            return 0
        return (
            min(floor(-tokens / limit * SECOND_MS + 0.5), THROTTLE_MS_MAX) if limit > 0 else THROTTLE_MS_MAX
        )

    def is_full(self, limit: float, now_ms: int) -> bool:
        return self.tokens(limit, now_ms) >= self._seconds_max * limit
