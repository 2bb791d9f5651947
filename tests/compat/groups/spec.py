"""What a member is told to be, and the words in which it tells what happens to it.

A `Spec` goes to the member's process as JSON on its command line; `Event`s come back as JSON lines.

**Invariant:** an event is stamped with the machine's one monotonic clock, so that the events of different
processes can be put in order.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

Partition = tuple[str, int]
BROKER_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "30000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "100",
}
LONG_SESSION_MS = 30_000
"""Nobody is expelled for being slow on a busy machine."""
SHORT_SESSION_MS = 2_500
HEARTBEAT_MS = 100


@dataclass(frozen=True)
class Spec:
    """One member. `strategy` is the client's own name of an assignor, or "" for its default."""

    client: str
    protocol: str
    strategy: str = ""
    bootstrap: str = ""
    group: str = ""
    topics: tuple[str, ...] = ()
    pattern: str = ""
    instance: str = ""
    name: str = ""
    session_ms: int = LONG_SESSION_MS
    poll_interval_ms: int = 60_000
    commits: bool = True
    auto_commit_ms: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        return cls(**fields | {"topics": tuple(fields["topics"])})

    def but(self, **changes: Any) -> Spec:
        return replace(self, **changes)

    def __str__(self) -> str:
        return "-".join(word for word in (self.client, self.protocol, self.strategy) if word)


CONFLUENT_CLASSIC = Spec("confluent", "classic")
CONFLUENT_COOPERATIVE = Spec("confluent", "classic", "cooperative-sticky")
CONFLUENT_CONSUMER = Spec("confluent", "consumer")
AIOKAFKA = Spec("aiokafka", "classic")
KAFKA_PYTHON = Spec("kafka-python", "classic")
KAFKA_PYTHON_COOPERATIVE = Spec("kafka-python", "classic", "cooperative-sticky")

ALL = (CONFLUENT_CLASSIC, CONFLUENT_CONSUMER, AIOKAFKA, KAFKA_PYTHON)
COOPERATIVE = (CONFLUENT_COOPERATIVE, CONFLUENT_CONSUMER, KAFKA_PYTHON_COOPERATIVE)


@dataclass(frozen=True)
class Place:
    """An offset to commit, or one that was committed. `leader_epoch` is -1 where nobody named one."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""
    leader_epoch: int = -1

    @property
    def of(self) -> Partition:
        return self.topic, self.partition


@dataclass(frozen=True)
class Event:
    """Of a `kind`: assigned, revoked, lost, records, committed, refused, failed, answer, leaving.

    Two more are the test's own: stopped (it killed or paused the process) and died (it found it gone).
    `places` are the records' own offsets, or the committed ones.
    """

    kind: str
    at_ns: int
    member: str
    member_id: str = ""
    generation: int = -1
    partitions: tuple[Partition, ...] = ()
    places: tuple[Place, ...] = ()
    values: tuple[str, ...] = ()
    code: int = 0
    said: str = ""
    answer_to: int = -1

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        fields["partitions"] = tuple((topic, index) for topic, index in fields["partitions"])
        fields["places"] = tuple(Place(**place) for place in fields["places"])
        fields["values"] = tuple(fields["values"])
        return cls(**fields)
