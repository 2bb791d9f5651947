"""WriteTxnMarkers: coordinators, and operators, end transactions in the partitions that are led here.

**Invariant:** a marker is told as written when it is committed.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.limits import MARKER_WAIT_MS, MARKERS_PER_FRAME_MAX
from tidelog.broker.broker import Broker
from tidelog.broker.waiting import Parked
from tidelog.handlers.request import Request, Result
from tidelog.log.markers import End
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import ErrorCode, MalformedRequest
from tidelog.protocol.markers import Rows, WrittenEnd, decode_markers, encode_marked
from tidelog.protocol.records import Marker
from tidelog.replication.partition import Partition

Spot = tuple[str, int]
Codes = list[dict[Spot, int]]  # of each end


class Uncommitted(NamedTuple):
    """A marker that is written, and not yet committed."""

    place: int  # of its end in the request
    spot: Spot
    partition: Partition
    leader_epoch: int
    end_offset: int  # that the high watermark has to reach


def handle_write_txn_markers(broker: Broker, request: Request) -> Result:
    """*Behaviour*: an error for each partition of each end. What is not committed within a second is told as
    late; the coordinator sends it again.

    *Versions*: 2 says by which protocol a transaction was ended (KIP-1228).
    """
    ends = decode_markers(request.data, request.position, request.version)
    if sum(len(parts) for end in ends for _, parts in end.topics) > MARKERS_PER_FRAME_MAX:
        raise MalformedRequest(f"more than {MARKERS_PER_FRAME_MAX} markers in one request")
    codes: Codes = [{} for _ in ends]
    uncommitted: list[Uncommitted] = []
    for spot, asked in _by_partition(ends).items():
        partition, marked = broker.transacting.marker_writes.write(*spot, [end for _, end in asked])
        for (place, _), (code, end_offset) in zip(asked, marked, strict=True):
            codes[place][spot] = int(code)
            if not code and partition is not None and partition.high_watermark < end_offset:
                epoch = partition.leader_epoch
                uncommitted.append(Uncommitted(place, spot, partition, epoch, end_offset))
    parked = ParkedMarkers(broker, request, ends, codes, uncommitted)
    return parked if uncommitted else parked.encode()


def _by_partition(ends: list[WrittenEnd]) -> dict[Spot, list[tuple[int, End]]]:
    """What each partition is asked for, with the places in the request."""
    asked: dict[Spot, list[tuple[int, End]]] = {}
    for place, each in enumerate(ends):
        marker = Marker.COMMIT if each.is_commit else Marker.ABORT
        for name, parts in each.topics:
            for index, leader_epoch in parts:
                end = End(
                    each.producer_id,
                    each.producer_epoch,
                    marker,
                    each.coordinator_epoch,
                    each.version,
                    each.number,
                    leader_epoch,
                )
                asked.setdefault((name, index), []).append((place, end))
    return asked


class ParkedMarkers(Parked):
    """Markers that wait for followers, or for an fsync."""

    __slots__ = ("_codes", "_correlation_id", "_ends", "_uncommitted")

    def __init__(
        self,
        broker: Broker,
        request: Request,
        ends: list[WrittenEnd],
        codes: Codes,
        uncommitted: list[Uncommitted],
    ) -> None:
        deadline_ms = broker.clock.uptime_ms + MARKER_WAIT_MS
        super().__init__(deadline_ms, [each.partition for each in uncommitted])
        self._correlation_id = request.correlation_id
        self._ends = ends
        self._codes = codes
        self._uncommitted = uncommitted

    def try_finish(self) -> Answer | None:
        waiting = []
        for each in self._uncommitted:
            partition = each.partition
            if partition.error_code or partition.leader_epoch != each.leader_epoch:
                self._codes[each.place][each.spot] = int(ErrorCode.not_leader_or_follower)
            elif partition.high_watermark < each.end_offset:
                waiting.append(each)
        self._uncommitted = waiting
        return None if waiting else self.encode()

    def finish_late(self) -> Answer | None:
        for each in self._uncommitted:
            self._codes[each.place][each.spot] = int(ErrorCode.request_timed_out)
        return self.encode()

    def encode(self) -> bytes:
        answers: list[tuple[int, Rows]] = [
            (
                end.producer_id,
                [(name, [(index, codes[name, index]) for index, _ in parts]) for name, parts in end.topics],
            )
            for end, codes in zip(self._ends, self._codes, strict=True)
        ]
        return encode_marked(self._correlation_id, answers)
