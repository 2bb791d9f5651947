"""What is done once every so often, counted in the broker's uptime."""

from __future__ import annotations


class Interval:
    """Says once every so often that it is time."""

    def __init__(self, every_ms: int) -> None:
        self._every_ms = every_ms
        self._next_ms: int | None = None

    def is_over(self, uptime_ms: int) -> bool:
        """True when the interval has passed since it was last True, or since the first call."""
        if self._next_ms is None:
            self._next_ms = uptime_ms + self._every_ms
        if uptime_ms < self._next_ms:
            return False
        self._next_ms = uptime_ms + self._every_ms
        return True
