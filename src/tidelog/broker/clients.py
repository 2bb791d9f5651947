"""Who is at the other end of a connection, and what the broker remembers of it until it goes.

**Invariant:** a client without a principal has not authenticated: no handler sees a request of it.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.base.forms import PLAINTEXT
from tidelog.broker.clock import Clock
from tidelog.broker.refusals import Refusals
from tidelog.broker.uses import Uses
from tidelog.broker.waiting import Parked
from tidelog.protocol.connection import Connection

ANONYMOUS = "User:ANONYMOUS"  # the principal of all who come in by a listener without authentication
_UNKNOWN_SOFTWARE = ("unknown", "unknown")


class Repeated(Protocol):
    """A request of a kind that clients send again and again, with little that differs."""

    def serve(self, frame: memoryview) -> Parked | None:
        """Serve one more, to be answered later; None, and nothing done, if it is another request."""
        ...


class Client:
    __slots__ = (
        "_clock",
        "address",
        "connection",
        "listener",
        "muted_until_ms",
        "port",
        "principal",
        "refusals",
        "repeated",
        "software",
        "uses",
    )

    def __init__(
        self,
        connection: Connection,
        peer: tuple[str, int] = ("", 0),
        listener: str = PLAINTEXT,
        principal: str | None = ANONYMOUS,
    ) -> None:
        self.connection = connection
        self.address, self.port = peer
        self.listener = listener  # the name of the one that it came in by
        self.principal = principal  # as whom it has authenticated, if it has
        self.software = _UNKNOWN_SOFTWARE  # its name and version, as it says by ApiVersions
        self.muted_until_ms = 0  # it is over a quota, and not read until then; 0 if it is not muted
        self._clock: Clock | None = None  # by which it is muted
        self.uses: Uses | None = None  # of its quotas, as the last request found them
        self.refusals: Refusals | None = None  # of batches that will be sent again
        self.repeated: Repeated | None = None  # what it has sent and may send again

    @property
    def throttle_time_ms(self) -> int:
        """Told in every answer: how long it is not read from now on, for being over its quotas (KIP-219)."""
        if not self.muted_until_ms or self._clock is None:
            return 0
        return max(self.muted_until_ms - self._clock.uptime_ms, 0)

    def mute(self, clock: Clock, until_ms: int) -> None:
        self._clock = clock
        self.muted_until_ms = max(self.muted_until_ms, until_ms)
