"""The errors of the client; each message names what it is about and what to do.

| exception                                    | cause                                                    |
|----------------------------------------------|----------------------------------------------------------|
| `ConnectionLost`                             | temporary: retried until the time is over                |
| `GaveUp`                                     | the time is over; says what was tried and why it failed  |
| `BadProperty`, `AuthenticationFailed`        | the user's properties                                    |
| `MalformedAnswer`, `UnsupportedByBroker`     | the other end is not a broker, or an incompatible one    |
| `Refused`                                    | an error code that is not retriable                      |
| `TopicGone`, `OffsetOutOfRange`              | data that no longer exists: the caller decides           |
| `DamagedBatch`, `ReadTimedOut`, `SendFailed` | one partition                                            |

**Invariant:** imports nothing that takes long to load: Spark's processes need these names for every batch.
"""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ClientError(Exception):
    """Anything this room raises on purpose."""


class BadProperty(ClientError):
    """A client property that cannot be used."""


class ConnectionLost(ClientError):
    """No connection, a broken one, or a broker that did not answer in time."""


class AuthenticationFailed(ClientError):
    """The broker rejects our credentials, or we do not trust the broker."""


class MalformedAnswer(ClientError):
    """Bytes that are not an answer to the request."""


class UnsupportedByBroker(ClientError):
    """The broker supports no version of an API that this client supports."""


class GaveUp(ClientError):
    """A temporary problem lasted too long."""


class Refused(ClientError):
    """The broker answered with an error code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


class TopicGone(ClientError):
    """The topic was deleted, or recreated under another id, or never had that partition."""


class OffsetOutOfRange(ClientError):
    """The log ends before that offset, or begins after it; -1 for an unknown limit."""

    def __init__(self, message: str, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(message, offset, log_start_offset, log_end_offset)
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset

    def __str__(self) -> str:
        return str(self.args[0])


class DamagedBatch(ClientError):
    """A record batch with an impossible header."""


class ReadTimedOut(ClientError):
    """No record came in time, although the log has some."""


class SendFailed(ClientError):
    """A batch that is not acknowledged and will not be sent again."""
