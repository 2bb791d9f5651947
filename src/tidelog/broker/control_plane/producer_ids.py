"""Producer ids, taken from the store a block at a time.

**Invariant:** an id is given once in the life of a cluster: a block is this broker's when the store has said
so. What another broker writes for the same block is the same, so a lost answer is not read back.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.store_change import StoreChange
from tidelog.broker.store_desk import OnOutcome, StoreDesk
from tidelog.cluster import controller
from tidelog.cluster.store import Done, Outcome

OnProducerId = Callable[[int | None], None]


class ProducerIds:
    def __init__(self, desk: StoreDesk) -> None:
        self._next_block = NextBlock(desk)
        self._ids = range(0)
        self._waiters: list[Callable[[], None]] = []
        self._is_asking = False

    def take(self) -> int | None:
        """The next free id; None if there is none at hand: more are asked for."""
        if not self._ids:
            self._ask()
            return None
        self._ids, taken = self._ids[1:], self._ids[0]
        return taken

    def ask(self, then: OnProducerId) -> None:
        """Hand the next free id to `then`, at once or when the store has given a new block; None if not."""
        self.when_ready(lambda: then(self.take() if self._ids else None))

    def when_ready(self, then: Callable[[], None]) -> None:
        """Tell when there is an id at hand, or the store has not given any."""
        if self._ids:
            then()
            return
        self._waiters.append(then)
        self._ask()

    def _ask(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self._next_block.begin(self._serve)

    def _serve(self, block: range) -> None:
        self._ids, self._is_asking = block, False
        waiters, self._waiters = self._waiters, []
        for then in waiters:
            then()


class NextBlock(StoreChange[range, range]):
    """The ids after those that are taken; none unless the store has confirmed that they are this broker's."""

    def __init__(self, desk: StoreDesk) -> None:
        self._desk = desk

    def decide(self) -> range:
        first = self._desk.image.next_producer_id
        return range(first, first + controller.PRODUCER_ID_BLOCK_SIZE)

    def write(self, block: range, on_outcome: OnOutcome) -> None:
        self._desk.change_or_read(controller.decide_producer_ids(self._desk.image), on_outcome)

    def row_of(self, block: range, outcome: Outcome) -> range:
        return block if isinstance(outcome, Done) else range(0)
