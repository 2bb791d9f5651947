"""What is used of quotas, by whom, and what a connection remembers of that.

**Invariant:** a use is measured, and says nothing of what follows from it: `Quotas` does.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.broker.rates import Bucket, Rate
from tidelog.cluster.quotas import MUTATION_RATE

CLIENT_ID_POSITION = 8  # of a request's frame: two bytes with its size, then the client id


class Owner(NamedTuple):
    """Who shares a use: all clients of a user, those of a client id, or those of both."""

    key: str  # of the quota
    user: str
    client_id: str


class Use:
    """What is used of one quota."""

    __slots__ = ("bucket", "last_ms", "limit", "owner", "rate", "throttles", "times")

    def __init__(self, owner: Owner, limit: float, windows: tuple[int, int], now_ms: int) -> None:
        self.owner = owner
        self.limit = limit
        self.rate = Rate(*windows, now_ms)
        self.bucket = Bucket(*windows, limit, now_ms) if owner.key == MUTATION_RATE else None
        self.throttles = Rate(*windows, now_ms)  # how many, and their times
        self.times = Rate(*windows, now_ms)
        self.last_ms = now_ms

    def is_as_new(self, now_ms: int) -> bool:
        if self.bucket is not None and not self.bucket.is_full(self.limit, now_ms):
            return False
        return self.rate.is_unused(now_ms)

    def note_throttle(self, throttle_ms: int, now_ms: int) -> None:
        self.throttles.record(1, now_ms)
        self.times.record(throttle_ms, now_ms)

    def throttle_time_ms(self, now_ms: int) -> float:
        """On average, of the last windows."""
        count = self.throttles.total(now_ms)
        return self.times.total(now_ms) / count if count else 0.0


class Uses:
    """What a client uses of the quotas that it has, as `Quotas` has found them."""

    __slots__ = ("client_id", "epoch", "fetch", "head", "mutation", "principal", "produce", "request")

    def __init__(
        self,
        epoch: int,
        principal: str | None,
        head: bytes,
        client_id: str,
        produce: Use | None,
        fetch: Use | None,
        request: Use | None,
        mutation: Use | None,
    ) -> None:
        self.epoch = epoch
        self.principal = principal
        self.head = head  # the client id, as requests have it in their header; empty if it is too long
        self.client_id = client_id
        self.produce = produce
        self.fetch = fetch
        self.request = request
        self.mutation = mutation

    def are_of(self, principal: str | None, frame: memoryview) -> bool:
        """Whether a request is the same client's."""
        head = self.head
        is_named = bool(head) and frame[CLIENT_ID_POSITION : CLIENT_ID_POSITION + len(head)] == head
        return is_named and principal == self.principal
