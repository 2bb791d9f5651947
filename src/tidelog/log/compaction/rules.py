"""What a round keeps of the batches of transactions, and which batches stay for what they say beside records.

**Invariant:** a marker stays as long as a batch of its transaction does, though that be empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidelog.log.compaction.request import LiveProducer
from tidelog.log.format.txnindex import AbortedTransaction
from tidelog.protocol.batch import BatchHeader


class Transactions:
    """Which batches are of an aborted transaction, and which markers end one that has left nothing.

    Batches are shown in the order of the log, all from some offset on.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, deque[AbortedTransaction]] = {}
        for transaction in sorted(aborted, key=_last_offset):
            self._aborted.setdefault(transaction.producer_id, deque()).append(transaction)
        self._seen: set[int] = set()  # producers that have a batch since their last marker

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch is of an aborted transaction."""
        if not header.is_transactional:
            return False
        found = self._ending_at(header.producer_id, header.last_offset)
        return found is not None and found.first_offset <= header.last_offset

    def add(self, header: BatchHeader) -> None:
        """A data batch was seen in this round, whatever becomes of it."""
        if header.is_transactional:
            self._seen.add(header.producer_id)

    def end(self, header: BatchHeader) -> bool:
        """Whether the marker ends a transaction of which there was a batch in this round."""
        if header.producer_id not in self._seen:
            return False
        self._seen.remove(header.producer_id)
        return True

    def aborted_by(self, header: BatchHeader) -> AbortedTransaction | None:
        """The aborted transaction that the marker ends."""
        found = self._ending_at(header.producer_id, header.last_offset)
        return found if found is not None and found.last_offset == header.last_offset else None

    def _ending_at(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        """The first aborted transaction of a producer whose marker is not below `offset`."""
        ahead = self._aborted.get(producer_id)
        while ahead and ahead[0].last_offset < offset:
            ahead.popleft()
        return ahead[0] if ahead else None


def _last_offset(transaction: AbortedTransaction) -> int:
    return transaction.last_offset


class Anchors:
    """Which batches stay though they have no records left.

    | batch                              | without it                                                       |
    |------------------------------------|------------------------------------------------------------------|
    | a live producer's last one         | its duplicates would be appended, or its epoch be forgotten      |
    | the first one of a leader epoch    | a replica that copies the log would not have the epoch           |
    | the last one of a new segment      | segments would not abut; a replica would not reach the log's end |
    """

    def __init__(self, producers: Iterable[LiveProducer]) -> None:
        self._producers = {producer.producer_id: producer for producer in producers}
        self._leader_epoch: int | None = None

    def begins_epoch(self, header: BatchHeader) -> bool:
        """Shown all batches in order: whether this one is the first of its leader epoch."""
        if self._leader_epoch is not None and header.leader_epoch <= self._leader_epoch:
            return False
        self._leader_epoch = header.leader_epoch
        return True

    def is_last_of_producer(self, header: BatchHeader) -> bool:
        known = self._producers.get(header.producer_id)
        if known is None:
            return False
        if known.last_data_offset >= 0:
            return header.last_offset == known.last_data_offset
        return header.is_control and header.producer_epoch == known.epoch
