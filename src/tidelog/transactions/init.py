"""InitProducerId: what an instance of a producer gets that begins, or goes on after an error (KIP-360).

`cur` is the identity that the coordinator has, `former` the one before the last raise, if its producer knows
of that raise. C is CONCURRENT_TRANSACTIONS: the client asks again when the transaction is complete.

| request             | no id     | Empty, Complete*              | Ongoing                      | Prepare* |
|---------------------|-----------|-------------------------------|------------------------------|----------|
| names no producer   | new id, 0 | epoch + 1                     | PrepareAbort, epoch + 1; C   | C        |
| names `cur`         | new id, 0 | epoch + 1; a repeat gets it   | PrepareAbort, epoch + 1; C   | C        |
|                     |           | again                         |                              |          |
| names `former`      | new id, 0 | `cur` again                   | PRODUCER_FENCED              | C        |
| names another       | new id, 0 | PRODUCER_FENCED               | PRODUCER_FENCED              | C        |

Where no epoch is left there is a new producer id with epoch 0. A request without an id, with a timeout out of
bounds, or with half an identity is refused in every state.

**Invariant:** an instance that names an old identity never touches an open transaction (Kafka aborts it).
"""

from __future__ import annotations

from tidelog.base.limits import TRANSACTIONAL_ID_SIZE_MAX
from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.transaction import (
    NO_EPOCH,
    NO_IDENTITY,
    NO_PRODUCER_ID,
    Identity,
    State,
    Transaction,
)
from tidelog.transactions.turn import Init, Refused, Turn


def decide_init(found: Transaction | None, asked: Init, turn: Turn) -> Transaction:
    """What the transactional id is from now on: Empty under the identity that the instance gets, or
    PrepareAbort if it must ask again."""
    _check(asked, turn)
    if found is None:
        producer_id = turn.new_producer_id()
        return Transaction.new(asked.transactional_id, producer_id, asked.timeout_ms, turn.now_ms)
    if found.state.is_prepared:
        raise Refused(ErrorCode.concurrent_transactions)
    if asked.identity in (NO_IDENTITY, found.identity):
        if found.state is State.ONGOING:
            return decide_fence(found, turn)
        return _raise(found, asked, turn)
    if asked.identity == found.former_identity and found.state is not State.ONGOING:
        return found.reopened(found.identity, found.last_epoch, asked.timeout_ms, turn.now_ms)
    raise Refused(ErrorCode.producer_fenced)


def _check(asked: Init, turn: Turn) -> None:
    producer_id, epoch = asked.identity
    if (producer_id == NO_PRODUCER_ID) != (epoch == NO_EPOCH):
        raise Refused(ErrorCode.invalid_request)
    if not 0 < len(asked.transactional_id.encode()) <= TRANSACTIONAL_ID_SIZE_MAX:
        raise Refused(ErrorCode.invalid_request)
    if not 0 < asked.timeout_ms <= turn.settings.number("transaction.max.timeout.ms"):
        raise Refused(ErrorCode.invalid_transaction_timeout)


def _raise(found: Transaction, asked: Init, turn: Turn) -> Transaction:
    following = Identity(found.producer_id, found.producer_epoch + 1)
    if found.is_exhausted:
        following = Identity(turn.new_producer_id(), 0)
    last_epoch = NO_EPOCH if asked.identity == NO_IDENTITY else found.producer_epoch
    return found.reopened(following, last_epoch, asked.timeout_ms, turn.now_ms)


def decide_fence(found: Transaction, turn: Turn) -> Transaction:
    """Abort an open transaction whose producer is not there any more, or must not be."""
    return found.prepared_raised(False, next_producer_id(found, turn), turn.now_ms)


def next_producer_id(found: Transaction, turn: Turn) -> int:
    """The id that follows if the end of a transaction raises its epoch."""
    return turn.new_producer_id() if found.is_exhausted else NO_PRODUCER_ID
