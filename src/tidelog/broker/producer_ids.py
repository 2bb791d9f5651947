"""Producer ids, taken from the store a block at a time.

**Invariant:** an id is given once in the life of a cluster: a block is this broker's when the store has said
so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.cluster import controller
from tidelog.cluster.image import PRODUCER_IDS
from tidelog.cluster.store import Done, Outcome, ReadNodes, Refused, Tree

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

OnProducerId = Callable[[int | None], None]
ATTEMPTS_MAX = 10


class ProducerIds:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ids = range(0)
        self._waiters: list[OnProducerId] = []

    def take(self, then: OnProducerId) -> None:
        """Hand the next free id to `then`, at once or when the store has given a new block; None if not."""
        if self._ids:
            self._ids, taken = self._ids[1:], self._ids[0]
            then(taken)
            return
        self._waiters.append(then)
        if len(self._waiters) == 1:
            self._ask(ATTEMPTS_MAX)

    def _ask(self, attempts: int) -> None:
        first = self._broker.image.next_producer_id
        block = range(first, first + controller.PRODUCER_ID_BLOCK_SIZE)

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self._ids = block
            elif isinstance(outcome, Refused) and attempts > 1:  # another broker was faster
                self._read(attempts - 1)
                return
            self._serve()  # after a lost answer the block may be taken: it is nobody's then

        self._broker.change(controller.decide_producer_ids(self._broker.image), on_outcome)

    def _read(self, attempts: int) -> None:
        def on_reading(outcome: Outcome) -> None:
            if isinstance(outcome, Tree):
                self._broker.image.take((PRODUCER_IDS,), outcome.nodes)
                self._ask(attempts)
            else:
                self._serve()

        self._broker.submit(ReadNodes((PRODUCER_IDS,), is_synced=True), on_reading)

    def _serve(self) -> None:
        waiters, self._waiters = self._waiters, []
        for then in waiters:
            if self._ids:
                self.take(then)
            else:
                then(None)
