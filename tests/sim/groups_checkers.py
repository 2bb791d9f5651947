"""What must hold of groups whatever happens: one small class for each claim, asked after every step.

| checker                      | claim                                                                     |
|------------------------------|---------------------------------------------------------------------------|
| NoDoubleAssignment           | no partition is held by two members that the coordinator would listen to  |
| CommittedOffsetNeverGoesBack | an acknowledged commit is kept, until another one or the topic's end      |
| ValidMemberEpoch             | no member was told an epoch that the coordinator, or its group, is behind |
| ReplayEquivalence            | a coordinator loaded from the log is what the living one is               |
| AnsweredOnce                 | no call is answered twice                                                 |
| LateCommitRefused            | nobody commits for a partition that has been given to another since       |

**Invariant:** a checker knows what was asked and what was answered; of the coordinator it reads only what
its claim is about.
"""

from __future__ import annotations

from typing import Any, Protocol

from tests.sim.groups import Call, Fetch, GroupNode
from tests.sim.groups_members import ModernMember, SimulatedMember, Spot
from tidelog.broker.data_plane.shard import Shard
from tidelog.groups.classic import ClassicGroup
from tidelog.groups.consumer import ConsumerGroup
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.groups.offsets import CommitAsk
from tidelog.groups.patterns import Patterns
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.journal import Journal

STATIC_AWAY = -2
# Answers to a commit that do not say what becomes of it.
UNDECIDED = (ErrorCode.request_timed_out, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator)


class World(Protocol):
    """What checkers look at."""

    node: GroupNode
    members: list[SimulatedMember]
    calls: list[Call]


class NoDoubleAssignment:
    def look(self, world: World) -> None:
        holders: dict[tuple[str, Spot], SimulatedMember] = {}
        for member in world.members:
            for spot in sorted(held_by(world.node, member)):
                other = holders.setdefault((member.group_id, spot), member)
                assert other is member, (
                    f"{world.node.topic_name(spot[0])}-{spot[1]} of {member.group_id} is held by "
                    f"{other.name} in epoch {other.epoch} and by {member.name} in epoch {member.epoch}"
                )


def held_by(node: GroupNode, member: SimulatedMember) -> set[Spot]:
    """What a member holds with which it would be listened to now."""
    coordinator = node.coordinator(member.group_id)
    group = coordinator.groups.get(member.group_id) if coordinator is not None else None
    if isinstance(group, ClassicGroup):
        is_in = member.member_id in group.members and member.epoch == group.generation
        return member.owned if is_in else set()
    known = group.members.get(member.member_id) if group is not None else None
    if known is None:
        return set()
    if known.epoch == member.epoch:
        return member.owned
    return {
        (topic_id, index)
        for topic_id, index in member.owned
        if known.assigned.get(topic_id, {}).get(index, member.epoch + 1) <= member.epoch
    }


Possible = list[tuple[int | None, Call | None]]  # commits, in their order; no offset for nothing


class CommittedOffsetNeverGoesBack:
    def __init__(self) -> None:
        # By group, topic and partition: what may be kept.
        self._possible: dict[tuple[str, str, int], Possible] = {}
        self._fetches: list[Call] = []

    def on_commit(self, call: Call) -> None:
        asked = call.request
        assert isinstance(asked, CommitAsk)
        for commit in asked.commits:
            place = asked.group_id, commit.topic, commit.partition
            self._possible.setdefault(place, [(None, None)]).append((commit.offset, call))

    def on_fetch(self, call: Call) -> None:
        """What somebody is told is there to stay, as if it had been acknowledged."""
        self._fetches.append(call)

    def _look_at_fetches(self) -> None:
        for call in self._fetches:
            asked = call.request
            assert isinstance(asked, Fetch)
            possible = self._possible.get((asked.group_id, asked.topic, asked.partition), [])
            values = [value for value, _ in possible]
            for told in call.answers:
                if not isinstance(told, ErrorCode) and told in values:
                    del possible[: values.index(told)]
                    possible[0] = told, None
        self._fetches = [call for call in self._fetches if not call.is_over]

    def on_topic_deleted(self, name: str) -> None:
        """Nothing of the topic is left."""
        self._fetches = [call for call in self._fetches if getattr(call.request, "topic", name) != name]
        for place, possible in self._possible.items():
            if place[1] == name:
                possible[:] = [(None, None)]

    def look(self, world: World) -> None:
        self._look_at_fetches()
        for (group_id, topic, index), possible in self._possible.items():
            coordinator = world.node.coordinator(group_id)
            if coordinator is None:
                continue
            possible[:] = self._still_possible(possible)
            if world.node.topic_id(topic) is None:
                continue  # whatever is left of it, nobody is there to begin at it
            topics = world.node.broker.coordinators.topics
            found = coordinator.committed(topics, group_id, (topic, index))
            offset = found.offset if found is not None else None
            assert offset in [value for value, _ in possible], (
                f"{topic}-{index} of {group_id} is at {offset}; it may be at {possible}"
            )
            shard = world.node.broker.coordinators.find(group_id)
            assert isinstance(shard, Shard)
            if not shard.journal.is_committed(shard.partition.log.end_offset):
                continue
            if all(call is None or call.is_over for _, call in possible):
                possible[:] = [(offset, None)]

    @staticmethod
    def _still_possible(
        possible: list[tuple[int | None, Call | None]],
    ) -> list[tuple[int | None, Call | None]]:
        """Without those that were refused, and those before the last that was acknowledged."""
        kept: Possible = []
        for value, call in possible:
            if call is not None and call.answers:
                code = call.answers[0][0]
                if code is ErrorCode.none:
                    kept.clear()
                elif code not in UNDECIDED:
                    continue
            kept.append((value, call))
        return kept


class ValidMemberEpoch:
    def look(self, world: World) -> None:
        for shard in world.node.shards():
            for group in shard.machine.groups.values():
                if isinstance(group, ConsumerGroup):
                    assert group.target_epoch <= group.epoch, f"{group.group_id}: a target from the future"
                    for known in group.members.values():
                        assert known.epoch <= group.epoch, f"{known.member_id} is ahead of {group.group_id}"
        for member in world.members:
            self._look_at(world.node, member)

    @staticmethod
    def _look_at(node: GroupNode, member: SimulatedMember) -> None:
        coordinator = node.coordinator(member.group_id)
        group = coordinator.groups.get(member.group_id) if coordinator is not None else None
        # A classic member hears of its generation before the journal does: that has only what was shared out.
        if (
            not isinstance(group, ConsumerGroup)
            or not isinstance(member, ModernMember)
            or not member.is_alive
        ):
            return
        known = group.members.get(member.member_id)
        if known is not None and known.epoch != STATIC_AWAY:
            assert member.epoch <= known.epoch, (
                f"{member.name} was told epoch {member.epoch}; the coordinator has {known.epoch}"
            )


class ReplayEquivalence:
    """Asked for now and then: it reads the whole log."""

    def look(self, world: World) -> None:
        for shard in world.node.shards():
            living, loaded = hard_state(shard.machine), hard_state(replayed(shard))
            assert loaded == living, difference(loaded, living)


def replayed(shard: Shard[GroupCoordinator]) -> GroupCoordinator:
    coordinator = GroupCoordinator(Patterns())
    journal = Journal(shard.partition, coordinator)
    while not journal.is_loaded:
        journal.load()
        assert journal.failure is None, journal.failure
    for entry in shard.entries:  # decided, and about to be written
        coordinator.replay(entry)
    return coordinator


def hard_state(coordinator: GroupCoordinator) -> dict[str, Any]:
    """All that outlives a restart."""
    state: dict[str, Any] = {
        f"offsets of {group_id}": dict(coordinator.offsets.of(group_id))
        for group_id in coordinator.offsets.group_ids()
    }
    for group_id, group in coordinator.groups.items():
        if isinstance(group, ConsumerGroup):
            state |= {f"{group_id} {name}": value for name, value in _consumer_state(group).items()}
        elif group.stored is not None:
            state[f"{group_id} classic"] = group.stored
    return state


def _consumer_state(group: ConsumerGroup) -> dict[str, Any]:
    return {
        "epoch": (group.epoch, group.metadata_hash, group.target_epoch, group.target_ms),
        "members": dict(group.members),
        "targets": dict(group.targets),
        "patterns": dict(group.patterns),
        "instances": dict(group.static_ids),
        "owners": {topic_id: dict(owners) for topic_id, owners in group.owners.items()},
    }


def difference(loaded: dict[str, Any], living: dict[str, Any]) -> str:
    names = [name for name in {**loaded, **living} if loaded.get(name) != living.get(name)]
    return "; ".join(f"{name}: loaded {loaded.get(name)}, living {living.get(name)}" for name in names)


class AnsweredOnce:
    def look(self, world: World) -> None:
        for call in world.calls:
            assert len(call.answers) <= 1, f"{call.request} was answered {call.answers}"
        world.calls[:] = [call for call in world.calls if not call.is_over]


class LateCommitRefused:
    def __init__(self) -> None:
        self._given: dict[tuple[str, Spot], str] = {}  # who was last told that a partition is his
        self._late: list[Call] = []
        self.late_count = 0

    def on_commit(self, call: Call, member_id: str, spot: Spot) -> None:
        if self._given.get((call.request.group_id, spot), member_id) != member_id:
            self._late.append(call)
            self.late_count += 1

    def look(self, world: World) -> None:
        for member in world.members:
            # It is given a partition when it first holds it, not each time that it is seen with it.
            # One that hears late of what it once was given is not given it now.
            held = held_by(world.node, member)
            for spot in held - member.noted:
                self._given[member.group_id, spot] = member.member_id
            member.noted = set(held)
        for call in self._late:
            for codes in call.answers:
                assert ErrorCode.none not in codes, f"{call.request} was taken"
        self._late = [call for call in self._late if not call.is_over]
