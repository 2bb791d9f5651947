"""In-sync replicas of what this broker leads: `replication.leading` decides who they should be, and the store
is asked here.

| when                                  | then                                                              |
|---------------------------------------|-------------------------------------------------------------------|
| a follower fetches                    | the high watermark may move; the follower may be ready to join    |
| all that a fetch names has been noted | who is ready is proposed at once                                  |
| a tick                                | ISRs that should change are written, many in one multi            |
| a write was refused, or nobody knows  | a synced reading shows what became of it                          |

**Invariant:** a change of an ISR stays pending until the store has confirmed it or a synced reading has shown
what became of it (R5).
"""

from __future__ import annotations

from tidelog.base.schedule import Interval
from tidelog.broker.kernel import Kernel
from tidelog.broker.signal import Signal
from tidelog.broker.standing import Standing
from tidelog.broker.store_desk import StoreDesk
from tidelog.cluster.paths import BROKER_EPOCHS, BROKERS
from tidelog.cluster.store import Check, Done, Operation, Outcome, ReadNodes, Tree, Write
from tidelog.protocol.fetch import FetchPartition
from tidelog.replication.leading import IsrChange, Leading
from tidelog.replication.partition import Partition

CHANGES_TOGETHER = 100  # in one multi: if one of them is refused, all are read back


class InSync:
    def __init__(
        self, kernel: Kernel, standing: Standing, desk: StoreDesk, advanced: Signal[Partition]
    ) -> None:
        self._clock = kernel.clock
        self._standing = standing
        self._desk = desk
        self._image = desk.image
        self._advanced = advanced
        lag_max_ms = kernel.settings.number("replica.lag.time.max.ms")
        self._lag = Interval(max(lag_max_ms // 4, 1))
        self.leading = Leading(desk.image, lag_max_ms)
        self._undecided: list[IsrChange] = []  # nobody knows yet what became of these
        self.change_count = 0  # of ISRs that were written

    def on_fetch(self, partition: Partition, node_id: int, broker_epoch: int, asked: FetchPartition) -> None:
        if self.leading.on_fetch(partition, node_id, broker_epoch, asked, self._clock.uptime_ms):
            self._advanced.emit(partition)

    def admit(self) -> None:
        """Take in who has just shown that it has all that is committed."""
        admissions = self.leading.take_admissions()
        if not admissions:
            return
        self._propose()
        for partition in admissions:
            if partition.leadership is not None and partition.end_await():
                self._advanced.emit(partition)

    def maybe_begin_review(self) -> bool:
        """Whether all ISRs are to be reviewed in this tick: followers may have fallen behind."""
        return self._lag.maybe_restart(self._clock.uptime_ms)

    def tick(self) -> None:
        for partition in self.leading.end_awaits(self._clock.uptime_ms):
            self._advanced.emit(partition)
        if self._undecided:
            undecided, self._undecided = self._undecided, []
            self._find_out(undecided)
        self._propose()

    def _propose(self) -> None:
        """Ask the store for the ISRs as they should be."""
        if not self._standing.is_registered:
            return
        decided = self.leading.decide(self._clock.uptime_ms)
        for start in range(0, len(decided), CHANGES_TOGETHER):
            self._ask(decided[start : start + CHANGES_TOGETHER])

    def _ask(self, asked: list[IsrChange]) -> None:
        image = self._image
        checks: dict[int, None] = {}
        operations: list[Operation] = []
        for change in asked:
            checks |= dict.fromkeys(change.leadership.joining(change.facts))
            operations.append(Write(change.path, change.facts.encode(), change.facts.version))
            if self.leading.begin(change):
                self._advanced.emit(change.partition)
        for node_id in checks:
            epochs = f"{BROKER_EPOCHS}/{node_id}"
            operations += [Check(f"{BROKERS}/{node_id}"), Check(epochs, image.versions[epochs])]
        operations.append(self._standing.check(image))

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self.change_count += len(asked)
            else:
                self._find_out(asked)

        self._desk.change(operations, on_outcome)

    def _find_out(self, asked: list[IsrChange]) -> None:
        """What became of changes that were refused, or whose answer was lost."""
        paths = tuple(change.path for change in asked)

        def on_reading(outcome: Outcome) -> None:
            if not isinstance(outcome, Tree):
                self._undecided += asked
                return
            self._desk.take(paths, outcome.nodes)
            for change in asked:
                node = outcome.nodes.get(change.path)
                if node is not None and self.leading.refuse(change, node.version):
                    self._advanced.emit(change.partition)

        self._desk.submit(ReadNodes(paths, is_synced=True), on_reading)
