"""A life of groups, chosen by a seed: members of both protocols, topics that change, a broker that restarts.

Half of the lives keep their groups on a disk that is synced before anybody hears of it (`flush.messages=1`);
there the power may go at any step. The others are kept by memory until a clean stop. Some lives speak in
frames. Journals are written anew after a few records, a piece at a time.

**Invariant:** everything that happens follows from the seed.
"""

from __future__ import annotations

from random import Random

from tests.sim.groups import Call, DirectLine, Fetch, GroupNode, Line, Request
from tests.sim.groups_checkers import (
    AnsweredOnce,
    CommittedOffsetNeverGoesBack,
    LateCommitRefused,
    NoDoubleAssignment,
    ReplayEquivalence,
    ValidMemberEpoch,
    difference,
    hard_state,
)
from tests.sim.groups_classic import COOPERATIVE, EAGER, ClassicMember
from tests.sim.groups_frames import FrameLine
from tests.sim.groups_members import ModernMember, SimulatedMember, Spot

TOPICS = ("ta", "tb", "u")
PATTERNS = ("t.*", "u|ta", "none")
GROUPS = ("modern", "classic", "mixed")
MEMBERS_MAX = 5
CONVERGENCE_MS = 450_000
FRAMED_EACH = 8  # of so many lives one speaks in frames
GATHERED = 0.4  # of all requests: what they decide is written with that of the next one


class GroupLife:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.is_flushed = random.random() < 0.6
        self.node = GroupNode(
            seed,
            partition_count=random.choice((1, 2)),
            is_flushed=self.is_flushed,
            group_consumer_assignment_interval_ms=random.choice(("0", "1000")),
        )
        self._line: Line = FrameLine(self.node) if seed % FRAMED_EACH == 0 else DirectLine(self.node)
        self.node.gathers = lambda: random.random() < GATHERED
        self.members: list[SimulatedMember] = []
        self.calls: list[Call] = []
        self._subscriptions: dict[tuple[str, str], tuple[str, ...]] = {}  # of static members
        self.protocol = random.choice((EAGER, COOPERATIVE))
        self.offset = 0
        self.member_count = 0
        self.restart_count = 0
        self.trim_count = 0
        self.offsets = CommittedOffsetNeverGoesBack()
        self.late = LateCommitRefused()
        self.checkers = (NoDoubleAssignment(), ValidMemberEpoch(), AnsweredOnce(), self.offsets, self.late)
        self.replay = ReplayEquivalence()
        self.node.create_topic("ta", 3)

    # The line, with an eye on it.

    def send(self, request: Request) -> Call:
        call = self._line.send(request)
        self.calls.append(call)
        return call

    def poll(self) -> None:
        self._line.poll()

    # One step after the other.

    def run(self, step_count: int) -> None:
        for _ in range(step_count):
            self.step()
        self.converge()

    def step(self) -> None:
        random = self.random
        action = random.choices(
            (
                self.add_member,
                self.remove_member,
                self.pause_member,
                self.resubscribe,
                self.change_topics,
                self.commit,
                self.fetch,
                self.restart,
                self.write_anew,
            ),
            (8, 3, 4, 4, 4, 30, 10, 3, 10),
        )[0]
        action()
        self.pass_time(random.choices((0, 50, 700, 3_000, 15_000, 50_000), (30, 30, 30, 30, 12, 1))[0])
        if random.random() < 0.1:
            self.replay.look(self)

    def pass_time(self, passed_ms: int) -> None:
        self.node.tick(passed_ms)
        if self.random.random() < 0.8:
            self.node.end_flushes()
        self.poll()
        for member in self.random.sample(self.members, len(self.members)):
            member.step()
        self.check()

    def check(self) -> None:
        for checker in self.checkers:
            checker.look(self)

    # What may happen.

    def live_members(self) -> list[SimulatedMember]:
        return [member for member in self.members if member.is_alive]

    def add_member(self) -> None:
        random = self.random
        group_id = random.choice(GROUPS)
        inside = [member for member in self.live_members() if member.group_id == group_id]
        if len(inside) >= MEMBERS_MAX:
            return
        self.member_count += 1
        name = f"{group_id}-{self.member_count}"
        instance_id = random.choice((None, None, None, "i1", "i2"))
        is_modern = group_id == "modern" or (group_id == "mixed" and random.random() < 0.5)
        member: ModernMember | ClassicMember
        if is_modern:
            member = ModernMember(self.node, self, group_id, name, instance_id, random)
        else:
            member = ClassicMember(self.node, self, group_id, name, instance_id, random, self.protocol)
        for other in inside:
            if instance_id is not None and other.instance_id == instance_id and random.random() < 0.8:
                other.die()  # else there are two of an instance: one of them will be fenced
        known = self._subscriptions.get((group_id, instance_id)) if instance_id is not None else None
        if known is not None and isinstance(member, ClassicMember):
            member.topics = known  # that of a static member is looked at again only when all join anew
        else:
            self.subscribe(member)
        self.members.append(member)

    def subscribe(self, member: SimulatedMember) -> None:
        member.topics = tuple(sorted(self.random.sample(TOPICS, self.random.randint(1, 3))))
        if isinstance(member, ModernMember):
            member.pattern = self.random.choice((None, None, *PATTERNS))
            if member.pattern is not None and self.random.random() < 0.5:
                member.topics = ()
        if member.instance_id is not None and member.topics:
            self._subscriptions[member.group_id, member.instance_id] = member.topics

    def remove_member(self) -> None:
        live = self.live_members()
        if not live:
            return
        member = self.random.choice(live)
        chance = self.random.random()
        if chance < 0.4 or not member.member_id:
            member.die()
        elif isinstance(member, ModernMember):
            is_back_soon = member.instance_id is not None and chance < 0.8
            member.leave(-2 if is_back_soon else -1)
        elif isinstance(member, ClassicMember):
            member.leave()
        self.members = [each for each in self.members if each.is_alive]

    def pause_member(self) -> None:
        live = self.live_members()
        if live:
            pause_ms = self.random.choice((1_000, 20_000, 60_000, 120_000))
            self.random.choice(live).paused_until_ms = self.node.wall_ms + pause_ms

    def resubscribe(self) -> None:
        live = [member for member in self.live_members() if self.node.wall_ms >= member.paused_until_ms]
        if live:
            member = self.random.choice(live)
            if isinstance(member, ClassicMember) and member.instance_id is not None:
                return  # were it replaced before it has said so, nobody would be asked to look at that
            self.subscribe(member)
            if isinstance(member, ClassicMember):
                member.subscribe_anew()

    def change_topics(self) -> None:
        name = self.random.choice(TOPICS)
        if self.node.topic_id(name) is None:
            self.node.create_topic(name, self.random.randint(1, 4))
        elif self.random.random() < 0.4:
            self.node.delete_topic(name)
            self.offsets.on_topic_deleted(name)
        elif self.node.partition_count(name) < 6:
            self.node.grow_topic(name)

    def commit(self) -> None:
        """Of anybody: also of one that is paused, as the last that it does before, or the first after."""
        owners = [member for member in self.live_members() if member.owned]
        paused = [member for member in owners if member.paused_until_ms > self.node.wall_ms]
        if owners:
            member = self.random.choice(paused if paused and self.random.random() < 0.4 else owners)
            spot: Spot = self.random.choice(sorted(member.owned))
            is_back = self.random.random() < 0.1
            self.offset += 1
            call = member.commit(spot, self.random.randrange(self.offset) if is_back else self.offset)
            if call is not None:
                self.offsets.on_commit(call)
                self.late.on_commit(call, member.member_id, spot)

    def fetch(self) -> None:
        name = self.random.choice(TOPICS)
        if self.node.topic_id(name) is not None:
            index = self.random.randrange(self.node.partition_count(name))
            self.offsets.on_fetch(self.send(Fetch(self.random.choice(GROUPS), name, index)))

    def write_anew(self) -> None:
        starts = [shard.partition.log.start_offset for shard in self.node.shards()]
        for _ in range(self.random.randint(1, 4)):
            self.node.work()
        if self.random.random() < 0.5:
            self.node.end_flushes()
        self.trim_count += starts != [shard.partition.log.start_offset for shard in self.node.shards()]

    def restart(self) -> None:
        self.restart_count += 1
        is_clean = not self.is_flushed or self.random.random() < 0.4
        kept = {}
        if is_clean:
            self.node.end_flushes()
            self.poll()
            kept = {shard.partition.index: hard_state(shard.machine) for shard in self.node.shards()}
            self.node.stop()
            self.poll()  # what was gathered is written, and answered, before it ends
        else:
            self.node.crash()
        for call in self.calls:
            call.is_lost = not call.answers
        self.node.start()
        if self.random.random() < 0.5:
            self.pass_time(self.random.choice((0, 700)))  # while it loads
        self.node.load()
        loaded = {shard.partition.index: hard_state(shard.machine) for shard in self.node.shards()}
        if is_clean:
            for index, state in kept.items():
                assert loaded[index] == state, difference(loaded[index], state)
        self.check()

    # The end.

    def converge(self) -> None:
        """The script is over: everybody who lives comes back and keeps calling."""
        newest = {(member.group_id, member.instance_id): member for member in self.members}
        for member in self.members:
            if member.instance_id is not None and newest[member.group_id, member.instance_id] is not member:
                member.die()
            member.paused_until_ms = 0
            if isinstance(member, ClassicMember):  # a leader that never joins again would never share out
                member.hurry()
        self.node.load()
        problem = "nothing was looked at"
        until_ms = self.node.wall_ms + CONVERGENCE_MS
        while self.node.wall_ms < until_ms:
            self.node.tick(500)
            self.node.end_flushes()
            self.poll()
            for member in self.members:
                member.step()
            self.check()
            problem = self.unsettled()
            if not problem:
                break
        assert not problem, problem
        self.replay.look(self)
        assert [call for call in self.calls if not call.is_over] == [], "a call was never answered"

    def unsettled(self) -> str:
        """Why the groups are not at rest; empty if they are."""
        for group_id in GROUPS:
            live = [member for member in self.live_members() if member.group_id == group_id]
            coordinator = self.node.coordinator(group_id)
            assert coordinator is not None
            group = coordinator.groups.get(group_id)
            inside = sorted(group.members) if group is not None else []
            if inside != sorted(member.member_id for member in live):
                return f"{group_id} has {inside}"
            if group is not None and group.state.value not in ("Stable", "Empty"):
                return f"{group_id} is {group.state}"
            problem = self._unowned(live)
            if problem:
                return f"{group_id}: {problem}"
            if any(member.call is not None and not member.call.is_over for member in live):
                return f"a member of {group_id} waits"
        return ""

    def _unowned(self, live: list[SimulatedMember]) -> str:
        wanted: dict[Spot, list[str]] = {}
        for member in live:
            for name in member.subscribed():
                topic_id = self.node.topic_id(name)
                assert topic_id is not None
                for index in range(self.node.partition_count(name)):
                    wanted.setdefault((topic_id, index), [])
        for member in live:
            names = {self.node.topic_id(name) for name in member.subscribed()}
            for spot in member.owned:
                if spot[0] not in names:
                    return f"{member.name} has {spot}, which it does not want"
                wanted[spot].append(member.name)
        return "; ".join(f"{spot} is with {names}" for spot, names in wanted.items() if len(names) != 1)
