"""The markers of a leader: which ends of transactions it writes, of those that coordinators send.

| the end has a producer epoch            | new protocol              | old protocol |
|-----------------------------------------|---------------------------|--------------|
| of a producer that is not known         | written                   | written      |
| above the known one                     | written                   | written      |
| that is known, with nothing open        | a repeat                  | written      |
| that is known, with a transaction open  | INVALID_PRODUCER_EPOCH    | written      |
| below the known one                     | INVALID_PRODUCER_EPOCH    | the same     |

By the new protocol a marker has an epoch above that of its transaction: one that has the open transaction's
is of the one before (KAFKA-19446). A repeat by a later coordinator is written, so that the log knows its
epoch. By the old protocol all markers of a producer look alike: the coordinator numbers them, and a number
that this leadership has seen is a repeat. TRANSACTION_COORDINATOR_FENCED if a later coordinator has been
heard of; NOT_LEADER_OR_FOLLOWER if the number was meant for another leadership.

**Invariant:** a repeat writes nothing, and is done when the high watermark is at the log end that its answer
names: what it repeats stands below that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.base.limits import MARKER_SIZE, MARKERS_PER_WRITE_MAX
from tidelog.log.log import Log
from tidelog.log.producers import NO_OFFSET, Producer
from tidelog.protocol.batch import read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Marker, build_control_batch

NEW_PROTOCOL = 2  # the transaction version from which on the epoch rises with each transaction
NO_NUMBER = -1

_NONE = ErrorCode.none


class End(NamedTuple):
    """The end of a producer's transaction, as its coordinator sends it to a leader."""

    producer_id: int
    producer_epoch: int
    marker: Marker
    coordinator_epoch: int
    version: int = 0  # of the transaction
    number: int = NO_NUMBER  # it rises with each end of the producer
    leader_epoch: int = -1  # of the leadership that the number is meant for


class Marked(NamedTuple):
    """The answer to an end; with no error it is done when the high watermark is at `end_offset`."""

    code: ErrorCode
    end_offset: int = NO_OFFSET


def append_markers(log: Log, ends: Iterable[End], leader_epoch: int, now_ms: int) -> list[Marked]:
    """Write the markers of the ends that are neither refused nor repeats, many in one write; the answer to
    each. OSError if the disk failed."""
    answers: list[Marked] = []
    taken: dict[int, End] = {}  # to be written: each changes what its producer's next one is
    count_max = max(1, min(MARKERS_PER_WRITE_MAX, log.settings.segment_bytes // MARKER_SIZE))
    for end in ends:
        if end.producer_id in taken or len(taken) == count_max:
            _write(log, taken.values(), leader_epoch, now_ms)
            taken = {}
        known = log.producers.get(end.producer_id)
        code = _error(known, end, leader_epoch)
        if code is _NONE and (known is None or not _is_repeat(known, end)):
            taken[end.producer_id] = end
        answers.append(Marked(code, log.end_offset + len(taken)) if code is _NONE else Marked(code))
    if taken:
        _write(log, taken.values(), leader_epoch, now_ms)
    return answers


def _error(known: Producer | None, end: End, leader_epoch: int) -> ErrorCode:
    if min(end.producer_id, end.producer_epoch, end.coordinator_epoch) < 0:
        return ErrorCode.unknown_server_error  # as in Kafka; no log may have such a marker
    if end.number != NO_NUMBER and end.leader_epoch != leader_epoch:
        return ErrorCode.not_leader_or_follower
    if known is None:
        return _NONE
    if end.coordinator_epoch < known.coordinator_epoch:
        return ErrorCode.transaction_coordinator_fenced
    if _is_counted(known, end):
        return _NONE
    is_of_one_before = end.version >= NEW_PROTOCOL and known.transaction_offset != NO_OFFSET
    if end.producer_epoch < known.epoch or (end.producer_epoch == known.epoch and is_of_one_before):
        return ErrorCode.invalid_producer_epoch
    return _NONE


def _is_repeat(known: Producer, end: End) -> bool:
    """Whether an end that is not refused was written before."""
    is_known = (end.producer_epoch, end.coordinator_epoch) == (known.epoch, known.coordinator_epoch)
    return (is_known and end.version >= NEW_PROTOCOL) or _is_counted(known, end)


def _is_counted(known: Producer, end: End) -> bool:
    return end.number != NO_NUMBER and _numbered(end) <= known.last_end


def _numbered(end: End) -> tuple[int, int, int]:
    return end.leader_epoch, end.coordinator_epoch, end.number


def _write(log: Log, ends: Iterable[End], leader_epoch: int, now_ms: int) -> None:
    first_offset = log.end_offset
    batches = [
        build_control_batch(
            end.marker,
            end.producer_id,
            end.producer_epoch,
            end.coordinator_epoch,
            now_ms,
            base_offset=offset,
            leader_epoch=leader_epoch,
        )
        for offset, end in enumerate(ends, first_offset)
    ]
    log.write_markers(batches, leader_epoch, now_ms)
    for offset, (end, batch) in enumerate(zip(ends, batches, strict=True), first_offset):
        header = read_header(batch)
        ended = log.producers.end_transaction(header, offset, end.marker, end.coordinator_epoch)
        if ended is not None:
            log.note_ended(ended, log.bases[-1], is_indexed=False)
        known = log.producers.get(end.producer_id)
        if known is not None and end.number != NO_NUMBER:
            known.last_end = _numbered(end)
