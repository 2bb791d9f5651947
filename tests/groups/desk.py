"""A coordinator on its own: turns in, answers out, its journal a list; time moves when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidelog.base.config import BrokerSettings, group_number
from tidelog.base.decision import Entry
from tidelog.groups.classic_member import Join, Leaving, Protocols, Sync
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.groups.heartbeat import Heartbeat
from tidelog.groups.offsets import Commit, CommitAsk
from tidelog.groups.patterns import Patterns
from tidelog.groups.turn import Turn
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.wire import INT16, INT32, write_string

START_MS = 1_700_000_000_000


class DeskTopics:
    """Topics by name, with their number of partitions; a topic's id is made of its name."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.epoch = 0

    @property
    def count(self) -> int:
        return len(self.counts)

    @property
    def origin(self) -> bytes:
        return b"desk"

    def names(self) -> Iterable[str]:
        return self.counts

    def id_of(self, name: str) -> bytes | None:
        return name.encode().rjust(16, b"\1") if name in self.counts else None

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name in self.counts if self.id_of(name) == topic_id), None)

    def partition_count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def grow(self, name: str, count: int) -> None:
        self.counts[name] = count
        self.epoch += 1


class DeskSettings(BrokerSettings):
    def of_group(self, group_id: str, key: str) -> int:
        return group_number(self, {}, key)


class Waiting:
    """Somebody who asked, and what came back."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.is_gone = False

    def give(self, answer: Any) -> None:
        self.answers.append(answer)

    def fail(self, code: int) -> None:
        self.answers.append(ErrorCode(code))

    @property
    def answer(self) -> Any:
        assert len(self.answers) == 1, self.answers
        return self.answers[0]


class Desk:
    def __init__(self, topics: DeskTopics, **settings: str) -> None:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.settings = DeskSettings({"group.initial.rebalance.delay.ms": "0"} | named)
        self.topics = topics
        self.uptime_ms = 0
        self.record_size_max = 1_000_000
        self.journal: list[Entry] = []
        self._random = 0
        self.coordinator = GroupCoordinator(Patterns())

    def _entropy(self, size: int) -> bytes:
        self._random += 1
        return self._random.to_bytes(size, "big")

    def run(self, command: Callable[[Turn], object]) -> None:
        turn = Turn(
            START_MS + self.uptime_ms,
            self.uptime_ms,
            self.settings,
            self.topics,
            self.coordinator.timers,
            self._entropy,
            self.record_size_max,
            self.coordinator.given,
        )
        command(turn)
        self.journal += turn.decision.entries
        for entry in turn.decision.entries:
            self.coordinator.replay(entry)
        for ticket, answer in turn.decision.answers:
            ticket.give(answer)

    def _ask(self, command: Callable[[Turn, Waiting], object]) -> Waiting:
        waiting = Waiting()
        self.run(lambda turn: command(turn, waiting))
        return waiting

    def restart(self) -> None:
        """A new coordinator, from what was written: the last value of each key."""
        latest: dict[bytes, bytes] = {}
        for entry in self.journal:
            if entry.value is None:
                latest.pop(entry.key, None)
            else:
                latest[entry.key] = entry.value
        self.coordinator = GroupCoordinator(Patterns())
        for key, value in latest.items():
            self.coordinator.replay(Entry(key, value))
        self.run(self.coordinator.resume)

    def tick(self, delay_ms: int) -> None:
        until_ms = self.uptime_ms + delay_ms
        while (next_ms := self.coordinator.timers.next_ms) is not None and next_ms <= until_ms:
            self.uptime_ms = max(self.uptime_ms, next_ms)
            self.run(self.coordinator.tick)
        self.uptime_ms = until_ms

    def join(
        self,
        member_id: str = "",
        topics: tuple[str, ...] = ("t",),
        instance_id: str | None = None,
        protocols: Protocols | None = None,
        needs_member_id: bool = False,
    ) -> Waiting:
        known = protocols or (("range", subscription(topics)),)
        asked = Join(
            "g",
            member_id,
            instance_id,
            "c",
            "/h",
            10_000,
            60_000,
            "consumer",
            known,
            needs_member_id,
            True,
        )
        return self._ask(lambda turn, ticket: self.coordinator.join(turn, asked, ticket))

    def sync(self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None) -> Waiting:
        asked = Sync("g", member_id, None, generation, None, None, assignments or {})
        return self._ask(lambda turn, ticket: self.coordinator.sync(turn, asked, ticket))

    def beat(self, member_id: str, generation: int) -> Waiting:
        asked = Sync("g", member_id, None, generation, None, None, {})
        return self._ask(lambda turn, ticket: self.coordinator.heartbeat(turn, asked, ticket))

    def leave(self, member_id: str, instance_id: str | None = None) -> Waiting:
        leaving = [Leaving(member_id, instance_id)]
        return self._ask(lambda turn, ticket: self.coordinator.leave(turn, "g", leaving, ticket))

    def consumer_beat(
        self,
        member_id: str,
        epoch: int = 0,
        topics: tuple[str, ...] | None = ("t",),
        instance_id: str | None = None,
        reported: dict[bytes, tuple[int, ...]] | None = None,
        pattern: str | None = None,
    ) -> Waiting:
        said = {} if epoch == 0 and reported is None else reported
        beat = Heartbeat(
            "g", member_id, epoch, instance_id, None, 60_000, topics, pattern, None, said, "c", "/h"
        )
        return self._ask(lambda turn, ticket: self.coordinator.consumer_heartbeat(turn, beat, ticket))

    def commit(
        self, offset: int, member_id: str = "", epoch: int = -1, topic: str = "t", group_id: str = "g"
    ) -> Waiting:
        commits = [Commit(topic, 0, offset, -1, "", self.topics.id_of(topic) or bytes(16))]
        asked = CommitAsk(group_id, member_id, None, epoch, -1, True, commits)
        return self._ask(lambda turn, ticket: self.coordinator.commit(turn, asked, ticket))

    def delete_offset(self, topic: str = "t") -> ErrorCode:
        """The group's error, or that of the topic's first partition."""
        waiting = self._ask(
            lambda turn, ticket: self.coordinator.delete_offsets(turn, "g", [(topic, 0)], ticket)
        )
        error, errors = waiting.answer
        found: ErrorCode = errors[0] if errors else error
        return found

    def committed(self, topic: str = "t") -> int | None:
        found = self.coordinator.offsets.of("g").get((topic, 0))
        return found.offset if found is not None else None


def subscription(topics: tuple[str, ...], owned: tuple[int, ...] | None = None) -> bytes:
    """To some topics; with the partitions of the first that the member has, if it says so."""
    out = bytearray(INT16.pack(0 if owned is None else 1) + INT32.pack(len(topics)))
    for name in topics:
        write_string(out, name)
    out += INT32.pack(-1)
    if owned is not None:
        out += INT32.pack(1)
        write_string(out, topics[0])
        out += INT32.pack(len(owned)) + b"".join(map(INT32.pack, owned))
    return bytes(out)
