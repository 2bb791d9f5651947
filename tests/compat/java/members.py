"""Members of one consumer group inside JVMs, started, held, paused and closed by the test.

Every member appends what befalls it to one file (`src/Member.java`): `group_history.py` reads and checks it.

**Invariant:** a wait ends with what is awaited or fails the test; none hides a member that failed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.compat.java.group_history import Event, Ownership, Partition, committed_ends, parse_event
from tests.compat.java.jvm import Jvm

SECONDS_MAX = 120.0
"""How long a group may take to settle: more than the longest session of a broker with Kafka's defaults."""

CloseOperation = Literal["DEFAULT", "LEAVE_GROUP", "REMAIN_IN_GROUP"]
Subscription = Literal["names", "pattern", "regex"]
CommitRow = tuple[str, int, int, str]


@dataclass(frozen=True)
class Kind:
    """A protocol with an assignor. An eager one takes everything away before it gives."""

    name: str
    settings: Mapping[str, str]
    is_eager: bool = False

    @property
    def is_classic(self) -> bool:
        return self.settings["group.protocol"] == "classic"


def _classic(name: str, assignor: str, is_eager: bool = True) -> Kind:
    strategy = f"org.apache.kafka.clients.consumer.{assignor}"
    settings = {"group.protocol": "classic", "partition.assignment.strategy": strategy}
    return Kind(name, settings | {"heartbeat.interval.ms": "200"}, is_eager)


def _consumer(assignor: str) -> Kind:
    return Kind(f"consumer-{assignor}", {"group.protocol": "consumer", "group.remote.assignor": assignor})


RANGE = _classic("classic-range", "RangeAssignor")
COOPERATIVE = _classic("classic-cooperative-sticky", "CooperativeStickyAssignor", is_eager=False)
UNIFORM = _consumer("uniform")
KINDS = (
    RANGE,
    _classic("classic-roundrobin", "RoundRobinAssignor"),
    _classic("classic-sticky", "StickyAssignor"),
    COOPERATIVE,
    UNIFORM,
    _consumer("range"),
)


@dataclass
class Group:
    """One group: members are started in the JVM that all tests share, or in another one."""

    name: str
    bootstrap: str
    jvm: Jvm
    path: Path
    session_ms: int
    alive: dict[str, Jvm] = field(default_factory=dict)
    _events: list[Event] = field(default_factory=list)
    _position: int = 0
    _followed: int = 0
    _ownership: Ownership = field(default_factory=Ownership)

    def __post_init__(self) -> None:
        self.path.touch()

    def start(
        self,
        member: str,
        topics: str,
        kind: Kind,
        *,
        settings: Mapping[str, str] | None = None,
        subscription: Subscription = "names",
        commits: bool = True,
        jvm: Jvm | None = None,
    ) -> None:
        chosen = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.name,
            "client.id": member,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "max.poll.records": "100",
            "metadata.max.age.ms": "1000",
        }
        if kind.is_classic:
            chosen["session.timeout.ms"] = str(self.session_ms)
        chosen |= dict(kind.settings) | dict(settings or {})
        options = {"settings": chosen, "topics": topics, "subscription": subscription, "commits": commits}
        home = jvm or self.jvm
        home.call("member.start", name=member, history=str(self.path), **options)
        self.alive[member] = home

    def close(self, *members: str, operation: CloseOperation = "DEFAULT") -> None:
        for member in members:
            self.alive.pop(member).call("member.close", name=member, operation=operation)

    def close_all(self) -> None:
        self.close(*self.alive)

    def hold(self, member: str) -> None:
        self.alive[member].call("member.hold", name=member)

    def resume(self, member: str) -> None:
        self.alive[member].call("member.resume", name=member)

    def commit(self, member: str, *rows: CommitRow, later: bool = False) -> str | None:
        """None, or the exception that refused it."""
        call = "member.commit_later" if later else "member.commit"
        refusal: str | None = self.alive[member].call(call, name=member, offsets=rows)
        return refusal

    def committed(self, member: str, *partitions: Partition) -> list[CommitRow | None]:
        rows = self.alive[member].call("member.committed", name=member, partitions=partitions)
        return [None if row is None else tuple(row) for row in rows]

    def mark_gone(self, members: Iterable[str]) -> None:
        """Of members whose process was killed or paused: they own nothing from here on."""
        with self.path.open("a") as file:
            file.writelines(json.dumps({"member": name, "event": "gone"}) + "\n" for name in members)

    def history(self) -> list[Event]:
        """All that is written so far; each line is read once."""
        with self.path.open("rb") as file:
            file.seek(self._position)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self._position += len(whole) + 1
            self._events += [parse_event(line) for line in whole.splitlines()]
        return self._events

    def owned(self) -> dict[str, set[Partition]]:
        """What each member that is alive owns now."""
        for event in self.history()[self._followed :]:
            self._followed += 1
            self._ownership.follow(event)
        return {member: set(self._ownership.owned[member]) for member in self.alive}

    def await_balance(self, partition_count: int) -> dict[str, set[Partition]]:
        """Until those alive own all partitions, spread evenly."""

        def balanced() -> bool:
            sizes = [len(each) for each in self.owned().values()]
            return sum(sizes) == partition_count and max(sizes) - min(sizes) <= 1

        self.await_that(balanced, "is not balanced")
        return self.owned()

    def await_committed(self, ends: Mapping[Partition, int]) -> None:
        self.await_that(lambda: committed_ends(self.history()) == ends, f"has not committed {ends}")

    def await_event(self, member: str, event: str, after: int = 0) -> Event:
        """The first such event of the member at or after that place in the history."""
        self.await_that(lambda: bool(self._found(member, event, after)), f"has no {event} of {member}")
        return self._found(member, event, after)[0]

    def _found(self, member: str, event: str, after: int) -> list[Event]:
        return [each for each in self.history()[after:] if (each.member, each.event) == (member, event)]

    def await_that(self, holds: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not holds():
            failed = [each for each in self.history() if each.event == "failed"]
            assert time.monotonic() < deadline, f"{self.name} {complaint}: {self.owned()} {failed}"
            self.jvm.call("history.await", history=str(self.path), size=self._position)


@contextmanager
def fed(jvm: Jvm, bootstrap: str, topic: str, partitions: int) -> Iterator[dict[Partition, int]]:
    """Writes to every partition during the block; afterwards the dictionary has their ends."""
    ends: dict[Partition, int] = {}
    jvm.call("feed.start", name=topic, bootstrap=bootstrap, topic=topic, partitions=partitions)
    count = 0
    try:
        yield ends
    finally:
        count = jvm.call("feed.stop", name=topic)
    ends.update({(topic, index): count for index in range(partitions)})
