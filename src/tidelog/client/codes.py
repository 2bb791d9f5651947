"""The error codes of brokers: their names, and which of them are retriable."""

from __future__ import annotations

from tidelog.protocol.errors import ErrorCode


def name_of(code: int) -> str:
    """An error code as written in Kafka's documentation."""
    try:
        return f"{ErrorCode(code).name.upper()} ({code})"
    except ValueError:
        return f"error code {code}"


def passes(code: int) -> bool:
    """Whether the same request may succeed a little later, perhaps at another broker."""
    try:
        return ErrorCode(code).retriable and code != ErrorCode.corrupt_message
    except ValueError:
        return False
