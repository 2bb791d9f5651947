"""Batches of idempotent producers that were refused on a connection, and will be sent again.

A producer has several batches under way. If the first is refused because the broker does not lead yet, or has
too few replicas, and that is over when the second one comes, then the second one does not follow what is in
the log. OUT_OF_ORDER_SEQUENCE_NUMBER is what Kafka says then, and librdkafka takes that for a reason to begin
a new epoch for all of its partitions: whatever it sends again in another one, and was written after all, is
written twice. So whoever is out of order only because of such a refusal is refused in the same way.

**Invariant:** only a batch that is missing by a refusal, a short while ago, excuses those behind it.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import NamedTuple

from tidelog.base.limits import REFUSALS_KEPT, REFUSALS_KEPT_MS
from tidelog.protocol.errors import ErrorCode

_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43
_TRANSIENT = frozenset(
    map(
        int,
        (
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.unknown_topic_id,
            ErrorCode.not_leader_or_follower,
            ErrorCode.not_enough_replicas,
            ErrorCode.kafka_storage_error,
        ),
    )
)

PartitionKey = tuple[str | bytes, int]


class _Refused(NamedTuple):
    partition: PartitionKey
    producer: tuple[int, int, int]  # id, epoch and first sequence
    error_code: int
    at_ms: int


class Refusals:
    """Of one connection, the last few."""

    def __init__(self) -> None:
        self._refused: deque[_Refused] = deque(maxlen=REFUSALS_KEPT)

    def note(self, partition: PartitionKey, batch: memoryview, error_code: int, now_ms: int) -> None:
        """A batch, whatever its bytes are, is refused."""
        if error_code in _TRANSIENT and len(batch) >= _PRODUCER_POSITION + _PRODUCER.size:
            producer = _PRODUCER.unpack_from(batch, _PRODUCER_POSITION)
            if producer[0] >= 0:
                self._refused.append(_Refused(partition, producer, error_code, now_ms))

    def excuse(
        self, partition: PartitionKey, batch: memoryview, expected_sequence: int, now_ms: int
    ) -> int | None:
        """The error of the batch that is missing in front of one, if it was refused here."""
        producer_id, epoch, _ = _PRODUCER.unpack_from(batch, _PRODUCER_POSITION)
        missing = (producer_id, epoch, expected_sequence)
        for refused in self._refused:
            is_recent = now_ms - refused.at_ms <= REFUSALS_KEPT_MS
            if refused.producer == missing and refused.partition == partition and is_recent:
                return refused.error_code
        return None
