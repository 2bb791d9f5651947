"""What can be wrong with bytes that came over the wire or from a disk.

**Invariant:** everything in this room that reads bytes raises one of these and nothing else.
"""

from kio.schema.errors import ErrorCode

__all__ = ["CorruptBatch", "ErrorCode", "MalformedRequest", "OversizedBatch", "RefusedBatch"]


class MalformedRequest(Exception):
    """The bytes are not a request of the version they claim; the connection is closed."""


class CorruptBatch(Exception):
    """A record batch, or the records inside it, contradict themselves."""


class OversizedBatch(CorruptBatch):
    """Compressed bytes that unfold to more than is taken."""


class RefusedBatch(Exception):
    """A batch that must not be appended: the protocol's error code and the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
