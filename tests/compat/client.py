"""What every real client is asked to do, in one set of words.

A driver in `tests/compat/<client>/driver.py` says each of these in its client's own API; the claims in
`contract.py` are then written once and hold for all of them. A broker's refusal reaches the test as
`Refused` with Kafka's error code, whatever exception the client wraps it in.

**Invariant:** a driver never repairs what it saw: keys, values, headers, offsets and timestamps are handed on
as the client gave them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

LOOK_SECONDS = 0.01
CODECS: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
CONSUME_SECONDS_MAX = 20.0
"""How long a driver waits for records that must come. Only a broken broker makes a test wait this long."""

SETTLED_SECONDS_MAX = 120.0
"""How long a test waits for what the broker must come to say."""

LONG_POLL_MS = 30_000
"""The wait that a waiting consumer asks of the broker: longer than `CONSUME_SECONDS_MAX`, so that only a
broker that wakes the parked fetch can answer in time."""

UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC_EXCEPTION = 17
TOPIC_ALREADY_EXISTS = 36

Acks = Literal["0", "1", "all"]
Start = int | Literal["earliest", "latest"]
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Sent:
    """One record as a producer is given it."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class Received:
    """One record as a consumer got it. `timestamp_type` is None where the client does not tell."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    timestamp_type: Literal["create", "append"] | None = None

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        return self.key, self.value, self.headers


@dataclass(frozen=True)
class Acknowledged:
    """What the producer was told about one record; `offset` is -1 with acks=0."""

    offset: int
    timestamp_ms: int | None = None


class Refused(Exception):
    """The broker (not the client) said no."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"error {code}: {said}")
        self.code = code


class Client(Protocol):
    """Partition 0 of a topic, written and read without a consumer group."""

    name: str
    codecs: tuple[str, ...]
    sets_timestamps: bool
    sends_both_null: bool

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[Acknowledged]: ...

    def consume(
        self, topic: str, count: int, *, start: Start = "earliest", committed_only: bool = False
    ) -> list[Received]: ...

    def consume_after(self, topic: str, act: Callable[[], object], *, start: Start) -> Received:
        """Waits at `start` (where there is nothing yet), then runs `act`, and returns what came of it."""
        ...

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None: ...

    def edges(self, topic: str) -> tuple[int, int]:
        """The earliest offset and the end offset."""
        ...

    def topics(self) -> dict[str, int]:
        """Every topic and its number of partitions."""
        ...


class Admin(Client, Protocol):
    """A client that can also change topics."""

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None: ...

    def delete_topic(self, topic: str) -> None: ...


def contents(records: Sequence[Sent]) -> list[tuple[bytes | None, bytes | None, Headers]]:
    return [(record.key, record.value, record.headers) for record in records]


def eventually(holds: Callable[[], bool], claim: str) -> None:
    """Asks the broker until it says so: a metadata change is answered before every broker knows of it."""
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    tick = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, claim
        tick.wait(LOOK_SECONDS)


def enough(records: list[Received], count: int, topic: str) -> list[Received]:
    assert len(records) == count, (
        f"{len(records)} of {count} records of {topic} came in {CONSUME_SECONDS_MAX} s"
    )
    return records
