"""A group of the consumer protocol (KIP-848): members heartbeat and give up at once what they are told to.

| a member hears          | so its next heartbeat                                        |
|-------------------------|--------------------------------------------------------------|
| an assignment           | says that it owns just that, which is what frees the others  |
| an epoch and nothing    | says that nothing changed                                    |
"""

from __future__ import annotations

import uuid

from bench.load import group_frames as frames
from bench.load.group_frames import EMPTY, NULL
from bench.load.members import Address, Member, Stopwatch, Table
from bench.load.pipeline import BadAnswer, Span

LEAVING_EPOCH = -1


class ConsumerMember(Member):
    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned = EMPTY
        self.partition_count = 0
        self.unsaid = NULL


class ConsumerGroup:
    def __init__(self, address: Address, group: str, topic: str, partition_count: int) -> None:
        self.group = group
        self._address = address
        self._topic = topic
        self._partition_count = partition_count
        self._table: Table[ConsumerMember] = Table()
        self._counts_wanted: list[int] = []
        self._epoch_before = 0

    @property
    def members(self) -> list[ConsumerMember]:
        return self._table.members

    def grow(self, count: int) -> None:
        """Bring members in one after the other, then let the group come to rest."""
        for _ in range(count):
            member = self._joining()
            self._table.run(self._note, lambda member=member: not member.is_waiting)  # type: ignore[misc]
        for member in self.members:
            self._heartbeat(member)
        self._rest(Stopwatch())

    def join(self) -> Span:
        """From the first heartbeat of one more member until all are at its epoch, with all partitions."""
        self._epoch_before = self.members[0].epoch
        stable = list(self.members)
        watch = Stopwatch()
        self._joining()
        for member in stable:
            self._heartbeat(member)
        return self._rest(watch)

    def leave(self) -> Span:
        """From the heartbeat with which the last member leaves until its partitions have new owners."""
        self._epoch_before = self.members[0].epoch
        leaver = self.members[-1]
        watch = Stopwatch()
        leaver.send(frames.consumer_heartbeat_frame(self.group, leaver.member_id, LEAVING_EPOCH))
        self._table.run(self._note, lambda: not leaver.is_waiting)
        self._table.dismiss(leaver)
        for member in self.members:
            self._heartbeat(member)
        return self._rest(watch)

    def heartbeats(self) -> list[bytes]:
        """A heartbeat of each member as it is now."""
        return [frames.consumer_heartbeat_frame(self.group, m.member_id, m.epoch) for m in self.members]

    def check(self) -> None:
        """Every partition has one owner."""
        owned = [index for member in self.members for index in frames.partitions_of(member.owned)]
        if sorted(owned) != list(range(self._partition_count)):
            raise BadAnswer(f"{len(owned)} partitions are owned, {len({*owned})} of them different ones")

    def close(self) -> None:
        """Leave, all at once, unless something went wrong."""
        if not any(member.is_waiting for member in self.members):
            for member in self.members:
                member.send(frames.consumer_heartbeat_frame(self.group, member.member_id, LEAVING_EPOCH))
            self._table.drain()
        self._table.close()

    def _joining(self) -> ConsumerMember:
        joiner = ConsumerMember(self._address)
        self._table.seat(joiner)
        joiner.send(frames.consumer_join_frame(self.group, joiner.member_id, self._topic))
        return joiner

    def _heartbeat(self, member: ConsumerMember) -> None:
        member.send(
            frames.consumer_heartbeat_frame(self.group, member.member_id, member.epoch, member.unsaid)
        )
        member.unsaid = NULL

    def _rest(self, watch: Stopwatch) -> Span:
        """Heartbeat until the group is at rest; then let the last answers come."""
        low, extra = divmod(self._partition_count, len(self.members))
        self._counts_wanted = [low] * (len(self.members) - extra) + [low + 1] * extra
        self._table.run(self._act, self._is_at_rest)
        taken = watch.read()
        self._table.run(self._note, lambda: not any(member.is_waiting for member in self.members))
        return taken

    def _is_at_rest(self) -> bool:
        epoch = self.members[0].epoch
        return (
            epoch > self._epoch_before
            and all(member.epoch == epoch for member in self.members)
            and sorted(member.partition_count for member in self.members) == self._counts_wanted
        )

    def _act(self, member: ConsumerMember, answer: bytes) -> None:
        self._note(member, answer)
        self._heartbeat(member)

    def _note(self, member: ConsumerMember, answer: bytes) -> None:
        if error := frames.error_of(answer):
            raise BadAnswer(f"a heartbeat in {self.group} was answered with error {error}")
        told = frames.read_told(answer)
        member.epoch = told.epoch
        if told.owned is not None:
            member.owned = member.unsaid = told.owned
            member.partition_count = told.partition_count
