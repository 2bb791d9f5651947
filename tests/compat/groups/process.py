"""Members as processes, and the group of them as a test sees it.

**Invariant:** no member outlives its `Group`'s block.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition

from tests.compat.client import Refused
from tests.compat.groups.ledger import owned
from tests.compat.groups.spec import Event, Partition, Place, Spec

AWAIT_SECONDS_MAX = 120.0
ROOT = Path(__file__).resolve().parents[3]


class Group:
    """Starts members of one group and gathers what they tell; `events` is in the order of the stamps."""

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], log: Path) -> None:
        self.name = group
        self.members: list[Member] = []
        self._bootstrap = bootstrap
        self._topics = tuple(topics)
        self._log = log
        self._events: list[Event] = []
        self._changed = threading.Condition()

    def join(self, spec: Spec, **changes: Any) -> Member:
        """A new member: it may not have its partitions yet."""
        topics = () if changes.get("pattern") else self._topics
        told = {"bootstrap": self._bootstrap, "group": self.name, "topics": topics}
        name = f"{len(self.members)}"
        member = Member(
            self, spec.but(**{**told, "name": name, **changes}), self._log / f"{self.name}-{name}"
        )
        self.members.append(member)
        return member

    def begin(self, partitions: Sequence[Partition]) -> None:
        """Commit the start of each partition, so that no member has to ask where it begins.

        If a partition is taken from librdkafka 2.16 while it asks, it reads on in secret ("outdated offset
        response" in its log), and hands that out, committed or not, when the partition comes back to it.
        """
        nobody = Consumer({"bootstrap.servers": self._bootstrap, "group.id": self.name, "log_level": 0})
        starts = [TopicPartition(*partition, 0) for partition in partitions]
        assert all(each.error is None for each in nobody.commit(offsets=starts, asynchronous=False))
        nobody.close()

    @property
    def events(self) -> list[Event]:
        with self._changed:
            return sorted(self._events, key=lambda event: event.at_ns)

    def heard(self, event: Event) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def until(self, holds: Callable[[list[Event]], object], claim: str) -> None:
        """Waits for something that members tell."""
        deadline = time.monotonic() + AWAIT_SECONDS_MAX
        with self._changed:
            while not holds(sorted(self._events, key=lambda event: event.at_ns)):
                left = deadline - time.monotonic()
                assert not any(event.kind == "died" for event in self._events), self._story()
                if left <= 0 or not self._changed.wait(left):
                    raise AssertionError(f"{claim}; {self._story()}")

    def until_shared(self, members: Sequence[Member], partitions: Sequence[Partition]) -> None:
        """Until these members have all the partitions among them, evenly."""

        def is_shared(events: list[Event]) -> bool:
            now = owned(events)
            sizes = [len(now[member.name]) for member in members]
            shared = [partition for member in members for partition in now[member.name]]
            return sorted(shared) == sorted(partitions) and max(sizes) - min(sizes) <= 1

        self.until(is_shared, f"{[member.name for member in members]} do not share the partitions")

    def _story(self) -> str:
        told = [
            f"{event.at_ns // 1_000_000} {event.member} {event.kind} generation {event.generation} "
            f"{event.partitions or ''}{event.said}"
            for event in sorted(self._events, key=lambda event: event.at_ns)
            if event.kind not in ("records", "committed")
        ]
        wrote = [text for member in self.members if (text := member.stderr()[-600:])]
        return "\n".join(["what happened:", *told[-60:], *wrote])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.end()


class Member:
    """One process. What it tells goes to its group; what it is asked, it answers."""

    def __init__(self, group: Group, spec: Spec, log: Path) -> None:
        self.spec = spec
        self.name = spec.name
        self._group = group
        self._numbers = itertools.count()
        self._log = log
        self._is_ended = False
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.compat.groups.member", spec.to_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def owned(self) -> set[Partition]:
        return owned(self._group.events)[self.name]

    def told(self, kind: str) -> list[Event]:
        return [event for event in self._group.events if event.member == self.name and event.kind == kind]

    def until_told(self, kind: str, count: int = 1) -> Event:
        self._group.until(
            lambda events: sum(e.member == self.name and e.kind == kind for e in events) >= count,
            f"member {self.name} did not tell of {kind}",
        )
        return self.told(kind)[count - 1]

    def until_has(self, partitions: Sequence[Partition]) -> None:
        wanted = set(partitions)
        self._group.until(
            lambda events: owned(events)[self.name] == wanted, f"member {self.name} does not have {wanted}"
        )

    def records(self) -> list[tuple[Partition, int]]:
        return [(place.of, place.offset) for event in self.told("records") for place in event.places]

    def ask(self, command: str, **arguments: Any) -> tuple[Place, ...]:
        """What the member answers; a refusal is raised."""
        number = self._send(command, **arguments)

        def answers(events: list[Event]) -> list[Event]:
            return [event for event in events if (event.member, event.answer_to) == (self.name, number)]

        self._group.until(answers, f"member {self.name} does not answer {command}")
        (answer,) = answers(self._group.events)
        if answer.code:
            raise Refused(answer.code, answer.said)
        return answer.places

    def _send(self, command: str, **arguments: Any) -> int:
        number = next(self._numbers)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": command, "number": number, **arguments}) + "\n")
        self._process.stdin.flush()
        return number

    def leave(self) -> None:
        self.ask("leave")
        self.end()

    def start_leaving(self) -> None:
        self._send("leave")

    def kill(self) -> None:
        self._is_ended = True
        self._process.kill()
        self._process.wait()
        self._group.heard(Event("stopped", time.monotonic_ns(), self.name))

    def freeze(self) -> None:
        """SIGSTOP. Whatever it has from now on is not its own any more: it cannot know."""
        self._process.send_signal(signal.SIGSTOP)
        self._group.heard(Event("stopped", time.monotonic_ns(), self.name))

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """At once and without a word to the broker."""
        self._is_ended = True
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def stderr(self) -> str:
        return self._log.read_text(errors="replace")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):
                self._group.heard(Event.from_json(line))
        if not self._is_ended:
            self._group.heard(Event("died", time.monotonic_ns(), self.name, said="died by itself"))
