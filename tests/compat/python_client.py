"""What aiokafka and kafka-python have in common: the one grew out of the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from tests.compat.client import CODECS, Acknowledged, Acks, Received, Sent

ACKS: dict[str, int | str] = {"0": 0, "1": 1, "all": "all"}
TIMESTAMP_TYPES: dict[int, Literal["create", "append"]] = {0: "create", 1: "append"}
BUILT_IN = ("none", "gzip")


class PythonClient:
    """`codec` is the client's module of codecs, which knows what is installed."""

    sets_timestamps = True
    sends_both_null = False

    def __init__(self, bootstrap: str, codec: Any) -> None:
        self.bootstrap = bootstrap
        self.codecs = tuple(name for name in CODECS if name in BUILT_IN or getattr(codec, f"has_{name}")())


def producer_settings(codec: str, acks: Acks, idempotent: bool) -> dict[str, Any]:
    return {
        "compression_type": None if codec == "none" else codec,
        "acks": ACKS[acks],
        "enable_idempotence": idempotent,
        "linger_ms": 50,
        "max_request_size": 64 << 20,
    }


def to_send(record: Sent) -> dict[str, Any]:
    """The arguments of the producer's `send`, behind the topic."""
    return {
        "value": record.value,
        "key": record.key,
        "partition": 0,
        "timestamp_ms": record.timestamp_ms,
        "headers": list(record.headers),
    }


def acknowledged(answers: Iterable[Any], acks: Acks) -> list[Acknowledged]:
    if acks == "0":
        return [Acknowledged(-1) for _ in answers]
    return [Acknowledged(answer.offset, answer.timestamp) for answer in answers]


def received(record: Any) -> Received:
    return Received(
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        timestamp_type=TIMESTAMP_TYPES[record.timestamp_type],
    )
