"""A group of the classic protocol, eager: its members notice a rebalance by heartbeat and rejoin at once.

Each heartbeats once, right behind the request that begins the rebalance, and is silent otherwise.

| a member waits for | and hears            | so it                                                   |
|--------------------|----------------------|---------------------------------------------------------|
| Heartbeat          | no error             | came too early, and sends another                       |
| Heartbeat          | REBALANCE_IN_PROGRESS| joins again                                             |
| JoinGroup          | MEMBER_ID_REQUIRED   | joins with the id it was given                          |
| JoinGroup          | no error             | asks for its assignment; the leader brings all of them  |
| SyncGroup          | no error             | is settled                                              |
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from bench.load import group_frames as frames
from bench.load.group_frames import MEMBER_ID_REQUIRED, NO_ERROR, REBALANCE_IN_PROGRESS
from bench.load.members import Address, Member, Stopwatch, Table
from bench.load.pipeline import BadAnswer, Span


class Wait(Enum):
    HEARTBEAT = auto()
    JOIN = auto()
    SYNC = auto()
    LEAVE = auto()


class ClassicMember(Member):
    member_id = ""
    generation = -1
    wait = Wait.JOIN
    is_settled = False
    assigned = b""
    joining_frame = b""


class ClassicGroup:
    def __init__(self, address: Address, group: str, topic: str, partition_count: int) -> None:
        self.group = group
        self._address = address
        self._topic = topic
        self._partition_count = partition_count
        self._table: Table[ClassicMember] = Table()
        self._assignments = b""

    @property
    def members(self) -> list[ClassicMember]:
        return self._table.members

    def grow(self, count: int) -> None:
        """Bring that many members in; the rebalance ends when those that were there before rejoin."""
        if not self.members:
            self._seat_and_join()
            self._settle()
            count -= 1
        if not count:
            return
        stable = list(self.members)
        for _ in range(count):
            self._seat_and_join()
        self._rebalance(stable)

    def _seat_and_join(self) -> None:
        joiner = ClassicMember(self._address)
        self._table.seat(joiner)
        self._join(joiner)

    def _rebalance(self, stable: Sequence[ClassicMember]) -> None:
        """Newcomers get their ids; behind their second JoinGroup each stable member heartbeats."""
        self._table.run(self._act, lambda: all(member.member_id for member in self.members))
        for member in stable:
            self._heartbeat(member)
        self._settle()

    def join(self) -> Span:
        """From the JoinGroup of one more member until every member has its assignment."""
        joiner = ClassicMember(self._address)
        stable = list(self.members)
        self._table.seat(joiner)
        watch = Stopwatch()
        self._join(joiner)
        self._rebalance(stable)
        return watch.read()

    def leave(self) -> Span:
        """From the LeaveGroup of the last member until every other has its assignment."""
        leaver = self.members[-1]
        watch = Stopwatch()
        leaver.is_settled, leaver.wait = True, Wait.LEAVE
        leaver.send(frames.leave_frame(self.group, [leaver.member_id]))
        leaver.member_id = ""
        self._assignments = b""
        for member in self.members[:-1]:
            self._heartbeat(member)
        self._settle()
        taken = watch.read()
        self._table.dismiss(leaver)
        return taken

    def heartbeats(self) -> list[bytes]:
        """A heartbeat of each member as it is now."""
        return [frames.heartbeat_frame(self.group, m.generation, m.member_id) for m in self.members]

    def check(self) -> None:
        """Every member has its part, and together they have all."""
        if {member.generation for member in self.members} != {self.members[0].generation}:
            raise BadAnswer("members of one group are in different generations")
        for member, part in zip(self.members, self._parts(), strict=True):
            if frames.assignment_of(self._topic, part) not in member.assigned:
                raise BadAnswer("a member was given something else than its leader assigned")

    def close(self) -> None:
        """Leave, all at once, unless something went wrong."""
        if self.members and not any(member.is_waiting for member in self.members):
            ids = [member.member_id for member in self.members]
            self.members[0].send(frames.leave_frame(self.group, ids))
            self._table.drain()
        self._table.close()

    def _join(self, member: ClassicMember) -> None:
        if not member.joining_frame:
            member.joining_frame = frames.join_frame(self.group, member.member_id, self._topic)
        member.wait, member.is_settled = Wait.JOIN, False
        member.send(member.joining_frame)

    def _heartbeat(self, member: ClassicMember) -> None:
        member.wait, member.is_settled = Wait.HEARTBEAT, False
        member.send(frames.heartbeat_frame(self.group, member.generation, member.member_id))

    def _settle(self) -> None:
        self._table.run(self._act, lambda: all(m.is_settled and not m.is_waiting for m in self.members))

    def _act(self, member: ClassicMember, answer: bytes) -> None:
        error = frames.error_of(answer)
        if member.wait is Wait.HEARTBEAT and error == NO_ERROR:
            self._heartbeat(member)
        elif error == REBALANCE_IN_PROGRESS:
            self._join(member)
        elif error == MEMBER_ID_REQUIRED:
            member.member_id, member.joining_frame = frames.read_joined(answer).member_id, b""
            self._assignments = b""
            self._join(member)
        elif error != NO_ERROR:
            raise BadAnswer(f"{member.wait.name} of {self.group} was answered with error {error}")
        elif member.wait is Wait.JOIN:
            self._sync(member, frames.read_joined(answer))
        elif member.wait is Wait.SYNC:
            member.is_settled, member.assigned = True, answer

    def _sync(self, member: ClassicMember, joined: frames.Joined) -> None:
        member.wait, member.generation = Wait.SYNC, joined.generation
        frame = frames.sync_frame(self.group, joined.generation, member.member_id)
        if joined.leader == member.member_id:
            if joined.member_count != len(self._ids()):
                raise BadAnswer(f"the leader was told of {joined.member_count} members")
            assignments = self._assigned_by_leader()
            frame = frames.sync_frame(self.group, joined.generation, member.member_id, assignments)
        member.send(frame)

    def _assigned_by_leader(self) -> bytes:
        if not self._assignments:
            pairs = zip(self._ids(), self._parts(), strict=True)
            self._assignments = frames.assignments(
                [frames.assigned(member_id, self._topic, part) for member_id, part in pairs]
            )
        return self._assignments

    def _ids(self) -> list[str]:
        return [member.member_id for member in self.members if member.member_id]

    def _parts(self) -> list[range]:
        count = len(self._ids())
        return [range(self._partition_count)[place::count] for place in range(count)]
