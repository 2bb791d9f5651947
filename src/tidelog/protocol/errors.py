"""What can be wrong: with bytes that came over the wire or from a disk, and with what they ask for.

**Invariant:** everything in this room that reads bytes raises only these.
"""

from typing import NamedTuple

from kio.schema.errors import ErrorCode

__all__ = ["CorruptBatch", "ErrorCode", "MalformedRequest", "OversizedBatch", "Problem", "RefusedBatch"]


class Problem(NamedTuple):
    """Why something that was asked for is not done, as its client hears it; without an error it is done."""

    error: ErrorCode
    message: str


class MalformedRequest(Exception):
    """The bytes are not a request of the version they claim; the connection is closed."""


class CorruptBatch(Exception):
    """A record batch, or its records, are inconsistent."""


class OversizedBatch(CorruptBatch):
    """Compressed bytes that decompress to more than the limit."""


class RefusedBatch(Exception):
    """A batch that must not be appended: the protocol's error code and the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
