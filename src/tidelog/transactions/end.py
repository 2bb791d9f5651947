"""EndTxn: the outcome of a transaction is decided, once.

`cur` is the identity that the coordinator has, `former` the one before the end of the last transaction, if
that raised the epoch.

| new protocol       | no id | Empty           | Ongoing       | Prepare*        | Complete*        |
|--------------------|-------|-----------------|---------------|-----------------|------------------|
| `cur`, commit      | M     | S               | PrepareCommit | C               | S                |
| `cur`, abort       | M     | → CompleteAbort | PrepareAbort  | C               | → CompleteAbort  |
| `former`           | M     | F               | F             | told again, C   | told again, S    |
| another epoch / id | M     | F / M           | F / M         | C               | F / M            |

| old protocol       | no id | Empty           | Ongoing       | Prepare*        | Complete*        |
|--------------------|-------|-----------------|---------------|-----------------|------------------|
| `cur`              | M     | S               | Prepare*      | told again, C   | told again, S    |
| another epoch / id | M     | F / M           | F / M         | F / M           | F / M            |

M is INVALID_PRODUCER_ID_MAPPING, F PRODUCER_FENCED, C CONCURRENT_TRANSACTIONS, S INVALID_TXN_STATE. A
request that asks for the outcome which was decided is a repeat, and told again what the first was told; one
that asks for the other outcome is told C or S. A producer that knows its next identity while Complete was
lost with a coordinator is early in Prepare*, and not fenced.

**Invariant:** a repeated EndTxn is told what the first was told, until the next transaction begins.
"""

from __future__ import annotations

from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.add import known_producer
from tidelog.transactions.init import next_producer_id
from tidelog.transactions.transaction import State, Transaction
from tidelog.transactions.turn import End, Refused, Turn


def decide_end(found: Transaction | None, asked: End, turn: Turn) -> Transaction:
    """The transaction with its outcome, Prepare* or Complete*; the one found if this was decided before."""
    if not asked.transactional_id:
        raise Refused(ErrorCode.invalid_request)
    if found is not None and _is_repeat(found, asked):
        if found.state.is_commit is asked.is_commit:
            return found
        is_early = found.state.is_prepared
        raise Refused(ErrorCode.concurrent_transactions if is_early else ErrorCode.invalid_txn_state)
    if found is not None and found.state.is_prepared and _is_early(found, asked):
        raise Refused(ErrorCode.concurrent_transactions)
    found = known_producer(found, asked.identity)
    if found.state is not State.ONGOING:
        return _abort_empty(found, asked, turn)
    if not asked.is_new_protocol:
        return found.prepared(asked.is_commit, turn.now_ms)
    _check_level(turn)
    return found.prepared_raised(asked.is_commit, next_producer_id(found, turn), turn.now_ms)


def _is_repeat(found: Transaction, asked: End) -> bool:
    """Whether the end that was decided last may have been asked for by the same request."""
    if asked.is_new_protocol:
        return found.has_raised_epoch and asked.identity == found.former_identity
    is_ended = found.state.is_complete or (found.state.is_prepared and not found.has_raised_epoch)
    return is_ended and asked.identity == found.identity


def _is_early(found: Transaction, asked: End) -> bool:
    """Whether the producer of a prepared transaction may end its next one when this is complete."""
    return asked.is_new_protocol or asked.identity in (found.identity, found.next_identity)


def _abort_empty(found: Transaction, asked: End, turn: Turn) -> Transaction:
    """Nothing was added, as far as is known here: the new protocol may abort that."""
    if asked.is_commit or not asked.is_new_protocol:
        raise Refused(ErrorCode.invalid_txn_state)
    _check_level(turn)
    return found.aborted_empty(next_producer_id(found, turn), turn.now_ms)


def _check_level(turn: Turn) -> None:
    if not turn.may_raise_epochs:
        raise Refused(ErrorCode.unsupported_version)
