"""Transactional ids that were not used for `transactional.id.expiration.ms`, a piece at a time.

**Invariant:** an id with a transaction that is open or prepared does not expire.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.base.limits import TRANSACTIONS_PER_PIECE
from tidelog.transactions.transaction import State, Transaction
from tidelog.transactions.turn import Turn


class Expiry:
    def __init__(self, transactions: Mapping[str, Transaction]) -> None:
        self._transactions = transactions
        self._left: list[str] = []  # ids that have yet to be looked at, of those there were

    def expire_piece(self, turn: Turn) -> bool:
        """Forget the expired ids among the next; whether those were the last."""
        oldest_ms = turn.now_ms - turn.settings.number("transactional.id.expiration.ms")
        self._left = self._left or list(self._transactions)
        piece = self._left[-TRANSACTIONS_PER_PIECE:]
        del self._left[-TRANSACTIONS_PER_PIECE:]
        for transactional_id in piece:
            found = self._transactions.get(transactional_id)
            if found is not None and _is_idle(found) and found.updated_ms <= oldest_ms:
                turn.forget(transactional_id)
        return not self._left


def _is_idle(transaction: Transaction) -> bool:
    return transaction.state is State.EMPTY or transaction.state.is_complete
