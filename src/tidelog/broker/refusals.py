"""Batches of idempotent producers that were refused on a connection, and will be sent again.

A producer has several batches under way. If the first is refused because the broker does not lead yet, or has
too few replicas, and that is over when the second one comes, then the second one does not follow what is in
the log. OUT_OF_ORDER_SEQUENCE_NUMBER is what Kafka says then, and librdkafka takes that for a reason to begin
a new epoch for all of its partitions: whatever it sends again in another one, and was written after all, is
written twice. So whoever is out of order only because of such a refusal is refused in the same way. (So is a
gap in front of a leader that is new; the handler sees to that.)

**Invariant:** only a batch that is missing by a refusal, a short while ago, excuses those behind it.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import NamedTuple

from tidelog.base.limits import GAPS_EXCUSED_MS, REFUSALS_KEPT
from tidelog.protocol.errors import ErrorCode

_NUMBERS = Struct(">qhi")
_NUMBERS_POSITION = 43  # in a batch
_SEQUENCE_MASK = 0x7FFFFFFF
TRANSIENT = frozenset(
    map(
        int,
        (
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.unknown_topic_id,
            ErrorCode.not_leader_or_follower,
            ErrorCode.not_enough_replicas,
            ErrorCode.kafka_storage_error,
            ErrorCode.concurrent_transactions,
        ),
    )
)

PartitionKey = tuple[str | bytes, int]


class Numbered(NamedTuple):
    """What tells a batch of an idempotent producer from all others."""

    producer_id: int
    epoch: int
    sequence: int


class _Refused(NamedTuple):
    partition: PartitionKey
    batch: Numbered
    error_code: int
    at_ms: int


def numbers_of(batch: memoryview) -> Numbered | None:
    """Of a batch whose bytes may be anything; None if no idempotent producer has sent it."""
    if len(batch) < _NUMBERS_POSITION + _NUMBERS.size:
        return None
    found = Numbered(*_NUMBERS.unpack_from(batch, _NUMBERS_POSITION))
    return found if found.producer_id >= 0 else None


class Refusals:
    """Of one connection, the last few."""

    def __init__(self) -> None:
        self._refused: deque[_Refused] = deque(maxlen=REFUSALS_KEPT)

    def are_over(self, now_ms: int) -> bool:
        """Whether none of them excuses anybody any more."""
        return now_ms - self._refused[-1].at_ms > GAPS_EXCUSED_MS

    def note(self, partition: PartitionKey, batch: Numbered, error_code: int, now_ms: int) -> None:
        """One with an error that is over soon."""
        self._refused.append(_Refused(partition, batch, error_code, now_ms))

    def excuse(self, partition: PartitionKey, batch: Numbered, expected: int | None, now_ms: int) -> int:
        """The error of the batch that is missing in front of this one, if it was refused here; else 0. It is
        the one that the log expects or, if the producer is new there, any before this one."""
        for refused in self._refused:
            sequence = refused.batch.sequence
            is_of_it = refused.partition == partition and refused.batch == batch._replace(sequence=sequence)
            is_recent = now_ms - refused.at_ms <= GAPS_EXCUSED_MS
            if (
                is_of_it
                and is_recent
                and expected in (None, sequence)
                and is_before(sequence, batch.sequence)
            ):
                return refused.error_code
        return 0


def is_before(sequence: int, other: int) -> bool:
    """Sequences begin anew behind the largest."""
    return 0 < (other - sequence) & _SEQUENCE_MASK < _SEQUENCE_MASK // 2
