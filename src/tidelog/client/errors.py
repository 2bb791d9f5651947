"""What a client can be told, each with a message that names what it is about and what to do.

| exception                                    | whose matter it is                                       |
|----------------------------------------------|----------------------------------------------------------|
| `ConnectionLost`                             | passes: tried again until the time is over               |
| `GaveUp`                                     | the time was over; says what was tried and why it failed |
| `BadProperty`, `AuthenticationFailed`        | the user's properties                                    |
| `MalformedAnswer`, `UnsupportedByBroker`     | the other end is no broker, or a strange one             |
| `Refused`                                    | an error code that no patience changes                   |
| `TopicGone`, `OffsetOutOfRange`              | data that is no longer there: the caller decides         |
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
    """No connection, or one that broke, or a broker that did not answer in time."""


class AuthenticationFailed(ClientError):
    """The broker does not accept us, or we do not accept it."""


class MalformedAnswer(ClientError):
    """Bytes that are no answer to what was asked."""


class UnsupportedByBroker(ClientError):
    """The broker speaks no version of an API that we speak."""


class GaveUp(ClientError):
    """What passes did not pass in time."""


class Refused(ClientError):
    """The broker answered with an error code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


class TopicGone(ClientError):
    """The topic was deleted, or made again under another id, or never had that partition."""


class OffsetOutOfRange(ClientError):
    """The log does not reach that far, or no longer begins that early; -1 where a limit is not known."""

    def __init__(self, message: str, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(message, offset, log_start_offset, log_end_offset)
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset

    def __str__(self) -> str:
        return str(self.args[0])


class DamagedBatch(ClientError):
    """A record batch whose header cannot be."""


class ReadTimedOut(ClientError):
    """No record came in time, and the log says that there should be some."""


class SendFailed(ClientError):
    """A batch that was not acknowledged and will not be."""
