"""Who is at the other end of a connection, and what the broker remembers of it until it goes.

**Invariant:** a client without a principal has not authenticated: no handler sees a request of it.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.base.forms import PLAINTEXT
from tidelog.broker.refusals import Refusals
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
        "address",
        "connection",
        "listener",
        "port",
        "principal",
        "refusals",
        "repeated",
        "software",
        "throttle_time_ms",
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
        self.throttle_time_ms = 0  # told in every answer: how long it is kept waiting for its quotas
        self.refusals: Refusals | None = None  # of batches that will be sent again
        self.repeated: Repeated | None = None  # what it has sent and may send again
