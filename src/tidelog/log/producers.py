"""What the log remembers of each idempotent producer (P8), and the transactions that are open.

A batch of a known producer is one of:

| its sequence                               | then                                            |
|--------------------------------------------|-------------------------------------------------|
| equals one of the last five batches        | duplicate: answered with that batch's offset    |
| follows the last one (or the producer, or  | appended                                        |
| its epoch with sequence 0, is new)         |                                                 |
| anything else                              | OUT_OF_ORDER_SEQUENCE_NUMBER                    |
| has an epoch below the known one           | INVALID_PRODUCER_EPOCH                          |
| has an epoch above that of its open        | CONCURRENT_TRANSACTIONS: the marker of that one |
| transaction, and is of a transaction       | is on its way                                   |

The state is a function of the log: a snapshot at each roll, plus a replay of what follows.

**Invariant:** `check` changes nothing; `update` is called for batches that are in the log, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.base.limits import PRODUCERS_PER_PARTITION_MAX, RECENT_BATCHES_PER_PRODUCER
from tidelog.log.format.snapshot import decode_snapshot, encode_snapshot, pack_entry
from tidelog.protocol.batch import NO_SEQUENCE, BatchHeader
from tidelog.protocol.errors import ErrorCode, RefusedBatch
from tidelog.protocol.records import Marker

NO_OFFSET = -1
SEQUENCE_MASK = 0x7FFFFFFF


class RecentBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    last_offset: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - ((self.last_sequence - self.first_sequence) & SEQUENCE_MASK)


_NO_BATCH = RecentBatch(NO_SEQUENCE, NO_SEQUENCE, NO_OFFSET, -1)  # of a producer that has sent only markers


class EndedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Producer:
    __slots__ = (
        "_looked_at",
        "_silent_ms",
        "coordinator_epoch",
        "epoch",
        "last_end",
        "producer_id",
        "recent",
        "timestamp",
        "transaction_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = -1
        self.recent: list[RecentBatch] = []
        self.timestamp = -1
        self.coordinator_epoch = -1
        self.transaction_offset = NO_OFFSET
        # What the last marker with a number was, if this broker has written it: under which leader epoch and
        # coordinator epoch, and its number.
        self.last_end = (-1, -1, -1)
        self._looked_at: tuple[int, ...] = ()  # what was known of it when it was last looked at,
        self._silent_ms = 0  # and since when that has not changed

    def silent_ms(self, now_ms: int) -> int:
        """How long it has written nothing, by the clock of those who look now and then. Its own timestamps
        may be of long ago: history that is written today is no reason to forget its producer."""
        last_offset = self.recent[-1].last_offset if self.recent else NO_OFFSET
        looked_at = (last_offset, self.epoch, self.coordinator_epoch, self.timestamp)
        if looked_at != self._looked_at:
            self._looked_at, self._silent_ms = looked_at, now_ms
        return now_ms - self._silent_ms

    def packed(self) -> bytes:
        """Its entry in a snapshot."""
        first_sequence, last_sequence, last_offset, _ = self.recent[-1] if self.recent else _NO_BATCH
        return pack_entry(
            self.producer_id,
            self.epoch,
            last_sequence,
            last_offset,
            (last_sequence - first_sequence) & SEQUENCE_MASK,
            self.timestamp,
            self.coordinator_epoch,
            self.transaction_offset,
        )

    @property
    def last_sequence(self) -> int:
        return self.recent[-1].last_sequence if self.recent else NO_SEQUENCE


class Producers:
    """All producers of one partition."""

    def __init__(self) -> None:
        self._by_id: dict[int, Producer] = {}
        # First offset of each open transaction to its producer; offsets only grow, so the first is the least.
        self._open: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._by_id.values())

    def get(self, producer_id: int) -> Producer | None:
        return self._by_id.get(producer_id)

    def is_open(self, producer_id: int) -> bool:
        known = self._by_id.get(producer_id)
        return known is not None and known.transaction_offset != NO_OFFSET

    @property
    def has_markers(self) -> bool:
        """Whether any of them has ever ended a transaction, as far as is known."""
        return any(producer.coordinator_epoch >= 0 for producer in self)

    def first_open_offset(self) -> int | None:
        """Where the oldest undecided transaction began."""
        return next(iter(self._open), None)

    def check(self, header: BatchHeader) -> RecentBatch | None:
        """The batch this one repeats, or None if it may be appended; RefusedBatch if it may not."""
        known = self._by_id.get(header.producer_id)
        if known is None:
            return None
        if header.producer_epoch < known.epoch:
            raise RefusedBatch(
                ErrorCode.invalid_producer_epoch,
                f"producer {header.producer_id} has epoch {known.epoch}, the batch {header.producer_epoch}",
            )
        if header.producer_epoch == known.epoch:
            for recent in known.recent:
                if recent[0] == header.base_sequence and recent[1] == header.last_sequence:
                    return recent
        if known.transaction_offset != NO_OFFSET:
            self._check_within(known, header)
        else:
            self._check_sequence(header)
        return None

    def _check_within(self, known: Producer, header: BatchHeader) -> None:
        """A producer has one transaction open at a time: the next waits for the marker of this one."""
        if header.is_transactional and header.producer_epoch > known.epoch:
            raise RefusedBatch(
                ErrorCode.concurrent_transactions,
                f"the transaction of producer {header.producer_id} before this one is still open",
            )
        self._check_sequence(header)
        if not header.is_transactional:
            raise RefusedBatch(
                ErrorCode.invalid_txn_state,
                f"producer {header.producer_id} has a transaction open; the batch is outside of it",
            )

    def expected_sequence(self, producer_id: int, epoch: int) -> int | None:
        """What the next batch of a producer begins with; None if it is not known."""
        known = self._by_id.get(producer_id)
        if known is None:
            return None
        return (known.last_sequence + 1) & SEQUENCE_MASK if epoch == known.epoch else 0

    def _check_sequence(self, header: BatchHeader) -> None:
        expected = self.expected_sequence(header.producer_id, header.producer_epoch)
        if header.base_sequence != expected:
            raise RefusedBatch(
                ErrorCode.out_of_order_sequence_number,
                f"producer {header.producer_id} sent sequence {header.base_sequence}; expected {expected}",
            )

    def update(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """A data batch with a producer id went into the log at `base_offset`."""
        # Put back last, so that the first is the one that has been silent for longest.
        known = self._by_id.pop(header.producer_id, None) or Producer(header.producer_id)
        self._make_room()
        self._by_id[header.producer_id] = known
        if header.producer_epoch != known.epoch:
            known.epoch = header.producer_epoch
            known.recent.clear()
        last_offset = base_offset + header.last_offset_delta
        if header.base_sequence >= 0:
            recent = known.recent
            recent.append(RecentBatch(header.base_sequence, header.last_sequence, last_offset, timestamp))
            if len(recent) > RECENT_BATCHES_PER_PRODUCER:
                del recent[0]
        known.timestamp = timestamp
        if header.is_transactional and known.transaction_offset == NO_OFFSET:
            known.transaction_offset = base_offset
            self._open[base_offset] = header.producer_id

    def end_transaction(
        self, header: BatchHeader, base_offset: int, marker: Marker, coordinator_epoch: int
    ) -> EndedTransaction | None:
        """A marker went into the log at `base_offset`; the transaction it ended, if one was open."""
        known = self.take_epoch(header)
        known.coordinator_epoch = coordinator_epoch
        first_offset = known.transaction_offset
        if first_offset == NO_OFFSET:
            return None
        known.transaction_offset = NO_OFFSET
        self._open.pop(first_offset, None)
        return EndedTransaction(header.producer_id, first_offset, base_offset, marker is Marker.ABORT)

    def take_epoch(self, header: BatchHeader) -> Producer:
        """A control batch says which epoch its producer has, also if compaction has left its bare header."""
        known = self._by_id.get(header.producer_id) or self._add(header.producer_id)
        if header.producer_epoch != known.epoch:
            known.epoch = header.producer_epoch
            known.recent.clear()
        known.timestamp = header.max_timestamp
        return known

    def recall(self, header: BatchHeader) -> None:
        """A batch from before the snapshot, in order: known again as one that may be repeated."""
        known = self._by_id.get(header.producer_id)
        if known is None or header.is_control or header.producer_epoch != known.epoch or not known.recent:
            return
        last = known.recent.pop()
        if header.last_offset < last.last_offset:
            known.recent.append(
                RecentBatch(
                    header.base_sequence, header.last_sequence, header.last_offset, header.max_timestamp
                )
            )
            del known.recent[: -RECENT_BATCHES_PER_PRODUCER + 1]
        known.recent.append(last)

    def _add(self, producer_id: int) -> Producer:
        self._make_room()
        added = self._by_id[producer_id] = Producer(producer_id)
        return added

    def _make_room(self) -> None:
        if len(self._by_id) >= PRODUCERS_PER_PARTITION_MAX:
            oldest = next((p for p in self if p.transaction_offset == NO_OFFSET), None)
            if oldest is not None:
                del self._by_id[oldest.producer_id]

    def expire(self, now_ms: int, idle_ms: int) -> None:
        """Forget producers that wrote nothing for `idle_ms` and have no transaction open. Called now and
        then, by a clock that only goes on: silence counts from the first call that has seen it."""
        idle = [p for p in self if p.silent_ms(now_ms) >= idle_ms and p.transaction_offset == NO_OFFSET]
        for producer in idle:
            del self._by_id[producer.producer_id]

    def encode(self) -> bytes:
        """The content of a `.snapshot` file."""
        return encode_snapshot([producer.packed() for producer in self])

    def load(self, content: bytes, offset: int) -> None:
        """Take the state of a `.snapshot` file of that offset; CorruptBatch if it is not one."""
        producers = {}
        for entry in decode_snapshot(content):
            (
                producer_id,
                epoch,
                last_sequence,
                last_offset,
                delta,
                timestamp,
                coordinator_epoch,
                first_open,
            ) = entry
            producer = producers[producer_id] = Producer(producer_id)
            producer.epoch, producer.timestamp = epoch, timestamp
            producer.coordinator_epoch, producer.transaction_offset = coordinator_epoch, first_open
            if last_offset != NO_OFFSET:
                first = (last_sequence - delta) & SEQUENCE_MASK
                producer.recent.append(RecentBatch(first, last_sequence, last_offset, timestamp))
        self._by_id = producers
        opened = [(p.transaction_offset, p.producer_id) for p in self if p.transaction_offset != NO_OFFSET]
        self._open = dict(sorted(opened))
