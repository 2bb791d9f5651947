"""Produce.

*Behaviour*: one flat loop over partitions: find, append, note the outcome. acks=0 gets no answer, and a
closed connection if anything failed. acks=1 and acks=all are answered when the log has the batch, after
the fsync where `flush.messages` asks for one; only acks=all minds `min.insync.replicas` (R6).

*Versions*: 3 is the first with magic 2; 5 adds the log start offset; 7 allows zstd; 8 adds record errors;
9 is flexible; 10 hints at the leader (KIP-951); 13 names topics by id.
"""

from __future__ import annotations

from tidelog.broker.broker import Broker
from tidelog.broker.waiting import Parked
from tidelog.handlers.hints import endpoints_for, hint_leader
from tidelog.handlers.names import missing_error
from tidelog.handlers.request import Request, Result
from tidelog.log.admission import RefusedRecords
from tidelog.protocol.batch import ATTRIBUTES_POSITION, CODEC_MASK, TRANSACTIONAL_BIT
from tidelog.protocol.compression import ZSTD
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import ErrorCode, MalformedRequest, RefusedBatch
from tidelog.protocol.produce import ProducedPartition, ProduceRequest, decode_produce, encode_produce
from tidelog.replication.partition import Partition

ALL = -1
MAGIC, MAGIC_POSITION = 2, 16
ZSTD_VERSION = 7

Produced = list[tuple[str | bytes, list[ProducedPartition]]]
# A partition, the offset it must have flushed, and the outcome to be told then.
Unflushed = list[tuple[Partition, int, ProducedPartition]]

_STORAGE = int(ErrorCode.kafka_storage_error)


def handle_produce(broker: Broker, request: Request) -> Result:
    produce = decode_produce(request.data, request.position, request.version)
    acks = produce.acks
    produced: Produced = []
    unflushed: Unflushed = []
    has_error = False
    for topic, batches in produce.topics:
        partitions = broker.partitions.of(topic)
        outcomes: list[ProducedPartition] = []
        for index, start, end in batches:
            partition = partitions[index] if partitions and 0 <= index < len(partitions) else None
            outcome = _append(broker, request, produce, topic, partition, index, start, end, unflushed)
            outcomes.append(outcome)
            has_error = has_error or outcome.error_code != 0
        if outcomes:
            produced.append((topic, outcomes))
    if acks == 0:
        if has_error:
            raise MalformedRequest("a batch sent with acks=0 could not be appended")
        return None
    if unflushed:
        deadline_ms = broker.uptime_ms + max(produce.timeout_ms, 0)
        return ParkedProduce(deadline_ms, request, produced, unflushed)
    endpoints = endpoints_for(broker, produced) if has_error else ()
    return encode_produce(request.version, request.correlation_id, produced, 0, endpoints)


def _append(
    broker: Broker,
    request: Request,
    produce: ProduceRequest,
    topic: str | bytes,
    partition: Partition | None,
    index: int,
    start: int,
    end: int,
    unflushed: Unflushed,
) -> ProducedPartition:
    if partition is None:
        is_known = broker.partitions.of(topic) is not None
        return ProducedPartition(index, missing_error(topic, is_known))
    error = partition.error_code or _refuse(partition, request, produce, start, end)
    if error:
        partition.refused_count += 1
        outcome = ProducedPartition(index, error)
        hint_leader(outcome, partition, request.version >= 10)
        return outcome
    try:
        appended = partition.append(request.data, start, end, broker.now_ms)
    except RefusedBatch as refusal:
        partition.refused_count += 1
        errors = refusal.record_errors if isinstance(refusal, RefusedRecords) else None
        start_offset = partition.log.start_offset
        return ProducedPartition(index, refusal.code, -1, -1, start_offset, errors, refusal.reason)
    except OSError as failure:
        partition.refused_count += 1
        broker.fail_directory(partition.directory, failure)
        return ProducedPartition(index, _STORAGE)
    outcome = ProducedPartition(
        index, 0, appended.base_offset, appended.append_time_ms, partition.log.start_offset
    )
    if partition.is_flush_wanted or appended.is_duplicate:
        if produce.acks != 0 and partition.must_wait_for_flush(appended):
            unflushed.append((partition, appended.end_offset, outcome))
        broker.maybe_flush(partition)
    broker.waiting.on_moved(partition)
    return outcome


def _refuse(partition: Partition, request: Request, produce: ProduceRequest, start: int, end: int) -> int:
    """What is wrong with a batch before its bytes are looked at in full; 0 if nothing is."""
    acks = produce.acks
    if acks not in (ALL, 0, 1):
        return ErrorCode.invalid_required_acks
    if partition.is_internal:  # what a journal has, its state machine has decided
        return ErrorCode.invalid_topic_exception
    if acks == ALL and len(partition.in_sync_replicas) < partition.log.settings.min_insync_replicas:
        return ErrorCode.not_enough_replicas
    if start < 0:
        return ErrorCode.invalid_record
    if end - start > ATTRIBUTES_POSITION + 2 and request.data[start + MAGIC_POSITION] == MAGIC:
        attributes = request.data[start + ATTRIBUTES_POSITION + 1]
        if attributes & TRANSACTIONAL_BIT:
            if produce.transactional_id is None:
                return ErrorCode.transactional_id_authorization_failed
            return ErrorCode.invalid_txn_state  # no transaction can be open without a coordinator
        if attributes & CODEC_MASK == ZSTD and request.version < ZSTD_VERSION:
            return ErrorCode.unsupported_compression_type
    return 0


class ParkedProduce(Parked):
    """A produce request that waits for fsyncs."""

    __slots__ = ("_correlation_id", "_produced", "_unflushed", "_version")

    def __init__(self, deadline_ms: int, request: Request, produced: Produced, unflushed: Unflushed) -> None:
        super().__init__(deadline_ms, [partition for partition, _, _ in unflushed])
        self._version = request.version
        self._correlation_id = request.correlation_id
        self._produced = produced
        self._unflushed = unflushed

    def try_finish(self) -> Answer | None:
        waiting: Unflushed = []
        for partition, end_offset, outcome in self._unflushed:
            if partition.error_code:
                _fail(outcome, partition.error_code)
            elif partition.log.recovery_point < end_offset:
                waiting.append((partition, end_offset, outcome))
        self._unflushed = waiting
        return None if waiting else self._encode()

    def finish_late(self) -> Answer | None:
        for _, _, outcome in self._unflushed:
            _fail(outcome, ErrorCode.request_timed_out)
        return self._encode()

    def _encode(self) -> Answer:
        return encode_produce(self._version, self._correlation_id, self._produced)


def _fail(outcome: ProducedPartition, error_code: int) -> None:
    outcome.error_code = error_code
    outcome.base_offset = -1
    outcome.log_append_time_ms = -1
