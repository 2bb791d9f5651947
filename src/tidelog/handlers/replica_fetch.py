"""Fetch, as a follower sends it (R2).

*Behaviour*: a follower has all before the offsets that it asks for: the high watermark may move, and it may
join the ISR (`replication.leading`). It gets what there is to the end of the log, or where its log and this
one part (R8). Only what is due in its session is read (`reading`). A high watermark that it was not told is
no answer in itself, unless consumers read from followers: it comes with the next records, or when the wait is
over.
Where the log begins now is told at once: somebody may wait for it. While the throttle holds a follower back,
it is told everything but records.

A fetch without a session is answered at once, whatever it would wait for.
"""

from __future__ import annotations

from tidelog.base.files import FileSlice
from tidelog.base.limits import FETCH_WAIT_MS_MAX, REPLICA_COPIED_SIZE_MAX
from tidelog.base.replication_rows import RACK_SELECTOR
from tidelog.broker.broker import Broker
from tidelog.broker.data_plane.sessions import FollowersSession
from tidelog.handlers.names import missing_error
from tidelog.handlers.reading import Found, ParkedFetch, Reading, Topics
from tidelog.handlers.request import Request, Result
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.fetch import FetchedPartition, FetchRequest, encode_fetch
from tidelog.replication.fetch_session import PartitionKey, SessionPartition
from tidelog.replication.partition import Partition
from tidelog.replication.throttle import LEADER_RATE, LEADER_REPLICAS, NO_LIMIT, is_throttled

_NOT_LEADER = int(ErrorCode.not_leader_or_follower)


def handle_replica_fetch(
    broker: Broker, request: Request, fetch: FetchRequest, uses_topic_ids: bool
) -> Result:
    uptime_ms, sessions = broker.clock.uptime_ms, broker.sessions
    error, session = sessions.find_follower(fetch, uses_topic_ids, uptime_ms)
    if error:
        return encode_fetch(request.version, request.correlation_id, 0, error, 0, [])
    if session is None:
        session = sessions.follower_without_id(fetch.replica_id, uses_topic_ids, uptime_ms)
    session.update(fetch)
    session.serves_readers = broker.settings.text("replica.selector.class").endswith(RACK_SELECTOR)
    note_offsets(broker, fetch, session)
    reading = Reading(broker, fetch, session, FollowerTerms(broker, request, fetch, session))
    wait_ms = min(fetch.max_wait_ms, FETCH_WAIT_MS_MAX)
    must_answer = not session.session_id or wait_ms <= 0 or fetch.session_epoch <= 0
    if must_answer or may_find(broker, session):
        reading.read()
        if must_answer or reading.is_enough():
            return reading.encode()
    return ParkedFetch(uptime_ms + wait_ms, reading)


def note_offsets(broker: Broker, fetch: FetchRequest, session: FollowersSession) -> None:
    """What a fetch shows of its follower: how much of the partitions that are due it has."""
    find, in_sync = broker.partitions.find, broker.replicas.in_sync
    for key in session.due:
        partition = find(*key)
        if partition is not None:
            asked = session.partitions[key].request
            if not partition.check_epoch(asked.current_leader_epoch):
                in_sync.on_fetch(partition, fetch.replica_id, fetch.replica_epoch, asked)
    in_sync.admit()


def may_find(broker: Broker, session: FollowersSession) -> bool:
    """Whether to read at all: mostly what has moved is a high watermark, which followers hear of with the
    next records."""
    if session.serves_readers or not session.partitions:
        return True
    find = broker.partitions.find
    for key in session.due:
        partition = find(*key)
        if partition is None or session.is_behind(session.partitions[key], partition):
            return True
    return False


class FollowerTerms:
    """A follower reads to the end of the log, no faster than the throttle allows."""

    __slots__ = (
        "_broker",
        "_correlation_id",
        "_fetch",
        "_rate",
        "_session",
        "_version",
        "is_urgent",
        "size_max",
    )

    def __init__(
        self, broker: Broker, request: Request, fetch: FetchRequest, session: FollowersSession
    ) -> None:
        self._broker = broker
        self._version = request.version
        self._correlation_id = request.correlation_id
        self._fetch = fetch
        self._session = session
        rate = broker.settings.number(LEADER_RATE)
        self.size_max: int | None = None
        self._rate = rate if rate < NO_LIMIT else None  # of what throttled replicas get
        self.is_urgent = False

    def missing(self, key: PartitionKey) -> FetchedPartition:
        return FetchedPartition(key[1], missing_error(self._broker.image, *key))

    def read(
        self, partition: Partition, known: SessionPartition, left: int, is_first: bool
    ) -> FetchedPartition:
        asked, leadership = known.request, partition.leadership
        if leadership is not None and self._fetch.replica_id not in leadership.followers:
            return FetchedPartition(asked.index, _NOT_LEADER)
        if self._rate is not None and self._is_held(partition, self._rate):
            left, is_first = 0, False
        size = max(min(asked.max_bytes, left), 0)
        read = partition.read_replica(
            asked.fetch_offset, size, asked.current_leader_epoch, asked.last_fetched_epoch, is_first
        )
        if read.is_cut or read.diverging_epoch is not None or read.log_start_offset > known.log_start_offset:
            self.is_urgent = True
        return FetchedPartition(
            asked.index,
            read.error_code,
            read.high_watermark,
            read.last_stable_offset,
            read.log_start_offset,
            None,
            -1,
            read.records,
            read.diverging_epoch,
        )

    def unready(self, partition: Partition, known: SessionPartition) -> FetchedPartition:
        start_offset = partition.log.start_offset
        if start_offset > known.log_start_offset:
            self.is_urgent = True
        return FetchedPartition(known.request.index, 0, partition.high_watermark, -1, start_offset)

    def _is_throttled(self, partition: Partition) -> bool:
        return is_throttled(partition.log.settings, LEADER_REPLICAS, partition.index, self._broker.node_id)

    def _is_held(self, partition: Partition, rate: int) -> bool:
        """Whether the follower gets no records of this one for now."""
        leadership, broker = partition.leadership, self._broker
        if leadership is None or self._fetch.replica_id in leadership.facts.in_sync_replicas:
            return False
        return (
            self._is_throttled(partition) and broker.replicas.given.wait_ms(rate, broker.clock.uptime_ms) > 0
        )

    def is_settled(self, known: SessionPartition, partition: Partition, fetched: FetchedPartition) -> bool:
        """Whether the follower has all that there is, committed, and is in sync: until something moves, its
        fetches say nothing new of this partition."""
        leadership, end_offset = partition.leadership, partition.log.end_offset
        if leadership is None or fetched.error_code or fetched.diverging_epoch is not None:
            return False
        replica_id = self._fetch.replica_id
        has_all = known.request.fetch_offset == end_offset == fetched.high_watermark
        return has_all and leadership.awaited != replica_id and not leadership.is_outside(replica_id)

    def is_enough(self, found: list[Found]) -> bool:
        """Whether a high watermark has moved that consumers of the follower wait for."""
        if not self._session.serves_readers:
            return False
        return any(
            partition is not None and known.high_watermark < partition.high_watermark
            for _, known, partition, _, _ in found
        )

    def admit_fetched(self, found: list[Found]) -> bool:
        """Brokers have no quotas."""
        return True

    def note_answered(self, found: list[Found]) -> None:
        """What throttled replicas get counts. A few bytes that were just written are copied: they are sent
        with what is around them, in one call."""
        given, uptime_ms = self._broker.replicas.given, self._broker.clock.uptime_ms
        for _, _, partition, fetched, _ in found:
            records = fetched.records
            if isinstance(records, FileSlice):
                if self._rate is not None and partition is not None and self._is_throttled(partition):
                    given.record(records.size, self._rate, uptime_ms)
                if records.size <= REPLICA_COPIED_SIZE_MAX:
                    fetched.records = _copied(records)

    def encode(self, session_id: int, topics: Topics) -> Answer:
        pieces = encode_fetch(self._version, self._correlation_id, 0, 0, session_id, topics)
        buffers = [piece for piece in pieces if not isinstance(piece, FileSlice)]
        return b"".join(buffers) if len(buffers) == len(pieces) else pieces


def _copied(records: FileSlice) -> FileSlice | bytes:
    try:
        data = records.read()
    except OSError:
        data = b""
    if len(data) < records.size:
        return records  # the transport finds out when it sends, and closes the connection
    records.release()
    return data
