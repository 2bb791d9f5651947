"""AddPartitionsToTxn and AddOffsetsToTxn: partitions join a transaction, or are looked for in it.

| to be added                | no id | Empty, Complete* | Ongoing       | Prepare* |
|----------------------------|-------|------------------|---------------|----------|
| by the current identity    | M     | → Ongoing        | → Ongoing     | C        |
| another epoch / another id | M     | F / M            | F / M         | C        |

| to be verified             | no id | Empty, Complete* | Ongoing       | Prepare* |
|----------------------------|-------|------------------|---------------|----------|
| by the current identity    | M     | A                | in it, else A | C        |
| another epoch / another id | M     | F / M            | F / M         | F / M    |

M is INVALID_PRODUCER_ID_MAPPING, F PRODUCER_FENCED, C CONCURRENT_TRANSACTIONS, A TRANSACTION_ABORTABLE. In
Prepare* the producer that has been told its next identity is not fenced: it is early. If one partition cannot
be added none is, and the others are told OPERATION_NOT_ATTEMPTED.

**Invariant:** nothing is added to a transaction whose end is decided.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.transaction import NEW_PROTOCOL, OLD_PROTOCOL, Identity, Spot, State, Transaction
from tidelog.transactions.turn import Add, Refused, Turn


def decide_add(found: Transaction | None, asked: Add, turn: Turn) -> Transaction:
    """The transaction with the partitions in it, which is the one found if they are."""
    if not asked.transactional_id:
        raise Refused(ErrorCode.invalid_request)
    if found is not None and found.state.is_prepared:
        raise Refused(ErrorCode.concurrent_transactions)
    found = known_producer(found, asked.identity)
    added = frozenset(asked.partitions)
    if found.state is State.ONGOING and added <= found.partitions:
        return found
    if asked.is_new_protocol and not turn.may_raise_epochs:
        raise Refused(ErrorCode.unsupported_version)
    version = NEW_PROTOCOL if asked.is_new_protocol else OLD_PROTOCOL
    extended = found.extended(added, version, turn.now_ms)
    turn.check_size(extended)
    return extended


def verify(found: Transaction | None, asked: Add) -> list[ErrorCode]:
    """Of each partition, whether it is in the transaction that the producer has open."""
    if not asked.transactional_id:
        raise Refused(ErrorCode.invalid_request)
    found = known_producer(found, asked.identity)
    if found.state.is_prepared:
        raise Refused(ErrorCode.concurrent_transactions)
    open_spots = found.partitions if found.state is State.ONGOING else frozenset()
    return [
        ErrorCode.none if spot in open_spots else ErrorCode.transaction_abortable for spot in asked.partitions
    ]


def known_producer(found: Transaction | None, identity: Identity) -> Transaction:
    """The transaction, if it is its producer that asks."""
    if found is None or found.producer_id != identity.producer_id:
        raise Refused(ErrorCode.invalid_producer_id_mapping)
    if found.producer_epoch != identity.epoch:
        raise Refused(ErrorCode.producer_fenced)
    return found


def codes_with_problems(partitions: tuple[Spot, ...], problems: Mapping[Spot, ErrorCode]) -> list[ErrorCode]:
    """Of each partition of a request that has some which cannot be added."""
    return [problems.get(spot, ErrorCode.operation_not_attempted) for spot in partitions]
