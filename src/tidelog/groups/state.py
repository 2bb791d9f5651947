"""The groups of one partition of `__consumer_offsets`, as replayed from its journal.

`replay` is the only way in which a written record takes effect, at run time and at loading. After a partition
was closed to the groups of another one, its records of these groups stay until the other one has them.

**Invariant:** the state after every written decision equals a replay of the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from tidelog.base.decision import Entry
from tidelog.base.limits import OFFSETS_PER_PIECE
from tidelog.base.pending import Pending
from tidelog.groups import records
from tidelog.groups.classic import ClassicGroup
from tidelog.groups.consumer import ConsumerGroup
from tidelog.groups.facts import Fact, offset_entry, read_entry
from tidelog.groups.offsets import Offsets, Spot
from tidelog.groups.records import CLOSED_KEY, CLOSED_VALUE, OFFSET, ClassicValue, group_key, offset_key
from tidelog.groups.turn import Turn
from tidelog.protocol.errors import ErrorCode

RECORDS_PER_MEMBER = 3
Group = ClassicGroup | ConsumerGroup


class GroupState:
    def __init__(self, belongs: Callable[[str], bool] | None = None) -> None:
        """`belongs`: whether this partition keeps a group; without it, all groups."""
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.pending = Pending()  # offsets that were committed in transactions
        self.is_closed = False  # to groups that do not belong here
        self.left: dict[bytes, bytes] = {}  # the records of such groups
        self._belongs = belongs or (lambda group_id: True)

    def replay(self, entry: Entry) -> None:
        """Apply a record; raises CorruptBatch if it is neither ours nor Kafka's."""
        fact = read_entry(entry)
        if fact is None:
            if entry.key == CLOSED_KEY:
                self._close()
        elif self.is_closed and not self._belongs(fact.group_id):
            self._replay_left(entry)
        elif fact.kind == OFFSET:
            _, group_id, topic, partition, value = fact
            self.offsets.replay(group_id, topic, partition, value)
            if value is not None and group_id not in self.groups:
                self.groups[group_id] = ClassicGroup(group_id, value.commit_ms)
        elif fact.kind == records.CLASSIC:
            self._replay_classic(fact.group_id, fact.value, entry)
        else:
            self._replay_consumer(fact)

    # Groups that another partition keeps.

    def strangers(self) -> list[str]:
        """The groups here that belong to another partition."""
        return [group_id for group_id in self._ids() if not self._belongs(group_id)]

    def _close(self) -> None:
        self.is_closed = True
        for group_id in self.strangers():
            for entry in (*self._stored_group(group_id), *self._stored_offsets(group_id)):
                self._replay_left(entry)
            self.groups.pop(group_id, None)
            self.offsets.forget(group_id)

    def _replay_left(self, entry: Entry) -> None:
        if entry.value is None:
            self.left.pop(entry.key, None)
        else:
            self.left[entry.key] = entry.value

    def forget_left(self, turn: Turn) -> None:
        """Delete some of the records of groups that the other partition has completely."""
        turn.decision.entries += [Entry(key, None) for key in islice(self.left, OFFSETS_PER_PIECE)]

    # Replaying.

    def _replay_classic(self, group_id: str, value: ClassicValue | None, entry: Entry) -> None:
        group = self.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup) and group.is_empty:
                self._forget(group_id)
            return
        if isinstance(group, ConsumerGroup):
            return  # a group with records of both protocols: the consumer group is newer
        if group is not None and entry.fact is not None:  # the group itself has just decided it
            group.replay(value)
        else:
            group = self.groups[group_id] = ClassicGroup(group_id, value.state_ms)
            group.restore(value)
        group.stored = entry.value

    def _replay_consumer(self, fact: Fact) -> None:
        group = self.groups.get(fact.group_id)
        value = fact.value
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            group = self.groups[fact.group_id] = ConsumerGroup(fact.group_id)
        if fact.kind == records.CURRENT:
            group.replay_current(fact.name, value)
        elif fact.kind == records.CONSUMER and value is None:
            self._forget(fact.group_id)
        elif fact.kind == records.CONSUMER:
            group.replay_group(value)
        elif fact.kind == records.TARGET and value is not None:
            group.replay_target(value)
        elif fact.kind == records.MEMBER:
            group.replay_member(fact.name, value)
        elif fact.kind == records.TARGET_MEMBER:
            group.replay_target_member(fact.name, value)
        elif fact.kind == records.PATTERN:
            group.replay_pattern(fact.name, value)

    def _forget(self, group_id: str) -> None:
        """The group's own record was deleted; its committed offsets stay, in an empty group."""
        committed = self.offsets.of(group_id)
        if committed:
            newest_ms = max(each.commit_ms for each in committed.values())
            self.groups[group_id] = ClassicGroup(group_id, newest_ms)
        else:
            self.groups.pop(group_id, None)

    def revert(
        self,
        turn: Turn,
        group_id: str,
        former: object,
        code: ErrorCode = ErrorCode.unknown_server_error,
    ) -> None:
        """A decision for a group was not written: restore the group from the journal."""
        current = self.groups.get(group_id)
        if isinstance(current, ClassicGroup):
            current.stop(turn, code)
        elif current is not None:
            current.stop(turn)
        if isinstance(former, ConsumerGroup):
            former.forget_checks()
            self.groups[group_id] = former
            former.resume(turn)
            return
        self._forget(group_id)
        if isinstance(former, ClassicGroup) and former.stored is not None:
            self.replay(Entry(group_key(records.CLASSIC, group_id), former.stored))
            self.groups[group_id].resume(turn)

    def stored(self) -> Iterator[list[Entry]]:
        """All records that the journal must keep, in pieces; groups and offsets may change in between."""
        if self.is_closed:
            yield [Entry(CLOSED_KEY, CLOSED_VALUE)]
        for group_id in self._ids():
            yield self._stored_group(group_id)
            spots = list(self.offsets.of(group_id))
            for start in range(0, len(spots), OFFSETS_PER_PIECE):
                yield self._stored_offsets(group_id, spots[start : start + OFFSETS_PER_PIECE])
        keys = list(self.left)
        for start in range(0, len(keys), OFFSETS_PER_PIECE):
            piece = keys[start : start + OFFSETS_PER_PIECE]
            yield [Entry(key, self.left[key]) for key in piece if key in self.left]

    def stored_at(self, key: bytes) -> Entry | None:
        """The record of an offset: nothing else is written in transactions."""
        if key in self.left:
            return Entry(key, self.left[key])
        asked = records.read_key(key)
        found = self._stored_offsets(asked.group_id, [(asked.name, asked.partition)])
        return found[0] if found else None

    def is_pending(self, group_id: str, spot: Spot) -> bool:
        """Whether a transaction that is open has committed an offset for a partition."""
        return bool(self.pending) and offset_key(group_id, *spot) in self.pending

    def pending_spots(self, group_id: str) -> list[Spot]:
        """What open transactions have committed for a group."""
        keys = (records.read_key(key) for key in sorted(self.pending.keys()))
        return [(key.name, key.partition) for key in keys if key.group_id == group_id]

    def _ids(self) -> list[str]:
        return list(dict.fromkeys((*self.groups, *self.offsets.group_ids())))

    def _stored_offsets(self, group_id: str, spots: list[Spot] | None = None) -> list[Entry]:
        committed = self.offsets.of(group_id)
        wanted = committed if spots is None else spots
        return [offset_entry(group_id, *spot, committed[spot]) for spot in wanted if spot in committed]

    def _stored_group(self, group_id: str) -> list[Entry]:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.entries()
        if group is not None and group.stored is not None:
            return [Entry(group_key(records.CLASSIC, group_id), group.stored)]
        return []

    @property
    def record_count(self) -> int:
        """The approximate number of records of `stored`."""
        members = sum(
            len(group.members) for group in self.groups.values() if isinstance(group, ConsumerGroup)
        )
        return len(self.groups) + RECORDS_PER_MEMBER * members + len(self.offsets) + len(self.left)
