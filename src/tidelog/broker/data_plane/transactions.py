"""The transaction coordinators of this broker: one for each partition of `__transaction_state` that it leads.

A request for a transactional id becomes a turn of its partition's coordinator (`runtime`). The markers of a
transaction whose end is committed are emitted: `marking` sends them, and reports what is done.

**Invariant:** markers leave only while the shard that has decided them is led here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidelog.base.events import Event, error, info
from tidelog.base.hashing import partition_of_name
from tidelog.base.limits import TRANSACTIONAL_ID_SIZE_MAX
from tidelog.broker.data_plane.checkpoints import Checkpoints
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.flushing import Flushing
from tidelog.broker.data_plane.kept_topic import CreateTopic, KeptTopic, Place
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.data_plane.runtime import Runtime
from tidelog.broker.data_plane.shard import Shard
from tidelog.broker.data_plane.statements import Statements
from tidelog.broker.kernel import Kernel
from tidelog.broker.signal import Signal
from tidelog.broker.waiting import WaitingRoom
from tidelog.cluster.features import TRANSACTIONS_TOPIC, may_raise_epochs
from tidelog.cluster.image import Image
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition
from tidelog.transactions.coordinator import TransactionCoordinator
from tidelog.transactions.turn import Marked, Markers, ProducerIdSource, Turn

TransactionShard = Shard[TransactionCoordinator]
Command = Callable[[TransactionCoordinator, Turn], None]


class Ended(NamedTuple):
    """The end of a transaction, committed by the partition that keeps its id."""

    keeper: Partition
    markers: Markers


class MarkerTicket:
    """Where a coordinator puts the markers of what has ended."""

    is_gone = False

    def __init__(self, keeper: Partition, ended: Signal[Ended]) -> None:
        self._keeper = keeper
        self._ended = ended

    def give(self, answer: Markers) -> None:
        self._ended.emit(Ended(self._keeper, answer))

    def fail(self, code: int) -> None:
        """The end was not kept, or the shard is led elsewhere: nothing is sent."""


class Transactions:
    topic = TRANSACTIONS_TOPIC

    def __init__(
        self,
        kernel: Kernel,
        image: Image,
        disks: Disks,
        partitions: Partitions,
        flushing: Flushing,
        statements: Statements,
        checkpoints: Checkpoints,
        waiting: WaitingRoom,
        producer_ids: ProducerIdSource,
        create_topic: CreateTopic,
    ) -> None:
        self._kernel = kernel
        self._outbox = kernel.outbox
        self._image = image
        self._partitions = partitions
        self._producer_ids = producer_ids
        config = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(kernel.settings.number("transaction.state.log.min.isr")),
            "unclean.leader.election.enable": "false",
        }
        self._kept = KeptTopic(
            TRANSACTIONS_TOPIC,
            "transaction.state.log",
            config,
            kernel.settings,
            image,
            kernel.outbox,
            create_topic,
        )
        self.create_topic = self._kept.create
        self.ended: Signal[Ended] = Signal()
        self.runtime: Runtime[TransactionCoordinator] = Runtime(
            self, kernel, disks, flushing, statements, checkpoints, waiting
        )

    # Who coordinates what.

    def place_of(self, transactional_id: str) -> Place | None:
        """The topic, and the number of the partition that keeps an id by Kafka's rule, wherever it is."""
        topic = self._kept.facts
        if topic is None or not topic.partitions or self.is_too_long(transactional_id):
            return None
        return topic, partition_of_name(transactional_id, len(topic.partitions))

    def is_too_long(self, transactional_id: str) -> bool:
        """Whether nobody can have such an id: it is refused for good."""
        return len(transactional_id) > TRANSACTIONAL_ID_SIZE_MAX

    def find(self, transactional_id: str) -> TransactionShard | ErrorCode:
        """The shard that serves an id now, or why there is none."""
        if self.is_too_long(transactional_id):
            return ErrorCode.invalid_request
        place = self.place_of(transactional_id)
        shard = None
        if place is not None:
            shard = self.runtime.find(self._partitions.find(TRANSACTIONS_TOPIC, place[1]))
        return ErrorCode.not_coordinator if shard is None else self.runtime.state_of(shard)

    def all(self) -> Iterator[TransactionShard | ErrorCode]:
        return map(self.runtime.state_of, self.runtime.all())

    @property
    def topic_exists(self) -> bool:
        return self._kept.facts is not None

    def report(self, keeper: Partition, done: Marked) -> None:
        """Markers are committed, or need not be written; no news if the shard is not here any more."""
        shard = self.runtime.find(keeper)
        if shard is not None and shard.journal.is_loaded:
            self.runtime.run(shard, lambda coordinator, turn: coordinator.marked(turn, done))

    # The tenant of the runtime.

    def new_machine(self, partition: Partition) -> TransactionCoordinator:
        return TransactionCoordinator(MarkerTicket(partition, self.ended))

    def new_turn(self, shard: TransactionShard) -> Turn:
        clock = self._kernel.clock
        return Turn(
            clock.now_ms,
            clock.uptime_ms,
            self._kernel.settings,
            self._producer_ids,
            may_raise_epochs(self._image),
            shard.journal.record_size_max,
        )

    def load_failed(self, partition: Partition, reason: str) -> Event:
        return error("transaction load failed", partition=partition.index, reason=reason)

    def write_failed(self, partition: Partition, reason: str) -> Event:
        return error("transaction write failed", partition=partition.index, reason=reason)

    def on_loaded(self, shard: TransactionShard) -> None:
        count = len(shard.machine.transactions)
        if count:
            self._outbox.tell(info("transactions loaded", partition=shard.partition.index, ids=count))

    def on_resigned(self, shard: TransactionShard) -> None:
        pass
