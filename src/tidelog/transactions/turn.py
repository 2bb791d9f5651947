"""One input to the transactions of a partition: when it came, what holds for it, and what it leads to.

A turn may carry several commands. `decided` has what they have decided so far, so that a later command sees
an earlier one before anything is replayed.

**Invariant:** all that a machine knows of the outside (time, settings, producer ids) comes from here.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tidelog.base.decision import Decision
from tidelog.base.setting import INT32_MAX
from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.state import tombstone, transaction_entry
from tidelog.transactions.transaction import NO_IDENTITY, Identity, Spot, Transaction

_END_SIZE_MAX = 64  # what the record of an end can have beyond that of the open transaction


class TransactionLimits(Protocol):
    """The settings that transactions go by."""

    def number(self, key: str) -> int: ...


class ProducerIdSource(Protocol):
    """Producer ids that were never given to a producer."""

    def take(self) -> int | None:
        """The next one; None if there is none at hand: more are on their way."""
        ...


class Refused(Exception):
    """A request that the state of its transaction, or the request itself, does not allow."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Turn:
    __slots__ = (
        "decided",
        "decision",
        "is_refused",
        "may_raise_epochs",
        "now_ms",
        "producer_ids",
        "record_size_max",
        "settings",
        "uptime_ms",
    )

    def __init__(
        self,
        now_ms: int,
        uptime_ms: int,
        settings: TransactionLimits,
        producer_ids: ProducerIdSource,
        may_raise_epochs: bool = True,
        record_size_max: int = INT32_MAX,
    ) -> None:
        """`may_raise_epochs`: whether `transaction.version` is at least 1, so that clients may use the new
        protocol. `record_size_max`: of a record that the journal takes."""
        self.now_ms = now_ms
        self.uptime_ms = uptime_ms
        self.settings = settings
        self.producer_ids = producer_ids
        self.may_raise_epochs = may_raise_epochs
        self.record_size_max = record_size_max
        self.decision = Decision()
        self.is_refused = False  # nothing of it is written
        self.decided: dict[str, Transaction | None] = {}

    def decide(self, transaction: Transaction) -> None:
        """What a transactional id is from now on."""
        self.decided[transaction.transactional_id] = transaction
        self.decision.entries.append(transaction_entry(transaction))

    def forget(self, transactional_id: str) -> None:
        self.decided[transactional_id] = None
        self.decision.entries.append(tombstone(transactional_id))

    def check_size(self, extended: Transaction) -> None:
        """Refused if the record of an open transaction would leave no room for that of its end, which could
        never be written then."""
        entry = transaction_entry(extended)
        if len(entry.key) + len(entry.value or b"") + _END_SIZE_MAX > self.record_size_max:
            raise Refused(ErrorCode.unknown_server_error)  # as in Kafka, where clients give up and abort

    def new_producer_id(self) -> int:
        """Refused, to be asked again, if there is none at hand."""
        producer_id = self.producer_ids.take()
        if producer_id is None:
            raise Refused(ErrorCode.coordinator_load_in_progress)
        return producer_id


# What clients ask. Versions that do not know PRODUCER_FENCED are told INVALID_PRODUCER_EPOCH.


class Init(NamedTuple):
    """InitProducerId with a transactional id."""

    transactional_id: str
    timeout_ms: int
    identity: Identity = NO_IDENTITY
    knows_fencing: bool = True  # version 4


class Add(NamedTuple):
    """Partitions of AddPartitionsToTxn, or the one of AddOffsetsToTxn: to be added, or verified."""

    transactional_id: str
    identity: Identity
    partitions: tuple[Spot, ...]
    is_new_protocol: bool = False  # AddPartitionsToTxn 4, which brokers send
    knows_fencing: bool = True  # version 2


class End(NamedTuple):
    """EndTxn."""

    transactional_id: str
    identity: Identity
    is_commit: bool
    is_new_protocol: bool = False  # version 5
    knows_fencing: bool = True  # version 2


# What they are told.


class ProducerAnswer(NamedTuple):
    """To InitProducerId and EndTxn: an error, and the identity that the producer has from now on."""

    code: ErrorCode
    identity: Identity = NO_IDENTITY


# What the leaders of partitions are to do, and have done.


class Markers(NamedTuple):
    """The end of a transaction, to be written into each of its partitions."""

    transactional_id: str
    identity: Identity  # that the markers carry
    is_commit: bool
    client_version: int  # by which a leader checks the epoch
    number: int  # by which it knows a repeated marker of the old protocol, whose epoch says nothing
    partitions: tuple[Spot, ...]


class Marked(NamedTuple):
    """Partitions whose marker is committed, or whose topic is gone for good."""

    transactional_id: str
    identity: Identity  # that the markers carry
    number: int
    partitions: tuple[Spot, ...]


def told_code(code: ErrorCode, knows_fencing: bool) -> ErrorCode:
    if code is ErrorCode.producer_fenced and not knows_fencing:
        return ErrorCode.invalid_producer_epoch
    return code
