"""The roles of the partitions that are open here, as the store gives them: whom they follow, and who follows
those that this broker leads.

| when                                  | then                                                           |
|---------------------------------------|----------------------------------------------------------------|
| the store says who leads a partition  | it leads, or follows that one's log by its fetcher             |
| a log was cut, durably                | what the store has said meanwhile is done                      |
| a tick, or brokers have come or gone  | ISRs are reviewed (`in_sync`), leaders asked (`fetching`)      |

**Invariant:** a broker begins to lead only as the one that is registered, and only what it is trusted with.
"""

from __future__ import annotations

from tidelog.broker.data_plane.checkpoints import Checkpoints
from tidelog.broker.data_plane.cuts import Cuts
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.fetching import Fetching
from tidelog.broker.data_plane.flushing import Flushing
from tidelog.broker.data_plane.in_sync import InSync
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.data_plane.relocation import Relocation
from tidelog.broker.data_plane.sessions import FetchSessions
from tidelog.broker.data_plane.statements import Statements
from tidelog.broker.kernel import Kernel
from tidelog.broker.signal import PartitionSignals
from tidelog.broker.standing import Standing
from tidelog.broker.store_desk import StoreDesk
from tidelog.cluster.facts import FLUSHED, NOBODY, PartitionFacts
from tidelog.log.replica import first_damaged
from tidelog.replication.follower import Cut
from tidelog.replication.partition import Partition, Role
from tidelog.replication.throttle import Throttle


class Replicas:
    def __init__(
        self,
        kernel: Kernel,
        standing: Standing,
        desk: StoreDesk,
        disks: Disks,
        partitions: Partitions,
        flushing: Flushing,
        statements: Statements,
        sessions: FetchSessions,
        checkpoints: Checkpoints,
        relocation: Relocation,
        signals: PartitionSignals,
    ) -> None:
        self._node_id = kernel.node_id
        self._clock = kernel.clock
        self._standing = standing
        self._image = desk.image
        self._disks = disks
        self._partitions = partitions
        self._flushing = flushing
        self._statements = statements
        self._sessions = sessions
        self._advanced = signals.advanced
        self._led = signals.led
        self._resigned = signals.resigned
        self._to_hurry: dict[int, None] = {}  # replicas of what is led since the last tick
        self.cuts = Cuts(kernel, disks, checkpoints, relocation, flushing, self.follow_on)
        self.fetching = Fetching(kernel, standing, disks, flushing, self.cuts, signals.advanced)
        self.in_sync = InSync(kernel, standing, desk, signals.advanced)
        self._leading = self.in_sync.leading
        self.given = Throttle()  # to followers that are throttled
        self.listener = kernel.settings.peer_listener  # the one that followers come in by

    def assign(self, partition: Partition, facts: PartitionFacts) -> None:
        """Let a partition be what the store says it is."""
        if partition.role is Role.OFFLINE or facts.leader == NOBODY:
            self._statements.note(partition)
        if partition.is_cutting:
            return  # looked at again when the cut is durable
        if not partition.is_open or (
            partition.facts is not None and facts.version <= partition.facts.version
        ):
            return
        if facts.leader == self._node_id and self._image.is_trusted(facts, self._node_id):
            is_same = partition.role is Role.LEADER and facts.leader_epoch == partition.leader_epoch
            if not is_same and not self._standing.is_registered:
                return  # it may be said of another broker with this number; looked at again when registered
            self._lead(partition, facts)
        else:
            self._follow(partition, facts)

    def _lead(self, partition: Partition, facts: PartitionFacts) -> None:
        self.fetching.leave(partition)
        self.cuts.drop(partition)
        partition.become_leader(self._node_id, self._image, facts, self._clock.uptime_ms)
        self._advanced.emit(partition)
        self._flushing.maybe_begin(partition)
        self._led.emit(partition)
        if len(facts.replicas) > 1 or self._leading.wants_flushed(partition) != (facts.flush == FLUSHED):
            self._leading.review(partition)
        if len(facts.replicas) > 1:
            # A fetch that waits does not name this partition yet, and the next one only if it is known there.
            self._sessions.hurry(facts.replicas)
            self._to_hurry |= dict.fromkeys(facts.replicas)

    def _follow(self, partition: Partition, facts: PartitionFacts) -> None:
        if facts.leader != partition.leader_id or partition.role is Role.LEADER:
            self.fetching.leave(partition)
        was_leader = partition.role is Role.LEADER
        is_new_epoch = facts.leader_epoch != partition.leader_epoch
        if is_new_epoch:
            self.cuts.drop(partition)
        partition.become_follower(facts)
        self._leading.drop(partition)
        if was_leader:
            self._resigned.emit(partition)
        self._advanced.emit(partition)
        if facts.leader in (NOBODY, self._node_id):
            return
        if is_new_epoch:
            self._maybe_replace(partition, facts)
        if partition.is_open:
            self.fetching.join(partition, facts.leader)

    def _maybe_replace(self, partition: Partition, facts: PartitionFacts) -> None:
        """Damaged segments are dropped and fetched again, with all that follows them."""
        offset = first_damaged(partition.log)
        if offset is not None and self._statements.may_replace(facts):
            self.cuts.plan(self.fetching.fetcher(facts.leader), [(partition, Cut(offset))])

    def drop(self, partition: Partition) -> None:
        """The partition is gone, or its disk is."""
        self.fetching.leave(partition)
        self.cuts.drop(partition)
        self._leading.drop(partition)

    def follow_on(self, partition: Partition) -> None:
        """A log was cut, durably: do what the store has said meanwhile, or ask the leader for more."""
        topic = self._image.topics_by_id.get(partition.topic_id)
        facts = topic.partitions.get(partition.index) if topic is not None else None
        if facts is not None:
            try:
                self.assign(partition, facts)
            except OSError as failure:
                self._disks.fail(partition.directory, failure)
        self.fetching.go_on(partition)

    def on_flushed(self, partition: Partition) -> None:
        if self.cuts.is_pending(partition):
            self.cuts.on_flushed(partition)
        else:
            self.fetching.on_flushed(partition)

    @property
    def is_needed(self) -> bool:
        """Whether this broker leads what another one in sync could lead."""
        image, node_id = self._image, self._node_id
        return any(
            other != node_id and image.is_able(other)
            for partition in self._partitions.all()
            if partition.leadership is not None
            for other in partition.in_sync_replicas
        )

    def note_brokers(self) -> None:
        """Brokers have come or gone."""
        self.fetching.note_brokers(self._image.brokers.values())
        self._review_all()

    def _review_all(self) -> None:
        for partition in self._partitions.all():
            if partition.leadership is not None and partition.leadership.followers:
                self._leading.review(partition)

    def note_settings(self, partition: Partition) -> None:
        self.fetching.hold_unflushed(partition)
        if partition.leadership is not None:
            self._leading.review(partition)

    def tick(self) -> None:
        if self._to_hurry:
            self._sessions.hurry(self._to_hurry)
            self._to_hurry = {}
        if self.in_sync.maybe_begin_review():
            self._review_all()
        self.fetching.tick()
        self._sessions.tell_moved()
        self.in_sync.tick()
