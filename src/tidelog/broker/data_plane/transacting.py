"""All that runs transactions on a broker: coordinators, their markers, and what waits for coordinators.

**Invariant:** when a turn is over, what others are to hear of it has left.
"""

from __future__ import annotations

from tidelog.broker.asking import Asking
from tidelog.broker.data_plane.checkpoints import Checkpoints
from tidelog.broker.data_plane.coordinators import Coordinators
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.flushing import Flushing
from tidelog.broker.data_plane.kept_topic import CreateTopic
from tidelog.broker.data_plane.marker_writes import MarkerWrites
from tidelog.broker.data_plane.marking import Marking
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.data_plane.statements import Statements
from tidelog.broker.data_plane.transactions import Transactions
from tidelog.broker.data_plane.verifying import Verifying
from tidelog.broker.kernel import Kernel
from tidelog.broker.peers import MARKERS, VERIFY
from tidelog.broker.signal import PartitionSignals
from tidelog.broker.store_desk import StoreDesk
from tidelog.broker.waiting import WaitingRoom
from tidelog.transactions.turn import ProducerIdSource


class Transacting:
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
        groups: Coordinators,
        producer_ids: ProducerIdSource,
        create_topic: CreateTopic,
    ) -> None:
        self._groups = groups
        self.coordinators = Transactions(
            kernel,
            desk.image,
            disks,
            partitions,
            flushing,
            statements,
            checkpoints,
            waiting,
            producer_ids,
            create_topic,
        )
        self._runtime = self.coordinators.runtime
        self.verifying = Verifying(kernel, desk.image, self.coordinators)
        self.marker_writes = MarkerWrites(
            kernel, disks, partitions, flushing, waiting, groups, self.verifying
        )
        self.marking = Marking(kernel, desk, self.coordinators, self.marker_writes)
        self.coordinators.ended.connect(self.marking.begin)

    def connect(self, signals: PartitionSignals) -> None:
        signals.advanced.connect(self._runtime.on_advanced, self.marking.on_advanced)
        signals.led.connect(self._runtime.lead)
        signals.resigned.connect(self.verifying.on_resigned, self._runtime.resign, self.marking.on_resigned)

    @property
    def lanes(self) -> dict[int, Asking]:
        return {MARKERS: self.marking.asking, VERIFY: self.verifying.asking}

    # The end of a turn.

    @property
    def is_unwritten(self) -> bool:
        """Whether `write` has something to do that the runtime does not know."""
        return self.verifying.has_unasked or self.marking.has_unsent

    def write(self) -> None:
        """Ask, append and send what clients have led to, and what follows from it on this broker."""
        self._groups.write()
        while self.is_unwritten or self._runtime.is_unwritten:
            self.verifying.ask()
            self._runtime.write()
            self.marking.send()
            self._groups.write()

    # Time and background work.

    @property
    def has_work(self) -> bool:
        return self.is_unwritten or self._runtime.has_work

    def work(self) -> None:
        if self.is_unwritten:
            self.write()
        if self._runtime.has_work:
            self._runtime.work()

    @property
    def next_due_ms(self) -> int | None:
        return self._runtime.next_due_ms

    def tick(self) -> None:
        self._runtime.tick()
        self.marking.tick()
        self.verifying.asking.tick()
        self.write()
