"""The identity of an idempotent producer: an id, an epoch, and the next sequence of each partition (KIP-98).

Separate from sending, so that transactions can be built on it.

**Invariant:** a batch gets its sequence once; sent again, it has the same bytes.
"""

from __future__ import annotations

from datetime import timedelta
from struct import Struct
from types import ModuleType
from typing import Any

from tidelog.client.cluster import Cluster
from tidelog.client.codes import name_of, passes
from tidelog.client.errors import ConnectionLost, Refused, TopicPartition
from tidelog.client.exchange import INIT_PRODUCER_ID, KioExchange
from tidelog.client.transaction_messages import Opened
from tidelog.protocol.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    compute_crc,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import make

SEQUENCE_MASK = 0x7FFFFFFF  # the sequence after the largest is 0
_CRC = Struct(">I")
_PRODUCER = Struct(">qhi")  # id, epoch, base sequence
_PRODUCER_POSITION = 43
_NO_EPOCH = -1


class ProducerIdentity:
    """With a transactional id, every batch is part of the transaction that is open under the epoch."""

    def __init__(
        self,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = _NO_EPOCH,
        transactional_id: str | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.transactional_id = transactional_id
        self.next_sequences: dict[TopicPartition, int] = {}

    @property
    def is_idempotent(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def stamp(self, partition: TopicPartition, batch: bytearray, record_count: int) -> None:
        """Write producer id, epoch and sequence into the batch, then its checksum."""
        sequence = NO_SEQUENCE
        if self.is_idempotent:
            sequence = self.next_sequences.get(partition, 0)
            self.next_sequences[partition] = (sequence + record_count) & SEQUENCE_MASK
        if self.transactional_id is not None:
            batch[ATTRIBUTES_POSITION + 1] |= TRANSACTIONAL_BIT
        _PRODUCER.pack_into(batch, _PRODUCER_POSITION, self.producer_id, self.producer_epoch, sequence)
        with memoryview(batch) as view:
            _CRC.pack_into(batch, CRC_POSITION, compute_crc(view, 0, len(view)))


def identity_of(opened: Opened) -> ProducerIdentity:
    """The identity of a producer whose batches are part of that transaction."""
    return ProducerIdentity(opened.producer_id, opened.producer_epoch, opened.transactional_id)


def acquire_identity(cluster: Cluster) -> ProducerIdentity:
    """A producer id allocated by the cluster."""
    attempts = cluster.attempts("asking for a producer id")
    while True:
        try:
            answer = cluster.any_broker(KioExchange(INIT_PRODUCER_ID, _build), attempts)
            if answer.error_code == ErrorCode.none:
                return ProducerIdentity(answer.producer_id, answer.producer_epoch)
            message = f"InitProducerId: {name_of(answer.error_code)}"
            if not passes(answer.error_code):
                message += ": ask for the right to write idempotently, or set enable.idempotence=false"
                raise Refused(message, answer.error_code)
            attempts.again(ConnectionLost(message))
        except ConnectionLost as problem:
            attempts.again(problem)


def _build(types: ModuleType) -> Any:
    return make(
        types.InitProducerIdRequest,
        transactional_id=None,
        transaction_timeout=timedelta(minutes=1),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=_NO_EPOCH,
    )
