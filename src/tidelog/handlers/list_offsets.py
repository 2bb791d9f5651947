"""ListOffsets: from a point in time to an offset."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from tidelog.base.limits import LISTING_WAIT_MS_MAX, SEARCHED_AT_ONCE
from tidelog.broker.broker import Broker
from tidelog.handlers.gathering import Gathering, deadline_of
from tidelog.handlers.names import missing_error
from tidelog.handlers.offset_for_leader_epoch import check_epoch
from tidelog.handlers.request import Request, Result
from tidelog.log.epochs import UNDEFINED_EPOCH
from tidelog.log.time_search import TimeSearch
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import READ_COMMITTED, Partition

READ_UNCOMMITTED = 0
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
# The version from which on each special timestamp may be asked for.
_FIRST_VERSIONS = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_OLDEST = (EARLIEST, EARLIEST_LOCAL)
_NEVER = 2**15
_NOWHERE = (-1, -1, UNDEFINED_EPOCH)
LISTING_WAIT_MAX = timedelta(milliseconds=LISTING_WAIT_MS_MAX)  # as messages have it
Found = tuple[int, int, int]  # timestamp, offset, leader epoch
Listed = tuple[int, Found]  # with the error code before it


def handle_list_offsets(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the first offset whose timestamp is not below the one asked for, or a special one. A long
    search by time goes on while others are served; at the deadline its partition gets REQUEST_TIMED_OUT.

    *Versions*: 2 adds isolation; 4 leader epochs; 7 the largest timestamp; 8 the earliest local offset;
    9 and 11 ask about tiered storage, which there is none of; 10 says how long to wait.
    """
    asked = request.decode()
    isolation = getattr(asked, "isolation_level", 0)
    counts = Counter((topic.name, ask.partition_index) for topic in asked.topics for ask in topic.partitions)
    # A topic or a partition that is named twice is answered once.
    asks = {(topic.name, ask.partition_index): ask for topic in asked.topics for ask in topic.partitions}
    wait = min(getattr(asked, "timeout", LISTING_WAIT_MAX), LISTING_WAIT_MAX)
    gathering: Gathering[Listed] = Gathering(
        broker,
        deadline_of(broker, wait),
        len(asks),
        (int(ErrorCode.request_timed_out), _NOWHERE),
        lambda listed: _answer(request, list(asks), listed),
    )
    searched = 0
    for place, ((name, index), ask) in enumerate(asks.items()):
        if counts[name, index] > 1 or isolation not in (READ_UNCOMMITTED, READ_COMMITTED):
            gathering.put(place, (int(ErrorCode.invalid_request), _NOWHERE))
            continue
        found = _find(broker, request, name, ask, isolation, asked.replica_id)
        if isinstance(found, _Wanted):
            found.begin(broker, gathering, place, searched < SEARCHED_AT_ONCE)
            searched += found.search.piece_count
        else:
            gathering.put(place, found)
    return gathering.result()


def _answer(request: Request, keys: list[tuple[str, int]], listed: list[Listed]) -> Answer:
    topics: dict[str, list[Any]] = {}
    for (name, index), (error, (timestamp, offset, epoch)) in zip(keys, listed, strict=True):
        row = request.make(
            "ListOffsetsPartitionResponse",
            partition_index=index,
            error_code=ErrorCode(error),
            timestamp=timestamp,
            offset=offset,
            leader_epoch=epoch,
        )
        topics.setdefault(name, []).append(row)
    rows = tuple(
        request.make("ListOffsetsTopicResponse", name=name, partitions=tuple(partitions))
        for name, partitions in topics.items()
    )
    return request.respond(topics=rows)


class _Wanted:
    """A record that is searched by its time."""

    __slots__ = ("_bound", "_epoch", "_is_newest", "_partition", "search")

    def __init__(self, partition: Partition, epoch: int, timestamp: int, bound: int) -> None:
        self._partition = partition
        self._epoch = epoch
        self._bound = bound
        self._is_newest = timestamp == MAX_TIMESTAMP
        log = partition.log
        self.search = (
            TimeSearch(log, None, log.end_offset) if self._is_newest else TimeSearch(log, timestamp, bound)
        )

    def begin(self, broker: Broker, gathering: Gathering[Listed], place: int, is_at_once: bool) -> None:
        def on_found(error: int) -> None:
            gathering.put(place, self._listed(error))

        broker.lookups.search(self._partition, self.search, gathering, on_found, is_at_once)

    def _listed(self, error: int) -> Listed:
        """Unless somebody else leads by now."""
        partition, found = self._partition, self.search.found
        error = error or partition.error_code or check_epoch(partition, self._epoch)
        if error or found is None or found.offset >= self._bound:
            return error, _NOWHERE
        return 0, (*found, partition.log.epochs.at(found.offset))


def _find(
    broker: Broker, request: Request, topic: str, ask: Any, isolation: int, replica_id: int
) -> Listed | _Wanted:
    index, timestamp = ask.partition_index, ask.timestamp
    if timestamp < 0 and request.version < _FIRST_VERSIONS.get(timestamp, _NEVER):
        return int(ErrorCode.unsupported_version), _NOWHERE
    partition = broker.partitions.find(topic, index)
    if partition is None:
        return int(missing_error(broker.image, topic, index)), _NOWHERE
    epoch = getattr(ask, "current_leader_epoch", -1)
    error = partition.error_code or check_epoch(partition, epoch)
    if not error and replica_id < 0 and not partition.is_settled and timestamp not in _OLDEST:
        error = ErrorCode.offset_not_available  # somebody may have been told a later offset (KIP-207)
    if error:
        return error, _NOWHERE
    log = partition.log
    bound = partition.last_stable_offset if isolation == READ_COMMITTED else partition.high_watermark
    if timestamp == LATEST:
        return 0, (-1, bound if replica_id < 0 else log.end_offset, partition.leader_epoch)
    if timestamp in _OLDEST:
        return 0, (-1, log.start_offset, log.epochs.at(log.start_offset))
    if timestamp < 0 and timestamp != MAX_TIMESTAMP:
        return 0, _NOWHERE  # of tiered storage
    return _Wanted(partition, epoch, timestamp, bound)
