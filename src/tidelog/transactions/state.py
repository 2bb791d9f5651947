"""The transactional ids of one partition of `__transaction_state`, as its journal has them.

`replay` is the only way in which a written record takes effect, while the coordinator serves and when it
loads.

**Invariant:** the state after every decision that was written is what a replay of the journal gives.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.base.decision import Entry
from tidelog.base.limits import TRANSACTIONS_PER_PIECE
from tidelog.base.pending import Pending
from tidelog.transactions.records import read_key, read_value, transaction_key, transaction_value
from tidelog.transactions.transaction import State, Transaction


class Transactions:
    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.pending = Pending()  # nothing ever is: no transaction writes here
        self.open: dict[str, None] = {}  # ids with an open transaction
        # Transactions that have ended since the journal was loaded; a load sees the last of each id alone.
        self.committed_count = self.aborted_count = 0
        self._ids_of_producers: dict[int, str] = {}

    def replay(self, entry: Entry) -> None:
        """Let a record take effect; CorruptBatch if it is none of ours or Kafka's."""
        transactional_id = read_key(entry.key)
        following: Transaction | None = None
        if isinstance(entry.fact, Transaction):
            following = entry.fact
        elif entry.value is not None:
            following = read_value(transactional_id, entry.value)
        former = self.transactions.get(transactional_id)
        if former is not None:
            self._ids_of_producers.pop(former.producer_id, None)
        if following is None:
            self.transactions.pop(transactional_id, None)
            return
        self._count(former, following)
        self.transactions[transactional_id] = following
        self._ids_of_producers[following.producer_id] = transactional_id

    def _count(self, former: Transaction | None, following: Transaction) -> None:
        if following.state is State.ONGOING:
            self.open[following.transactional_id] = None
        else:
            self.open.pop(following.transactional_id, None)
        if following.state.is_complete and former is not None and former.state.is_prepared:
            self.committed_count += following.state.is_commit
            self.aborted_count += not following.state.is_commit

    def of_producer(self, producer_id: int) -> Transaction | None:
        """The transactional id that has a producer id now."""
        transactional_id = self._ids_of_producers.get(producer_id)
        return self.transactions[transactional_id] if transactional_id is not None else None

    @property
    def record_count(self) -> int:
        return len(self.transactions)

    def stored(self) -> Iterator[list[Entry]]:
        """One record for each id, with the partitions of a transaction that is open or prepared."""
        transactional_ids = list(self.transactions)
        for start in range(0, len(transactional_ids), TRANSACTIONS_PER_PIECE):
            piece = transactional_ids[start : start + TRANSACTIONS_PER_PIECE]
            found = (self.transactions.get(transactional_id) for transactional_id in piece)
            yield [transaction_entry(transaction) for transaction in found if transaction is not None]

    def stored_at(self, key: bytes) -> Entry | None:
        found = self.transactions.get(read_key(key))
        return transaction_entry(found) if found is not None else None


def transaction_entry(transaction: Transaction) -> Entry:
    key = transaction_key(transaction.transactional_id)
    return Entry(key, transaction_value(transaction), transaction)


def tombstone(transactional_id: str) -> Entry:
    return Entry(transaction_key(transactional_id), None)
