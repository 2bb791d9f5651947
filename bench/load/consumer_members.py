"""A group of the consumer protocol (KIP-848): members heartbeat when there is something to tell or to learn.

| a member hears                            | so it                                                       |
|-------------------------------------------|-------------------------------------------------------------|
| an assignment                             | says at once that it owns just that, which frees the others |
| no assignment, and an epoch that is past  | came too early, and heartbeats again                        |
| that another has given up partitions      | heartbeats, if it lacks some                                |
| anything else                             | is silent                                                   |
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

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
        self.is_giving_up = False
        self.is_woken = False


class ConsumerGroup:
    def __init__(self, address: Address, group: str, topic: str, partition_count: int) -> None:
        self.group = group
        self._address = address
        self._topic = topic
        self._partition_count = partition_count
        self._table: Table[ConsumerMember] = Table()
        self._counts_wanted: list[int] = []
        self._epoch_wanted = 0

    @property
    def members(self) -> list[ConsumerMember]:
        return self._table.members

    def grow(self, count: int) -> None:
        """Bring members in one after the other, then let the group come to rest."""
        for _ in range(count):
            self._join(self._seated())
        self._come_to_rest(self.members)
        self._hear_the_rest()

    def join(self) -> Span:
        """From the first heartbeat of one more member until all are at its epoch, with all partitions."""
        self._epoch_wanted = self.members[0].epoch + 1
        stable = list(self.members)
        joiner = self._seated()
        watch = Stopwatch()
        self._join(joiner)
        self._come_to_rest(stable)
        taken = watch.read()
        self._hear_the_rest()
        return taken

    def leave(self) -> Span:
        """From the heartbeat with which the last member leaves until its partitions have new owners."""
        self._epoch_wanted = self.members[0].epoch + 1
        leaver = self.members[-1]
        watch = Stopwatch()
        leaver.send(frames.consumer_heartbeat_frame(self.group, leaver.member_id, LEAVING_EPOCH))
        self._table.run(self._note, lambda: not leaver.is_waiting)
        self._table.dismiss(leaver)
        self._come_to_rest(self.members)
        taken = watch.read()
        self._hear_the_rest()
        return taken

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

    def _seated(self) -> ConsumerMember:
        member = ConsumerMember(self._address)
        self._table.seat(member)
        return member

    def _join(self, joiner: ConsumerMember) -> None:
        """The first heartbeat, and its answer: the others heartbeat behind it."""
        joiner.send(frames.consumer_join_frame(self.group, joiner.member_id, self._topic))
        self._table.run(self._note, lambda: not joiner.is_waiting)

    def _heartbeat(self, member: ConsumerMember) -> None:
        member.send(
            frames.consumer_heartbeat_frame(self.group, member.member_id, member.epoch, member.unsaid)
        )
        member.unsaid, member.is_woken = NULL, False

    def _come_to_rest(self, first: Sequence[ConsumerMember]) -> None:
        """These heartbeat; then everybody does what is left to do."""
        low, extra = divmod(self._partition_count, len(self.members))
        self._counts_wanted = [low] * (len(self.members) - extra) + [low + 1] * extra
        for member in first:
            self._heartbeat(member)
        self._table.run(self._act, self._is_at_rest)

    def _hear_the_rest(self) -> None:
        """The answers to what was acknowledged last."""
        self._table.run(self._note, lambda: not any(member.is_waiting for member in self.members))

    def _is_at_rest(self) -> bool:
        return (
            all(member.epoch == self._epoch_wanted for member in self.members)
            and sorted(member.partition_count for member in self.members) == self._counts_wanted
        )

    def _act(self, member: ConsumerMember, answer: bytes) -> None:
        has_given_up, member.is_giving_up = member.is_giving_up, False
        self._note(member, answer)
        if has_given_up:
            self._wake_others(member)
        is_too_early = member.epoch < self._epoch_wanted
        if member.unsaid != NULL or is_too_early or (member.is_woken and self._lacks(member)):
            self._heartbeat(member)

    def _wake_others(self, giver: ConsumerMember) -> None:
        for member in self.members:
            if member is not giver and self._lacks(member):
                member.is_woken = True
                if not member.is_waiting:
                    self._heartbeat(member)

    def _lacks(self, member: ConsumerMember) -> bool:
        return member.partition_count < self._counts_wanted[-1]

    def _note(self, member: ConsumerMember, answer: bytes) -> None:
        if error := frames.error_of(answer):
            raise BadAnswer(f"a heartbeat in {self.group} was answered with error {error}")
        told = frames.read_told(answer)
        member.epoch = told.epoch
        self._epoch_wanted = max(self._epoch_wanted, told.epoch)
        if told.owned is not None:
            member.is_giving_up = told.partition_count < member.partition_count
            member.owned = member.unsaid = told.owned
            member.partition_count = told.partition_count
