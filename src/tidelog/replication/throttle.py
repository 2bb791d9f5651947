"""How fast replicas that are not in sync may be filled: Kafka's replication throttle (KIP-73).

A topic names the replicas that are throttled, by partition and broker, or all; a broker has a rate for what
it gives to such followers, and one for what it takes as one. What has gone over is a debt that is paid off at
the rate: while there is one, nothing more is given, or asked for.

**Invariant:** a replica in sync is never held back. No time is kept but what is passed in.
"""

from __future__ import annotations

from tidelog.base.config import TopicSettings

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
NO_LIMIT = 2**63 - 1
ALL = "*"


def is_throttled(settings: TopicSettings, name: str, index: int, node_id: int) -> bool:
    """Whether a topic's setting of that name has a partition on a broker among the throttled."""
    words = settings.overrides.get(name, "").split(",")
    return ALL in words or f"{index}:{node_id}" in words


class Throttle:
    """What went over one of a broker's rates, in bytes a second."""

    __slots__ = ("_debt", "_noted_ms")

    def __init__(self) -> None:
        self._debt = 0  # in thousandths of a byte
        self._noted_ms = 0

    def record(self, size: int, rate: int, now_ms: int) -> None:
        self.wait_ms(rate, now_ms)
        self._debt += size * 1_000

    def wait_ms(self, rate: int, now_ms: int) -> int:
        """How long until all is paid off; 0 if it is."""
        rate = max(rate, 1)
        self._debt = max(self._debt - rate * max(now_ms - self._noted_ms, 0), 0)
        self._noted_ms = now_ms
        return -(-self._debt // rate)
