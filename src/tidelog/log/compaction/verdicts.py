"""What becomes of each batch, in the order of the log: it stays as it is, loses records, is emptied, or goes.

| batch                                           | becomes                                                |
|-------------------------------------------------|--------------------------------------------------------|
| data that a later record or an abort made void  | the records that stay; the bare header if it must stay |
| has a tombstone, and no delete horizon yet      | the same, with the horizon in place of base timestamp  |
| its delete horizon has passed                   | loses its tombstones                                   |
| marker of a transaction that has a batch left   | stays                                                  |
| other marker                                    | gets a horizon; goes once that has passed              |
| behind the end of the map                       | stays, unless it was aborted                           |

A horizon is set in the round that puts the batch into the map, and in no later one: older values of its keys are
gone then. Where they are not, since the batch was larger than the map, its tombstones stay.

**Invariant:** shown the same batches, gives the same bytes; changes nothing that it was shown.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.files import Buffer
from tidelog.log.compaction.dirt import Dirt
from tidelog.log.compaction.keys import Kept
from tidelog.log.compaction.request import CleaningRequest
from tidelog.log.compaction.rewriting import (
    TIMESTAMP_MAX,
    empty_batch,
    expiring_batch,
    has_horizon,
    partial_batch,
    read_body,
)
from tidelog.log.compaction.rules import Anchors, Transactions
from tidelog.log.format.txnindex import AbortedTransaction
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.records import read_marker

NEVER = -1


class Verdict(NamedTuple):
    batch: Buffer | None  # what takes its place, if anything
    aborted: AbortedTransaction | None = None  # that the batch ends, and that readers must still skip


_GONE = Verdict(None)


class Verdicts:
    def __init__(self, request: CleaningRequest, dirt: Dirt, map_end: int) -> None:
        self._now_ms = request.now_ms
        self._horizon_ms = min(request.now_ms + request.delete_retention_ms, TIMESTAMP_MAX)
        self._dirt = dirt
        self._keys = dirt.keys
        self._map_end = map_end
        self._transactions = Transactions(request.aborted)
        self._anchors = Anchors(request.producers)
        self.earliest_horizon_ms = NEVER

    def give(self, header: BatchHeader, batch: memoryview, is_last: bool) -> Verdict:
        """`is_last`: the last batch of a new segment."""
        begins_epoch = self._anchors.begins_epoch(header)
        stays = is_last or begins_epoch or self._anchors.is_last_of_producer(header)
        if header.is_control:
            return self._end_transaction(header, batch, stays)
        is_aborted = self._transactions.is_aborted(header)
        self._transactions.add(header)
        if is_aborted or not header.record_count:
            return self._without_records(header, batch, stays)
        if header.base_offset >= self._map_end:
            return self._as_it_is(header, batch)
        return self._clean(header, batch, stays)

    def _clean(self, header: BatchHeader, batch: memoryview, stays: bool) -> Verdict:
        keeps_tombstones = not self._is_expired(header)
        place = self._dirt.next(header) if self._dirt.is_in(header) else None
        if place is not None:
            number, has_tombstones = place
            is_touched = has_tombstones and (not keeps_tombstones or not has_horizon(header))
            if not is_touched and not self._keys.has_dead(number, header.record_count):
                return self._as_it_is(header, batch)
            kept = self._keys.keep_living(read_body(header, batch), header, number, keeps_tombstones)
        else:
            kept = self._keys.keep_unknown(read_body(header, batch), header, keeps_tombstones)
        if not kept.record_count:
            return self._without_records(header, batch, stays)
        # Only a batch that was put has surely no older values before it.
        if kept.has_tombstones and not has_horizon(header) and place is not None:
            made = self._expiring(header, kept)
            if made is not None:
                return Verdict(made)
        if kept.record_count == header.record_count:
            return self._as_it_is(header, batch)
        return self._as_it_is(header, partial_batch(header, kept))

    def _end_transaction(self, header: BatchHeader, batch: memoryview, stays: bool) -> Verdict:
        if not header.record_count:
            return self._without_records(header, batch, stays)
        if read_marker(batch) is None:  # another kind of control record
            return self._as_it_is(header, batch)
        aborted = self._transactions.aborted_by(header)
        if self._transactions.end(header):
            return self._as_it_is(header, batch)._replace(aborted=aborted)
        if self._is_expired(header):
            return self._without_records(header, batch, stays)
        if not has_horizon(header) and header.base_offset < self._map_end:
            last_time_delta = header.max_timestamp - header.base_timestamp
            whole = Kept(read_body(header, batch), header.record_count, last_time_delta, False)
            made = self._expiring(header, whole)
            if made is not None:
                return Verdict(made)
        return self._as_it_is(header, batch)

    def _is_expired(self, header: BatchHeader) -> bool:
        return has_horizon(header) and header.base_timestamp <= self._now_ms

    def _expiring(self, header: BatchHeader, kept: Kept) -> bytearray | None:
        made = expiring_batch(header, kept, self._keys, self._horizon_ms)
        if made is not None:
            self._note_horizon(self._horizon_ms)
        return made

    def _as_it_is(self, header: BatchHeader, batch: Buffer) -> Verdict:
        if has_horizon(header) and header.base_timestamp > self._now_ms:
            self._note_horizon(header.base_timestamp)
        return Verdict(batch)

    def _without_records(self, header: BatchHeader, batch: memoryview, stays: bool) -> Verdict:
        if not stays:
            return _GONE
        return Verdict(empty_batch(header) if header.record_count else batch)

    def _note_horizon(self, horizon_ms: int) -> None:
        if self.earliest_horizon_ms == NEVER or horizon_ms < self.earliest_horizon_ms:
            self.earliest_horizon_ms = horizon_ms
