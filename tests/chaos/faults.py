"""What can go wrong with the machines, by kind; each fault is begun, and ended when the machines are healed.

| kind                        | what is done                                            | what must go on  |
|-----------------------------|---------------------------------------------------------|------------------|
| kill-, pause-<role>         | SIGKILL, SIGSTOP of a broker by what it is at the time  | all partitions   |
| kill-, pause-zookeeper-<..> | the same of ZooKeeper's leader or of a follower of it   | all partitions   |
| zookeeper-away              | SIGSTOP of all members (C5)                             | all partitions   |
| cut-zookeeper[-in, -out]    | a broker from ZooKeeper: both ways, to it, from it      | all partitions   |
| cut-zookeeper-member        | one member from all brokers                             | all partitions   |
| cut-pair, cut-pair-one-way  | two brokers from each other                             | all partitions   |
| cut-brokers[-in, -out]      | a broker from all others; it leads on, and has nobody   | what others lead |
| cut-clients[-in, -out]      | a broker from all clients; it leads on as well          | what others lead |
| isolate[-in, -out]          | a broker from everybody                                 | all partitions   |
| drop                        | every connection of a broker is ended                   | all partitions   |
| disk-full                   | a broker's disk takes nothing more                      | all partitions   |

Roles: the leader or a follower of some partition, the controller, the coordinator of some group.

**Invariant:** a fault of its own takes one broker, or what a cluster can be without.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from tests.chaos.awaiting import await_that
from tests.chaos.machines import CLIENT, OFFSETS_PARTITIONS, Machines
from tests.chaos.network import Direction
from tests.chaos.truth import NOBODY, Led, coordinator_partition

OFFSETS_TOPIC = "__consumer_offsets"
ROLES = ("leader", "follower", "controller", "coordinator")
SIDES = ("", "-in", "-out")


class Progress(Enum):
    ALL = "all partitions"
    SOME = "some partition"
    NONE = "nothing"


@dataclass(frozen=True)
class Fault:
    kind: str
    brokers: frozenset[int]
    begin: Callable[[], object]
    end: Callable[[], object]
    progress: Progress
    members: frozenset[int] = field(default=frozenset())
    """Of ZooKeeper."""

    def __str__(self) -> str:
        named = [f"broker-{each}" for each in sorted(self.brokers)]
        named += [f"zookeeper-{each}" for each in sorted(self.members)]
        return f"{self.kind} {'+'.join(named)}"


class Faults:
    """Makes faults against the machines as they are now."""

    def __init__(self, machines: Machines, topic: str, groups: Sequence[str], chance: random.Random) -> None:
        self._machines = machines
        self._topic = topic
        self._groups = list(groups)
        self._chance = chance
        self._makers: dict[str, Callable[[str], Fault]] = {}
        for role in ROLES:
            self._makers[f"kill-{role}"] = self._kill
            self._makers[f"pause-{role}"] = self._pause
        for mode in ("leader", "follower"):
            self._makers[f"kill-zookeeper-{mode}"] = self._kill_member
            self._makers[f"pause-zookeeper-{mode}"] = self._pause_member
        self._makers["zookeeper-away"] = self._all_members_away
        for side in SIDES:
            self._makers[f"cut-zookeeper{side}"] = self._cut_zookeeper
            self._makers[f"cut-brokers{side}"] = self._cut_brokers
            self._makers[f"cut-clients{side}"] = self._cut_clients
            self._makers[f"isolate{side}"] = self._isolate
        self._makers["cut-zookeeper-member"] = self._cut_member
        self._makers["cut-pair"] = self._makers["cut-pair-one-way"] = self._cut_pair
        self._makers["drop"] = self._drop
        if machines.disks:
            self._makers["disk-full"] = self._fill_disk

    @property
    def kinds(self) -> list[str]:
        return list(self._makers)

    def draw_families(self) -> list[str]:
        """One kind of each family, which are the kinds that one maker makes: who is hit, and on which side,
        is left to chance."""
        families: dict[Callable[[str], Fault], list[str]] = {}
        for kind, maker in self._makers.items():
            families.setdefault(maker, []).append(kind)
        return [self._chance.choice(kinds) for kinds in families.values()]

    def make(self, kind: str) -> Fault:
        return self._makers[kind](kind)

    # Brokers as processes.

    def _kill(self, kind: str) -> Fault:
        victim, machines = self._by_role(kind.removeprefix("kill-")), self._machines
        begin, end = partial(machines.kill, victim), partial(machines.start, [victim])
        return Fault(kind, frozenset({victim}), begin, end, Progress.ALL)

    def _pause(self, kind: str) -> Fault:
        victim = self._by_role(kind.removeprefix("pause-"))
        broker = self._machines.brokers[victim]
        return Fault(kind, frozenset({victim}), broker.pause, broker.resume, Progress.ALL)

    def _fill_disk(self, kind: str) -> Fault:
        victim = self._chance.choice(sorted(self._machines.disks))
        disk, machines = self._machines.disks[victim], self._machines

        def end() -> None:
            disk.empty()
            machines.start_those_short_of_room()

        return Fault(kind, frozenset({victim}), disk.fill, end, Progress.ALL)

    # ZooKeeper.

    def _member(self, kind: str) -> int:
        leading = self._machines.leading_zookeeper()
        if kind.endswith("leader"):
            return leading
        return self._chance.choice([each for each in self._machines.zookeepers if each != leading])

    def _kill_member(self, kind: str) -> Fault:
        number = self._member(kind)
        member = self._machines.zookeepers[number]
        return Fault(kind, frozenset(), member.kill, member.start, Progress.ALL, frozenset({number}))

    def _pause_member(self, kind: str) -> Fault:
        number = self._member(kind)
        member = self._machines.zookeepers[number]
        return Fault(kind, frozenset(), member.pause, member.resume, Progress.ALL, frozenset({number}))

    def _all_members_away(self, kind: str) -> Fault:
        members = self._machines.zookeepers

        def begin() -> None:
            for member in members.values():
                member.pause()

        def end() -> None:
            for member in members.values():
                member.resume()

        return Fault(kind, frozenset(), begin, end, Progress.ALL, frozenset(members))

    def _cut_member(self, kind: str) -> Fault:
        number = self._chance.choice(sorted(self._machines.zookeepers))
        brokers = [f"broker-{each}" for each in self._machines.brokers]
        fault = self._cut(kind, [], [f"zookeeper-{number}"], brokers, Progress.ALL)
        return Fault(kind, frozenset(), fault.begin, fault.end, Progress.ALL, frozenset({number}))

    # The network.

    def _cut(
        self,
        kind: str,
        victims: Sequence[int],
        ones: Sequence[str],
        others: Sequence[str],
        progress: Progress,
    ) -> Fault:
        """Both ways, or what is said to the ones (in), or what they say (out)."""
        machines = self._machines
        into, out = machines.between(others, ones), machines.between(ones, others)
        held: list[Direction] = [
            *([] if kind.endswith("-out") else into),
            *([] if kind.endswith("-in") else out),
        ]
        return Fault(kind, frozenset(victims), partial(machines.network.hold, *held), _nothing, progress)

    def _cut_zookeeper(self, kind: str) -> Fault:
        victim = self._any_broker()
        members = self._machines.all_zookeepers()
        return self._cut(kind, [victim], [f"broker-{victim}"], members, Progress.ALL)

    def _cut_brokers(self, kind: str) -> Fault:
        victim = self._any_broker()
        others = self._machines.other_brokers(victim)
        return self._cut(kind, [victim], [f"broker-{victim}"], others, Progress.SOME)

    def _cut_clients(self, kind: str) -> Fault:
        victim = self._any_broker()
        return self._cut(kind, [victim], [f"broker-{victim}"], [CLIENT], Progress.SOME)

    def _isolate(self, kind: str) -> Fault:
        victim = self._any_broker()
        others = self._everybody_else(victim)
        return self._cut(kind, [victim], [f"broker-{victim}"], others, Progress.ALL)

    def _cut_pair(self, kind: str) -> Fault:
        one, other = self._chance.sample(sorted(self._machines.brokers), 2)
        side = "-in" if kind == "cut-pair-one-way" else ""
        fault = self._cut(f"cut-pair{side}", [one], [f"broker-{one}"], [f"broker-{other}"], Progress.ALL)
        return Fault(kind, frozenset({one}), fault.begin, fault.end, Progress.ALL)

    def _drop(self, kind: str) -> Fault:
        victim = self._any_broker()
        spoken = self._machines.between([f"broker-{victim}"], self._everybody_else(victim))
        begin = partial(self._machines.network.drop, spoken)
        return Fault(kind, frozenset({victim}), begin, _nothing, Progress.ALL)

    def _everybody_else(self, node_id: int) -> list[str]:
        return [*self._machines.other_brokers(node_id), *self._machines.all_zookeepers(), CLIENT]

    # Who it is.

    def _any_broker(self) -> int:
        return self._chance.choice(sorted(self._machines.brokers))

    def _by_role(self, role: str) -> int:
        if role == "controller":
            return self._machines.truth.controller()
        if role == "coordinator":
            index = coordinator_partition(self._chance.choice(self._groups), OFFSETS_PARTITIONS)
            return self._led(OFFSETS_TOPIC, index).leader
        found = self._led(self._topic, self._chance.randrange(len(self._partitions(self._topic))))
        followers = [each for each in found.in_sync_replicas if each != found.leader]
        return found.leader if role == "leader" or not followers else self._chance.choice(followers)

    def _led(self, topic: str, index: int) -> Led:
        found: list[Led] = []

        def is_led() -> bool:
            found[:] = [each for each in self._partitions(topic) if each.partition == index]
            return bool(found) and found[0].leader != NOBODY

        await_that(is_led, f"{topic}-{index} is not led", 60)
        return found[0]

    def _partitions(self, topic: str) -> list[Led]:
        found: list[Led] = []

        def are_there() -> bool:
            found[:] = self._machines.truth.partitions(topic)
            return bool(found)

        await_that(are_there, f"{topic} cannot be read", 60)
        return found


def _nothing() -> None:
    """The network is healed as a whole."""
