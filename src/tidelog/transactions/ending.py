"""A prepared transaction while its markers are written: which are missing, and who waits for them.

EndTxn is answered when all markers are committed, so that nothing sent after the answer can join the
transaction; but at the latest `END_WAIT_MS_MAX` after the decision. The producer's next AddPartitions, which
would be told to try again, waits as well.

**Invariant:** an EndTxn is told what was decided, whenever it is answered.
"""

from __future__ import annotations

from tidelog.base.decision import Ticket
from tidelog.transactions.transaction import Spot, Transaction
from tidelog.transactions.turn import Add, Markers, ProducerAnswer


class Ending:
    __slots__ = ("adds", "ends", "is_awaited", "missing", "until_ms")

    def __init__(self, missing: frozenset[Spot], until_ms: int) -> None:
        self.missing = missing  # whose marker is not known to be committed
        self.until_ms = until_ms  # by the machine's uptime
        self.is_awaited = True  # who asks now may wait
        self.ends: list[tuple[Ticket, ProducerAnswer]] = []
        self.adds: list[tuple[Ticket, Add]] = []  # to be decided when it is complete


def markers_of(transaction: Transaction) -> Markers:
    return Markers(
        transaction.transactional_id,
        transaction.identity,
        transaction.state.is_commit,
        transaction.client_version,
        transaction.number,
        tuple(sorted(transaction.partitions)),
    )
