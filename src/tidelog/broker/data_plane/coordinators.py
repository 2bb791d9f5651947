"""The group coordinators of this broker: one for each partition of `__consumer_offsets` that it leads.

A request for a group becomes a turn of its partition's coordinator (`runtime`). Commits do not depend on each
other, so those that come one after the other share a turn.

**Invariant:** nobody is told an offset that was committed for a topic that is no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelog.base.decision import Ticket
from tidelog.base.events import Event, error, info
from tidelog.base.limits import GROUP_ID_LENGTH_MAX
from tidelog.broker.data_plane.checkpoints import Checkpoints
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.flushing import Flushing
from tidelog.broker.data_plane.group_moves import AskBroker, GroupMoves, GroupShard
from tidelog.broker.data_plane.group_views import GroupSettings, ImageTopics
from tidelog.broker.data_plane.kept_topic import CreateTopic, KeptTopic
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.data_plane.runtime import Runtime
from tidelog.broker.data_plane.statements import Statements
from tidelog.broker.kernel import Kernel
from tidelog.broker.store_desk import StoreDesk
from tidelog.broker.waiting import WaitingRoom
from tidelog.cluster.facts import DeletedTopic, TopicFacts
from tidelog.cluster.features import GROUPS_TOPIC
from tidelog.groups.coordinator import GroupCoordinator
from tidelog.groups.offsets import CommitAsk, Sweep, is_of_another
from tidelog.groups.patterns import Patterns
from tidelog.groups.records import NO_ID, CommittedOffset
from tidelog.groups.turn import Turn
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition

Command = Callable[[GroupCoordinator, Turn], None]


class Coordinators:
    topic = GROUPS_TOPIC

    def __init__(
        self,
        kernel: Kernel,
        desk: StoreDesk,
        disks: Disks,
        partitions: Partitions,
        flushing: Flushing,
        statements: Statements,
        checkpoints: Checkpoints,
        waiting: WaitingRoom,
        create_topic: CreateTopic,
        ask: AskBroker,
    ) -> None:
        """`create_topic` has a topic made by the controller; `ask` sends a request to another broker."""
        self._kernel = kernel
        self._outbox = kernel.outbox
        self._partitions = partitions
        config = {"cleanup.policy": "compact", "compression.type": "producer"}
        self._kept = KeptTopic(
            GROUPS_TOPIC,
            "offsets.topic",
            config,
            kernel.settings,
            desk.image,
            kernel.outbox,
            create_topic,
        )
        self.create_topic = self._kept.create
        self._patterns = Patterns()
        self._topics = ImageTopics(desk.image)
        self._settings = GroupSettings(kernel.settings, desk.image)
        self._runtime: Runtime[GroupCoordinator] = Runtime(
            self, kernel, disks, flushing, statements, checkpoints, waiting
        )
        self.lead, self.resign, self.on_advanced = (
            self._runtime.lead,
            self._runtime.resign,
            self._runtime.on_advanced,
        )
        self.run, self.write, self.loaded = self._runtime.run, self._runtime.write, self._runtime.loaded
        self.append_markers = self._runtime.append_markers
        self._moves = GroupMoves(self._runtime, kernel, desk, disks, partitions, flushing, ask)
        self._deleted: dict[str, set[bytes]] = {}  # ids of topics whose offsets may be there, by name
        self._sweeps: dict[GroupShard, Sweep] = {}  # for offsets of topics that are no more
        self._unswept: dict[GroupShard, None] = {}  # to be looked through once more, from the beginning

    # Who coordinates what.

    def partition_of(self, group_id: str) -> Partition | None:
        """The partition that keeps a group, by Kafka's rule, if it is here."""
        partitions = self._partitions.of(GROUPS_TOPIC)
        if not partitions or len(group_id) > GROUP_ID_LENGTH_MAX:
            return None
        return partitions[self._moves.place_of(group_id, len(partitions))]

    def place_of(self, group_id: str) -> tuple[TopicFacts, int] | None:
        """The same wherever it is: the topic, and the number of the partition."""
        topic = self._kept.facts
        if topic is None or not topic.partitions or len(group_id) > GROUP_ID_LENGTH_MAX:
            return None
        return topic, self._moves.place_of(group_id, len(topic.partitions))

    def find(self, group_id: str) -> GroupShard | ErrorCode:
        """The shard that serves a group now, or why there is none."""
        shard = self._runtime.find(self.partition_of(group_id))
        if shard is not None:
            return self._moves.refusal(shard, group_id) or self._runtime.state_of(shard)
        is_too_long = len(group_id) > GROUP_ID_LENGTH_MAX
        return ErrorCode.invalid_group_id if is_too_long else ErrorCode.not_coordinator

    def all(self) -> Iterator[GroupShard | ErrorCode]:
        return map(self._runtime.state_of, self._runtime.all())

    @property
    def topics(self) -> ImageTopics:
        return self._topics

    @property
    def topic_exists(self) -> bool:
        return self._kept.facts is not None

    # The tenant of the runtime.

    def new_machine(self, partition: Partition) -> GroupCoordinator:
        return GroupCoordinator(self._patterns, self._moves.belonging_to(partition.index))

    def new_turn(self, shard: GroupShard) -> Turn:
        return Turn(
            self._kernel.clock.now_ms,
            self._kernel.clock.uptime_ms,
            self._settings,
            self._topics,
            shard.machine.timers,
            self._kernel.entropy,
            shard.journal.record_size_max,
            shard.machine.given,
        )

    def load_failed(self, partition: Partition, reason: str) -> Event:
        return error("group load failed", partition=partition.index, reason=reason)

    def write_failed(self, partition: Partition, reason: str) -> Event:
        return error("group write failed", partition=partition.index, reason=reason)

    def on_loaded(self, shard: GroupShard) -> None:
        self._moves.on_loaded(shard)
        if len(shard.machine.offsets):
            self._unswept[shard] = None
        if shard.machine.groups:
            self._outbox.tell(
                info(
                    "groups loaded",
                    partition=shard.partition.index,
                    groups=len(shard.machine.groups),
                    offsets=len(shard.machine.offsets),
                )
            )

    def on_resigned(self, shard: GroupShard) -> None:
        self._moves.forget(shard)
        self._sweeps.pop(shard, None)
        self._unswept.pop(shard, None)

    def commit(self, shard: GroupShard, ask: CommitAsk, ticket: Ticket) -> None:
        turn = self._runtime.gather(shard, ticket)
        if turn is None:
            return
        try:
            shard.machine.commit(turn, ask, ticket)
        except Exception as bug:
            self._runtime.gathered(shard, turn, bug)
            raise
        self._runtime.gathered(shard, turn)

    # Topics that are no more.

    def on_topic_deleted(self, topic: DeletedTopic) -> None:
        """What was committed for the topic goes, a piece at a time; until then nobody is told it. A broker
        that does not hear of it (it is down, or leads the shard later) goes by the ids of topics."""
        self._deleted.setdefault(topic.name, set()).add(topic.topic_id)
        self._unswept.update(dict.fromkeys(self._runtime.all()))

    def _sweep(self) -> None:
        """One piece of one shard."""
        if not self._sweeps:
            loaded = [shard for shard in self._unswept if shard.journal.is_loaded]
            for shard in loaded:
                del self._unswept[shard]
                self._sweeps[shard] = Sweep(shard.machine.offsets)
        shard, sweep = next(iter(self._sweeps.items()))
        self.run(shard, lambda coordinator, turn: coordinator.sweep(turn, sweep, self._is_gone))
        if sweep.is_over:
            self._sweeps.pop(shard, None)

    @property
    def _may_sweep(self) -> bool:
        return bool(self._sweeps) or any(shard.journal.is_loaded for shard in self._unswept)

    def is_deleted(self, name: str, topic_id: bytes) -> bool:
        """Whether an offset was committed for a topic that was deleted a moment ago. It is gone by its id: a
        journal may come with topics that have other ids here."""
        ids = self._deleted.get(name)
        if ids is None:
            return False
        return topic_id in ids or (topic_id == NO_ID and self._topics.id_of(name) is None)

    def _is_gone(self, name: str, committed: CommittedOffset) -> bool:
        return self.is_deleted(name, committed.topic_id) or is_of_another(self._topics, name, committed)

    # Time and background work.

    def tick(self) -> None:
        if self._deleted and not self._sweeps and all(shard.journal.failure for shard in self._unswept):
            self._deleted = {}
        self._moves.tick()
        self._runtime.tick()

    @property
    def next_due_ms(self) -> int | None:
        return self._runtime.next_due_ms

    @property
    def has_work(self) -> bool:
        return self._runtime.has_work or self._moves.has_work or self._may_sweep

    def work(self) -> None:
        """One piece of what takes long."""
        if self._runtime.has_work:
            self._runtime.work()
        elif self._may_sweep:
            self._sweep()
        else:
            self._moves.work()
