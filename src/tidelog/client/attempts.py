"""Retries: for how long, and with which pauses.

**Invariant:** `again` returns only while there is time left; then it raises, with the last problem inside.
"""

from __future__ import annotations

import time

from tidelog.client.errors import ClientError, GaveUp, TopicGone
from tidelog.client.properties import Properties, read_number

# A broker may not know yet a topic that another broker has just created: a topic counts as deleted only
# after it has been missing for so long.
GONE_AFTER_SECONDS = 2.0


class Attempts:
    """The attempts of one operation, timed from its creation."""

    def __init__(self, what: str, timeout_ms: int, properties: Properties) -> None:
        self._what = what
        self._timeout_ms = timeout_ms
        self._started = time.monotonic()
        self._gone_since: float | None = None
        self._backoff_ms = read_number(properties, "retry.backoff.ms", 100)
        self._backoff_ms_max = max(self._backoff_ms, read_number(properties, "retry.backoff.max.ms", 1_000))

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._timeout_ms / 1_000 - self.elapsed_seconds)

    def again(self, problem: ClientError) -> None:
        """Pause before the next attempt, with increasing pauses; raise when the time is over."""
        self._note_gone(problem)
        seconds = self._backoff_ms / 1_000
        if seconds >= self.seconds_left:
            if isinstance(problem, TopicGone):
                raise problem
            raise GaveUp(f"{self._what}: gave up after {self._timeout_ms} ms: {problem}") from problem
        time.sleep(seconds)
        self._backoff_ms = min(self._backoff_ms * 2, self._backoff_ms_max)

    def _note_gone(self, problem: ClientError) -> None:
        if not isinstance(problem, TopicGone):
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = time.monotonic()
        elif time.monotonic() - self._gone_since >= GONE_AFTER_SECONDS:
            raise problem
