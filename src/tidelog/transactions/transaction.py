"""One transactional id, as a value: who its producer is, and where its transaction stands.

| from                    | by                                               | to                          |
|-------------------------|--------------------------------------------------|-----------------------------|
| (no record)             | InitProducerId: `Transaction.new`                | Empty                       |
| Empty, Complete*        | InitProducerId: `reopened`                       | Empty                       |
| Empty, Complete*        | AddPartitionsToTxn, AddOffsetsToTxn: `extended`  | Ongoing                     |
| Ongoing                 | the same                                         | Ongoing                     |
| Ongoing                 | EndTxn: `prepared`, `prepared_raised`            | PrepareCommit, PrepareAbort |
| Ongoing                 | timeout, InitProducerId: `prepared_raised`       | PrepareAbort                |
| Empty, Complete*        | EndTxn abort, new protocol: `aborted_empty`      | CompleteAbort               |
| PrepareCommit           | all markers are committed: `completed`           | CompleteCommit              |
| PrepareAbort            | all markers are committed: `completed`           | CompleteAbort               |
| Empty, Complete*        | not used for `transactional.id.expiration.ms`    | Dead (a tombstone)          |

A producer's *identity* is its id and epoch. The new protocol (EndTxn 5) raises the epoch with the end of each
transaction, and so does fencing, in both protocols: Prepare* has the raised epoch, and the markers carry it.
Epoch 32767 is never given to a producer. Where the raised epoch would be 32767, Prepare* has the producer id
that follows as `next_producer_id`, the markers carry the old id with 32767, and Complete* takes the new id.

**Invariant:** a transition is one of the table; the outcome of Prepare* never changes; `number` rises with
each end, so that two ends of one producer id are never taken for one another.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

EPOCH_MAX = 32_767  # in markers alone: the last epoch that a producer has is one less
NO_PRODUCER_ID, NO_EPOCH, NO_TIME = -1, -1, -1
OLD_PROTOCOL, NEW_PROTOCOL = 0, 2  # levels of transaction.version that records and markers name

Spot = tuple[str, int]  # a partition: its topic and its index


class State(IntEnum):
    """Where a transaction stands, by its number in a record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def title(self) -> str:
        """As the protocol spells it: `PrepareCommit`."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)

    @property
    def is_commit(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


_LEADS_TO = {
    State.EMPTY: (State.EMPTY, State.ONGOING),
    State.ONGOING: (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT),
    State.PREPARE_COMMIT: (State.COMPLETE_COMMIT,),
    State.PREPARE_ABORT: (State.COMPLETE_ABORT,),
    State.COMPLETE_COMMIT: (State.EMPTY, State.ONGOING),
    State.COMPLETE_ABORT: (State.EMPTY, State.ONGOING),
}


class Identity(NamedTuple):
    """Of a producer; both are -1 for a producer that names none."""

    producer_id: int
    epoch: int


NO_IDENTITY = Identity(NO_PRODUCER_ID, NO_EPOCH)


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: State
    timeout_ms: int
    partitions: frozenset[Spot]
    updated_ms: int
    started_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID  # before the last change of the id
    next_producer_id: int = NO_PRODUCER_ID  # of a Prepare* whose epochs have come to their end
    last_epoch: int = NO_EPOCH  # before the last raise, while its producer may not know the raised one
    client_version: int = OLD_PROTOCOL  # the protocol by which it was begun or, from Prepare* on, ended
    number: int = 0  # of ends that were prepared

    @classmethod
    def new(cls, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        return cls(transactional_id, producer_id, 0, State.EMPTY, timeout_ms, frozenset(), now_ms)

    # Who its producer is.

    @property
    def identity(self) -> Identity:
        return Identity(self.producer_id, self.producer_epoch)

    @property
    def former_identity(self) -> Identity:
        """What the producer had before the last raise: with it, a request that led here is repeated."""
        producer_id = self.producer_id if self.producer_epoch else self.previous_producer_id
        return Identity(producer_id, self.last_epoch)

    @property
    def next_identity(self) -> Identity:
        """What the producer has once the transaction is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return Identity(self.next_producer_id, 0)
        return self.identity

    @property
    def is_exhausted(self) -> bool:
        """No epoch is left that a producer could be given under this id."""
        return self.producer_epoch >= EPOCH_MAX - 1

    @property
    def has_raised_epoch(self) -> bool:
        """The end of the transaction has raised the epoch."""
        return self.client_version >= NEW_PROTOCOL and self.state >= State.PREPARE_COMMIT

    @property
    def ends_ms(self) -> int:
        """When an open transaction times out."""
        return self.started_ms + self.timeout_ms

    # Transitions.

    def _become(self, state: State, now_ms: int, **changes: Any) -> Transaction:
        assert state in _LEADS_TO[self.state], (self.transactional_id, self.state, state)
        return self._replace(state=state, updated_ms=now_ms, **changes)

    def reopened(self, identity: Identity, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """For an instance of the producer that begins, or goes on after an error, under an identity."""
        is_renamed = identity.producer_id != self.producer_id
        return self._become(
            State.EMPTY,
            now_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            previous_producer_id=self.producer_id if is_renamed else self.previous_producer_id,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NO_TIME,
        )

    def extended(self, partitions: frozenset[Spot], client_version: int, now_ms: int) -> Transaction:
        """With more partitions. Its producer knows its identity by now: nothing of before is repeated."""
        return self._become(
            State.ONGOING,
            now_ms,
            partitions=self.partitions | partitions,
            started_ms=self.started_ms if self.state is State.ONGOING else now_ms,
            last_epoch=NO_EPOCH,
            client_version=client_version,
        )

    def prepared(self, is_commit: bool, now_ms: int) -> Transaction:
        """Ended by the old protocol: the epoch stays."""
        state = State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT
        return self._become(state, now_ms, client_version=OLD_PROTOCOL, number=self.number + 1)

    def prepared_raised(self, is_commit: bool, next_producer_id: int, now_ms: int) -> Transaction:
        """Ended by the new protocol, or by this coordinator: the old epoch is fenced. The id that follows is
        needed if `is_exhausted`."""
        assert self.is_exhausted == (next_producer_id != NO_PRODUCER_ID)
        state = State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT
        return self._become(
            state,
            now_ms,
            producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX),
            last_epoch=self.producer_epoch,
            next_producer_id=next_producer_id,
            client_version=NEW_PROTOCOL,
            number=self.number + 1,
        )

    def aborted_empty(self, next_producer_id: int, now_ms: int) -> Transaction:
        """Ended though nothing was added: no markers, so it is complete at once. The epoch is raised as well,
        or a late write of the producer could join its next transaction."""
        opened = self.extended(frozenset(), NEW_PROTOCOL, now_ms)
        return opened.prepared_raised(False, next_producer_id, now_ms).completed(now_ms)

    def completed(self, now_ms: int) -> Transaction:
        state = State.COMPLETE_COMMIT if self.state.is_commit else State.COMPLETE_ABORT
        producer_id, epoch = self.next_identity
        return self._become(
            state,
            now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            previous_producer_id=self.producer_id
            if producer_id != self.producer_id
            else self.previous_producer_id,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )
