"""What this broker states of its replicas in the store: what their logs have lost, and where they end.

| when                                         | what is written                                          |
|----------------------------------------------|----------------------------------------------------------|
| opening a log found that records may be lost | the stamp of a torn or a lost log, before registration   |
| a disk fails, or a leader cannot read        | the same, and that nobody leads what this broker led     |
| nobody leads, and no member counts           | where the log ends (KIP-966's recovery)                  |

**Invariant:** a replica that cannot be used counts for nothing, whatever becomes of a single write: it is
tried until the store has it. Every write checks that no later process of this broker has begun.
"""

from __future__ import annotations

from tidelog.base.limits import DAMAGE_TOLD_MAX, STATED_TOGETHER
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.standing import Standing
from tidelog.broker.store_desk import StoreDesk
from tidelog.cluster.elections import answer, give_up, give_up_log, state
from tidelog.cluster.facts import (
    LOST_STAMP,
    NOBODY,
    NOWHERE,
    OFFLINE_STAMP,
    TORN_STAMP,
    Answer,
    PartitionFacts,
)
from tidelog.cluster.store import Done, Operation, Outcome, ReadNodes, Tree, Write
from tidelog.log.trust import Kept
from tidelog.replication.partition import Partition, Role

COUNTING_TO_REPLACE = 2  # other members, before a damaged log is cut
_STAMPS = {Kept.TORN: TORN_STAMP, Kept.LOST: LOST_STAMP}


def stamp_of(partition: Partition, known: int) -> int:
    """What the store should have of a member whose stamp is known there. A stamp below zero ends only when a
    leader takes the replica in; one that was offline and has lost nothing has its own again."""
    kept = known if known > OFFLINE_STAMP else OFFLINE_STAMP - known
    if partition.role is Role.OFFLINE:
        if partition.directory.is_lost or Kept.LOST in (partition.kept, partition.directory.kept):
            return LOST_STAMP
        if partition.kept is Kept.TORN:
            return TORN_STAMP if kept > LOST_STAMP else kept
        return kept if kept < 0 else OFFLINE_STAMP - kept
    found = _STAMPS.get(partition.kept, kept)
    return min(found, kept) if kept < 0 else found


class Statements:
    def __init__(self, node_id: int, standing: Standing, desk: StoreDesk, partitions: Partitions) -> None:
        self._node_id = node_id
        self._standing = standing
        self._desk = desk
        self._image = desk.image
        self._partitions = partitions
        self._due: dict[Partition, None] = {}  # of which the store may not have what it should
        self._given_up: dict[tuple[bytes, int, str], None] = {}  # partitions, and the places for which
        self._is_writing = False

    @property
    def is_due(self) -> bool:
        return bool(self._due) or self._is_writing

    def note(self, partition: Partition) -> None:
        """Its disk has failed, or what the store has of it has changed."""
        self._due[partition] = None

    def give_up(self, partition: Partition, place: str) -> None:
        """This broker leads and cannot read what it should have at that place: let another member lead that
        has all of it, if there is one (R17). Once for each place: were the others no better, leaders would
        circle."""
        facts = self._facts_of(partition)
        if facts is not None and any(map(self._image.is_able, self._others_counting(facts))):
            self._give_up_once(partition, place)

    def give_up_log(self, partition: Partition, place: str) -> None:
        """The same of a follower that counts, if it may cut its log then (`may_replace`). One that does not
        count has nothing to state, and would state it once it counts again."""
        facts = self._facts_of(partition)
        if facts is None or not self._is_member(facts):
            return
        if len(self._others_counting(facts)) >= COUNTING_TO_REPLACE:
            self._give_up_once(partition, place)

    def may_replace(self, facts: PartitionFacts) -> bool:
        """Whether this replica may drop damaged segments to fetch them again (R17), at the beginning of an
        epoch. It must not count, and it cannot join the ISR before the cut, because it has not fetched under
        this epoch. Enough others must count: one of them may be damaged too, or fail meanwhile."""
        return not self._is_member(facts) and len(self._others_counting(facts)) >= COUNTING_TO_REPLACE

    def _is_member(self, facts: PartitionFacts) -> bool:
        """Whether this replica is listed, and has not stated a loss."""
        return self._node_id in facts.listed and facts.stamp(self._node_id) >= 0

    def _others_counting(self, facts: PartitionFacts) -> list[int]:
        return [n for n in facts.listed if n != self._node_id and self._image.counts(facts, n)]

    def _give_up_once(self, partition: Partition, place: str) -> None:
        key = (partition.topic_id, partition.index, place)
        if key in self._given_up:
            return
        if len(self._given_up) >= DAMAGE_TOLD_MAX:
            self._given_up.clear()
        self._given_up[key] = None
        partition.kept = Kept.LOST
        self.note(partition)

    def forget(self, partition: Partition) -> None:
        self._due.pop(partition, None)

    def note_leaderless(self) -> None:
        """Brokers have changed, and with them who counts; or who is asked."""
        for partition in self._partitions.all():
            if partition.facts is not None and partition.leader_id == NOBODY:
                self._due[partition] = None

    def first(self) -> list[Write]:
        """Some of what must be stated before this broker registers."""
        found = ((partition, self._facts_of(partition)) for partition in self._partitions.all())
        writes: list[Write] = []
        for partition, facts in found:
            stated = facts and state(facts, self._node_id, stamp_of(partition, facts.stamp(self._node_id)))
            if stated is not None:
                writes.append(self._write(partition, stated))
                if len(writes) == STATED_TOGETHER:
                    break
        return writes

    def tick(self) -> None:
        if not self._due or self._is_writing or not self._standing.is_registered:
            return
        wanted: dict[Partition, Write] = {}
        for partition in list(self._due):
            del self._due[partition]
            stated = self._wanted(partition)
            if stated is not None:
                wanted[partition] = self._write(partition, stated)
                if len(wanted) == STATED_TOGETHER:
                    break
        if wanted:
            self._is_writing = True
            operations: list[Operation] = [self._standing.check(self._image), *wanted.values()]
            kept = [partition.kept for partition in wanted]
            self._desk.change(operations, lambda outcome: self._on_outcome(wanted, kept, outcome))

    def _facts_of(self, partition: Partition) -> PartitionFacts | None:
        topic = self._image.topics_by_id.get(partition.topic_id)
        return topic.partitions.get(partition.index) if topic is not None else None

    def _write(self, partition: Partition, stated: PartitionFacts) -> Write:
        topic = self._image.topics_by_id[partition.topic_id]
        return Write(topic.path(partition.index), stated.encode(), stated.version)

    def _wanted(self, partition: Partition) -> PartitionFacts | None:
        node_id, facts = self._node_id, self._facts_of(partition)
        if facts is None:
            return None
        is_offline = partition.role is Role.OFFLINE
        act = state
        if is_offline or (partition.kept is Kept.LOST and facts.leader == node_id):
            act = give_up
        elif partition.kept is Kept.LOST:
            act = give_up_log
        stated = act(facts, node_id, stamp_of(partition, facts.stamp(node_id)))
        has_seen = is_offline or (partition.is_open and partition.leader_epoch == facts.leader_epoch)
        if stated is not None or not has_seen or facts.leader != NOBODY:
            return stated
        log = partition.log
        end = (-1, NOWHERE) if is_offline else (log.epochs.latest, log.end_offset)
        return answer(self._image, facts, log.settings, node_id, Answer(self._standing.epoch, *end))

    def _on_outcome(self, wanted: dict[Partition, Write], kept: list[Kept], outcome: Outcome) -> None:
        self._is_writing = False
        if isinstance(outcome, Done):
            for partition, stated in zip(wanted, kept, strict=True):
                if partition.kept is stated:  # else it has lost more meanwhile
                    partition.kept = Kept.WHOLE  # what it has lost is in the store
            return
        paths = tuple(write.path for write in wanted.values())

        def on_reading(reading: Outcome) -> None:
            if isinstance(reading, Tree):
                self._desk.take(paths, reading.nodes)
            self._due |= dict.fromkeys(wanted)

        self._desk.submit(ReadNodes(paths, is_synced=True), on_reading)
