"""All the clients of a chaos test: senders, readers alone, and groups, and what they have come to.

**Invariant:** none of them runs on when the `with` block has ended.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos.anomalies import NOTHING, Witness, audience_of
from tests.chaos.awaiting import await_that
from tests.chaos.readers import CLIENT, AioReader, Member, Reader, Seen, Target
from tests.chaos.senders import Sender

START_S = 180.0
CATCH_UP_S = 180.0
ENDS_S = 10.0
LEAVE_S = 20.0  # librdkafka may not come back from close() if the coordinator dies just then (its issue 3740)
Mark = dict[tuple[str, int], int]
"""The next number of each sender and partition at some moment."""


class Clients:
    """A context manager: all of them, from start to end."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        senders: Mapping[str, Mapping[str, Any]],
        groups: Mapping[str, Mapping[str, Any]],
        diaries: Path,
        members: int = 2,
    ) -> None:
        self.partitions = partitions
        self.witness = Witness()
        self.seen = Seen(self.witness, diaries / "places.txt")
        self._target = Target(bootstrap_servers, topic, partitions, diaries)
        self._groups = {group: dict(settings) for group, settings in groups.items()}
        self.senders = [
            Sender(name, self._target, self.witness, settings) for name, settings in senders.items()
        ]
        self.readers: list[Reader | AioReader] = [
            Reader("alone", self._target, self.seen),
            AioReader("aiokafka", self._target, self.seen),
        ]
        self.members = [
            self._member(f"{group}/{number}") for group in self._groups for number in range(members)
        ]
        self._joined_count = members
        self._leaving: list[threading.Thread] = []

    @property
    def audiences(self) -> list[str]:
        return sorted({audience_of(reader.name) for reader in (*self.readers, *self.members)})

    @property
    def failures(self) -> list[str]:
        return [failure for sender in self.senders for failure in sender.failures]

    def _member(self, name: str) -> Member:
        return Member(name, self._target, self.seen, self._groups[audience_of(name)])

    def replace_member(self, chance: random.Random) -> str:
        """One leaves its group, in its own time: its client may wait for a broker that does not hear it.
        Another one joins at once. The name of the first."""
        left = self.members.pop(chance.randrange(len(self.members)))
        leaving = threading.Thread(target=left.end, name=f"{left.name} leaves", daemon=True)
        leaving.start()
        self._leaving.append(leaving)
        self._joined_count += 1
        self.members.append(self._member(f"{audience_of(left.name)}/{self._joined_count}"))
        return left.name

    # Progress.

    def await_going(self) -> None:
        """Until all write and read, everywhere: who has not begun yet needs more than who has."""
        mark, partitions = self.mark(), set(range(self.partitions))

        def are_going() -> bool:
            have_read = all(set(self.seen.highest[audience]) == partitions for audience in self.audiences)
            return have_read and self.passed(mark) == partitions

        await_that(
            are_going, lambda: f"of {mark} {self.passed(mark)}; read {dict(self.seen.highest)}", START_S
        )

    def mark(self) -> Mark:
        return {
            (each.name, partition): each.sent[partition]
            for each in self.senders
            for partition in range(self.partitions)
        }

    def passed(self, mark: Mark) -> set[int]:
        """The partitions in which every sender has an acknowledgement for something sent since."""
        return {
            partition
            for partition in range(self.partitions)
            if all(each.last_acknowledged[partition] >= mark[each.name, partition] for each in self.senders)
        }

    def await_shared(self) -> None:
        """Until the members of each group share the partitions evenly: then none has a reason to move."""
        share = self.partitions * len(self._groups) // len(self.members)
        await_that(
            lambda: all(len(self.seen.owned[each.name]) == share for each in self.members),
            lambda: f"not shared: {dict(self.seen.owned)}",
            START_S,
        )

    def await_passed(self, mark: Mark, timeout_s: float = CATCH_UP_S) -> float:
        """Until all partitions have; how many seconds it took."""
        partitions = set(range(self.partitions))
        return await_that(
            lambda: self.passed(mark) == partitions,
            lambda: f"no acknowledgement in partitions {partitions - self.passed(mark)}; {self.failures[:5]}",
            timeout_s,
        )

    def await_read(self, timeout_s: float = CATCH_UP_S) -> float:
        """Until the readers alone have read more of every partition; how many seconds it took."""
        names, partitions = [reader.name for reader in self.readers], range(self.partitions)
        before = {name: dict(self.seen.highest[name]) for name in names}

        def standing_still() -> dict[str, list[int]]:
            highest = self.seen.highest
            waiting = {
                name: [each for each in partitions if highest[name].get(each) == before[name].get(each)]
                for name in names
            }
            return {name: still for name, still in waiting.items() if still}

        return await_that(
            lambda: not standing_still(), lambda: f"nothing was read in {standing_still()}", timeout_s
        )

    def finish(self) -> None:
        """Nothing more is sent, all of it is acknowledged, and everybody has read to the end."""
        for sender in self.senders:
            sender.finish()
        assert not self.failures, self.failures[:5]
        for sender in self.senders:
            assert sender.acknowledged == sender.sent, f"{sender.name}: not everything was acknowledged"
        self.readers.append(Reader("final", self._target, self.seen))
        ends = self._ends()

        def have_all() -> bool:
            return all(
                self.seen.highest[audience].get(partition, NOTHING) >= end - 1
                for audience in self.audiences
                for partition, end in ends.items()
            )

        def complaint() -> str:
            return f"of {ends} were read: {dict(self.seen.highest)}; {dict(self.seen.errors)}"

        await_that(have_all, complaint, CATCH_UP_S)

    def _ends(self) -> dict[int, int]:
        """Whoever asks while preferred leaders are restored is told that, once, by the one who led."""
        asking = Consumer({"bootstrap.servers": self._target.bootstrap_servers, "group.id": "ends"} | CLIENT)
        ends: dict[int, int] = {}

        def are_known() -> bool:
            for partition in range(self.partitions):
                place = TopicPartition(self._target.topic, partition)
                with suppress(KafkaException):
                    asking.list_topics(place.topic, timeout=ENDS_S)  # else it believes what it knows
                    ends[partition] = int(asking.get_watermark_offsets(place, timeout=ENDS_S)[1])
            return len(ends) == self.partitions

        await_that(are_known, lambda: f"the ends of partitions are not told, but for {ends}", CATCH_UP_S)
        asking.close()
        return ends

    def judge(self) -> dict[str, int]:
        """How often each kind of anomaly was seen."""
        return self.witness.end(self.audiences)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        endings = [*self.senders, *self.readers, *self.members]
        with ThreadPoolExecutor(len(endings)) as together:
            list(together.map(lambda each: each.end(), endings))
        deadline = time.monotonic() + LEAVE_S
        for leaving in self._leaving:
            leaving.join(max(deadline - time.monotonic(), 0))
        if stuck := [leaving.name for leaving in self._leaving if leaving.is_alive()]:
            print(f"never came back from close(), while all brokers were there: {stuck}")
