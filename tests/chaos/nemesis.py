"""Faults one after the other and two at once, and between them time to heal.

A fault lasts some seconds, and at least until what must go on has gone on: every sender has had an
acknowledgement for a record sent since, in all partitions or in some. Before such a fault everything is in
sync; before others it need not be. Kinds are drawn from a bag, so all have their turn: a sample empties a bag
with one kind of each family, a soak fills one with all kinds again and again.

**Invariant:** one broker is in trouble at a time, besides one member of ZooKeeper; when it is two brokers, or
more members, nothing need go on.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.awaiting import await_that, let_pass
from tests.chaos.clients import Clients
from tests.chaos.faults import Fault, Faults, Progress
from tests.chaos.machines import Machines

FAULT_S = (0.5, 7.0)
QUIET_S = (0.0, 2.0)
PROGRESS_S = 120.0
TWO_AT_ONCE = 0.25
MEMBER_LEAVES = 0.3


@dataclass
class Story:
    """What was done when, in a file as well: it is there when the run is not."""

    path: Path
    begun: float = field(default_factory=time.monotonic)

    def tell(self, line: str) -> None:
        with self.path.open("a") as file:
            file.write(
                f"{time.strftime('%H:%M:%S', time.gmtime())} {time.monotonic() - self.begun:8.1f} {line}\n"
            )


class Nemesis:
    def __init__(self, machines: Machines, clients: Clients, faults: Faults, chance: random.Random) -> None:
        self.tally: Counter[str] = Counter()
        self.slowest_s: dict[str, float] = {}  # by kind: until all that must had gone on
        self.story = Story(machines.directory / "story.txt")
        self._machines = machines
        self._clients = clients
        self._faults = faults
        self._chance = chance
        self._bag: list[str] = []

    @property
    def left_count(self) -> int:
        """How many faults are in the bag."""
        return len(self._bag)

    def fill(self, kinds: Sequence[str]) -> None:
        self._bag = self._chance.sample(kinds, len(kinds))

    def strike(self) -> None:
        """One fault or two, and their end."""
        faults = self._choose()
        progress = progress_of(faults)
        lasts_s = self._chance.uniform(*FAULT_S)
        self.story.tell(f"{' and '.join(map(str, faults))} for {lasts_s:.1f} s; {progress.value} must go on")
        try:
            for fault in faults:
                fault.begin()
            if self._chance.random() < MEMBER_LEAVES:
                self.story.tell(f"{self._clients.replace_member(self._chance)} leaves, another one joins")
            self._see_progress(faults, progress, lasts_s)
        finally:
            self._heal(faults)
        self._see_that_all_run()
        self.tally.update(fault.kind for fault in faults)
        let_pass(self._chance.uniform(*QUIET_S))

    def _choose(self) -> list[Fault]:
        """Whom it hits is chosen when everything is as it will be then."""
        if len(self._bag) == 1 or self._chance.random() >= TWO_AT_ONCE:
            self._await_whole()
            fault = self._faults.make(self._draw())
            if fault.members == self._machines.zookeepers.keys():
                self._await_settled()
            return [fault]
        faults = [self._faults.make(self._draw()), self._faults.make(self._draw())]
        if faults[0].brokers & faults[1].brokers or faults[0].members & faults[1].members:
            self._bag.append(faults.pop().kind)
        if progress_of(faults) is not Progress.NONE:
            self._await_whole()
        return faults

    def _draw(self) -> str:
        if not self._bag:
            self.fill(self._faults.kinds)
        return self._bag.pop()

    def _await_whole(self) -> None:
        """And until records have gone everywhere since, so that brokers know it as well as ZooKeeper,
        and have been read."""
        whole_s = self._machines.await_whole()
        passed_s = self._clients.await_passed(self._clients.mark())
        read_s = self._clients.await_read()
        self.story.tell(
            f"whole after {whole_s:.1f} s, passed after {passed_s:.1f} s, read after {read_s:.1f} s"
        )

    def _await_settled(self) -> None:
        """Until nobody is about to be elected: of an election that some have heard of when all of ZooKeeper
        goes, the others hear when it is back, and until then nothing goes on in that partition."""
        settled_s = self._machines.await_settled()
        passed_s = self._clients.await_passed(self._clients.mark())
        self.story.tell(f"settled after {settled_s:.1f} s, passed after {passed_s:.1f} s")

    def _see_progress(self, faults: list[Fault], progress: Progress, lasts_s: float) -> None:
        """At its beginning, and once more at its end: by then others may have been elected."""
        took_s = self._await_progress(faults, progress)
        let_pass(max(lasts_s - took_s, 0.0))
        took_s = max(took_s, self._await_progress(faults, progress))
        if progress is not Progress.NONE:
            self.story.tell(f"went on after {took_s:.1f} s")
            for fault in faults:
                self.slowest_s[fault.kind] = max(self.slowest_s.get(fault.kind, 0.0), took_s)
        assert not self._clients.failures, self._clients.failures[:5]

    def _await_progress(self, faults: list[Fault], progress: Progress) -> float:
        """How many seconds it took."""
        mark, partitions = self._clients.mark(), set(range(self._clients.partitions))

        def has_gone_on() -> bool:
            passed = self._clients.passed(mark)
            return passed == partitions if progress is Progress.ALL else bool(passed)

        def complaint() -> str:
            waiting = partitions - self._clients.passed(mark)
            return f"{' and '.join(map(str, faults))}: no acknowledgement in partitions {waiting}"

        return await_that(has_gone_on, complaint, PROGRESS_S) if progress is not Progress.NONE else 0.0

    def _heal(self, faults: list[Fault]) -> None:
        self._machines.network.heal()
        with ThreadPoolExecutor() as together:  # one may not come to its end before the other has
            list(together.map(lambda fault: fault.end(), faults))
        self.story.tell("healed")

    def _see_that_all_run(self) -> None:
        self._machines.start_those_short_of_room()
        ended = {
            node_id: broker.stderr()[-2_000:]
            for node_id, broker in self._machines.brokers.items()
            if not broker.is_running and not broker.has_ended_for_room
        }
        assert not ended, f"ended by themselves: {ended}"


def progress_of(faults: list[Fault]) -> Progress:
    """What must go on while all of them last."""
    brokers = frozenset[int]().union(*(fault.brokers for fault in faults))
    members = frozenset[int]().union(*(fault.members for fault in faults))
    if len(brokers) > 1 or (brokers and len(members) > 1):
        return Progress.NONE
    return Progress.SOME if any(fault.progress is Progress.SOME for fault in faults) else Progress.ALL
