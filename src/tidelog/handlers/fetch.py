"""Fetch.

*Behaviour*: reads the partitions asked for, or due in the fetch session, in turn, until the bytes asked for
are found (`reading`). Too little, and no error: the request is parked, and the same read runs again when one
of the partitions moves, until `max_wait_ms`. Records are ranges of files; nothing here touches them.
A consumer reads what is committed, also from a follower, to which the leader may send it if that is in its
rack (R12). What followers send is `replica_fetch`'s.

*Versions*: 4 adds isolation; 5 the log start offset; 7 sessions; 9 leader epochs; 11 racks; 12 is
flexible and tells divergence; 13 names topics by id; 15 moves the replica id; 16 hints at the leader
(KIP-951); 17 and 18 are for followers.
"""

from __future__ import annotations

from tidelog.base.files import FileSlice
from tidelog.base.limits import (
    COPIED_SIZE_MAX,
    FETCH_WAIT_MS_MAX,
    FETCHED_PARTITION_SIZE,
    LOOKUP_WAIT_MS,
)
from tidelog.base.replication_rows import RACK_SELECTOR
from tidelog.broker.broker import Broker
from tidelog.handlers.hints import endpoints_for, hint_leader
from tidelog.handlers.names import facts_of, missing_error
from tidelog.handlers.reading import Found, ParkedFetch, Reading, Topics
from tidelog.handlers.replica_fetch import handle_replica_fetch
from tidelog.handlers.request import Request, Result
from tidelog.log.epochs import UNDEFINED_EPOCH
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, decode_fetch, encode_fetch
from tidelog.replication.fetch_session import PartitionKey, SessionPartition
from tidelog.replication.partition import READ_COMMITTED, Partition, PartitionRead

TOPIC_IDS_VERSION = 13
RACKS_VERSION = 11
HINTS_VERSION = 16

_OUT_OF_RANGE = int(ErrorCode.offset_out_of_range)
_INVALID = int(ErrorCode.invalid_request)
_NOT_A_BROKER = int(ErrorCode.cluster_authorization_failed)
_NOT_LEADER = int(ErrorCode.not_leader_or_follower)
READ_UNCOMMITTED = 0


def handle_fetch(broker: Broker, request: Request) -> Result:
    fetch = decode_fetch(request.data, request.position, request.version)
    uses_topic_ids = request.version >= TOPIC_IDS_VERSION
    if fetch.replica_id >= 0:
        if request.client.listener != broker.replicas.listener:
            return _refuse(request, fetch, _NOT_A_BROKER)
        return handle_replica_fetch(broker, request, fetch, uses_topic_ids)
    uptime_ms = broker.clock.uptime_ms
    error, session = broker.sessions.find(fetch, uses_topic_ids, uptime_ms)
    if error:
        throttle_time_ms = request.client.throttle_time_ms
        return encode_fetch(request.version, request.correlation_id, throttle_time_ms, error, 0, [])
    if fetch.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _refuse(request, fetch, _INVALID)
    if session is None:
        session = broker.sessions.without_id(uses_topic_ids, uptime_ms)
    terms = ConsumerTerms(broker, request, fetch)
    session.update(fetch)
    if session.session_id:
        session.use_view((request.version, fetch.isolation_level, terms.rack))
    reading = Reading(broker, fetch, session, terms)
    if broker.quotas.is_on:
        terms.size_max = broker.quotas.begin_fetch(request.client)
        if request.client.throttle_time_ms:
            return reading.encode_nothing()
    reading.read()
    wait_ms = max(min(fetch.max_wait_ms, FETCH_WAIT_MS_MAX), terms.lookup_ms)
    if reading.is_enough() or wait_ms <= 0:
        return reading.encode()
    return ParkedFetch(uptime_ms + wait_ms, reading)


def _refuse(request: Request, fetch: FetchRequest, error: int) -> Answer:
    """An error for the whole, and for each partition while topics have names, as Kafka puts it."""
    topics: Topics = []
    if request.version < TOPIC_IDS_VERSION:
        topics = [
            (topic, [FetchedPartition(asked.index, error, aborted=[]) for asked in asks])
            for topic, asks in fetch.topics
        ]
    throttle_time_ms = request.client.throttle_time_ms
    return encode_fetch(request.version, request.correlation_id, throttle_time_ms, error, 0, topics)


class ConsumerTerms:
    """A consumer reads what is committed, and counts as traffic."""

    __slots__ = (
        "_broker",
        "_client",
        "_correlation_id",
        "_fetch",
        "_has_error",
        "_version",
        "is_urgent",
        "lookup_ms",
        "rack",
        "size_max",
    )

    def __init__(self, broker: Broker, request: Request, fetch: FetchRequest) -> None:
        self._broker = broker
        self._client = request.client
        self._version = request.version
        self._correlation_id = request.correlation_id
        self._fetch = fetch
        self._has_error = False
        self.rack = fetch.rack_id  # empty if it makes no difference
        if fetch.rack_id and not broker.settings.text("replica.selector.class").endswith(RACK_SELECTOR):
            self.rack = ""
        self.is_urgent = False
        self.size_max: int | None = None  # by the client's quota, whatever it asks for
        self.lookup_ms = 0  # how long to wait at least for what is being looked up

    def missing(self, key: PartitionKey) -> FetchedPartition:
        image, (topic, index) = self._broker.image, key
        fetched = FetchedPartition(index, missing_error(image, topic, index), aborted=[])
        hint_leader(fetched, facts_of(image, topic, index), self._version >= HINTS_VERSION)
        return fetched

    def read(
        self, partition: Partition, known: SessionPartition, left: int, is_first: bool
    ) -> FetchedPartition:
        asked = known.request
        if self.rack and (nearer := self._nearer(asked, partition)) is not None:
            return nearer
        size = left if left < asked.max_bytes else asked.max_bytes
        read = partition.read(
            asked.fetch_offset,
            size if size > 0 else 0,
            self._fetch.isolation_level,
            asked.current_leader_epoch,
            is_first,
            self._version >= RACKS_VERSION,
        )
        if read.error_code:
            if read.error_code == _OUT_OF_RANGE and self._may_be_replaced(asked, partition):
                return FetchedPartition(asked.index, _NOT_LEADER)
            fetched = FetchedPartition(asked.index, read.error_code)
            hint_leader(fetched, partition, self._version >= HINTS_VERSION)
            return fetched
        if asked.last_fetched_epoch >= 0 and (diverged := _divergence(partition, asked, read)) is not None:
            return diverged
        records: FileSlice | bytes | None = read.records
        is_cut = read.is_cut
        if read.records is not None and read.records.file.is_scarce:
            is_cut = is_cut or read.records.size > COPIED_SIZE_MAX
            records = self._copy(partition, asked, read.records, is_first)
        self.is_urgent = self.is_urgent or is_cut
        return FetchedPartition(
            asked.index,
            0,
            read.high_watermark,
            read.last_stable_offset,
            read.log_start_offset,
            read.aborted,
            -1,
            records,
        )

    def unready(self, partition: Partition, known: SessionPartition) -> FetchedPartition:
        """Nothing for now. The reader is woken when the look-up has ended."""
        self.lookup_ms = LOOKUP_WAIT_MS
        is_committed = self._fetch.isolation_level == READ_COMMITTED
        return self._empty(known.request, partition, [] if is_committed else None)

    def _empty(
        self,
        asked: FetchPartition,
        partition: Partition,
        aborted: list[tuple[int, int]] | None,
        preferred: int = -1,
    ) -> FetchedPartition:
        return FetchedPartition(
            asked.index,
            0,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log.start_offset,
            aborted,
            preferred,
        )

    def _may_be_replaced(self, asked: FetchPartition, partition: Partition) -> bool:
        """An offset is asked for that is beyond the end, and not all who are in sync follow this broker. They
        may follow another one by now, where the reader has read on: to be told OFFSET_OUT_OF_RANGE it would
        start over, or skip."""
        leadership, broker = partition.leadership, self._broker
        return (
            leadership is not None
            and asked.fetch_offset > partition.log.end_offset
            and not all(
                broker.sessions.hears(node_id, partition, broker.clock.uptime_ms)
                for node_id in leadership.in_sync_followers
            )
        )

    def _nearer(self, asked: FetchPartition, partition: Partition) -> FetchedPartition | None:
        """The answer to a consumer that a follower in its rack can serve: who that is (R12). It is told at
        once."""
        leadership = partition.leadership
        if leadership is None or partition.check_epoch(asked.current_leader_epoch):
            return None
        preferred = leadership.preferred_for(self.rack, asked.fetch_offset, self._client.listener)
        if preferred is None:
            return None
        self.is_urgent = True
        return self._empty(asked, partition, [], preferred)

    def _copy(
        self, partition: Partition, asked: FetchPartition, records: FileSlice, is_first: bool
    ) -> bytes | None:
        """Too many files are pinned by answers that are not taken: give the bytes, and release the file. If
        they are many, fewer of them; a batch that is larger goes alone."""
        fewer: FileSlice | None = records
        if records.size > COPIED_SIZE_MAX:
            records.release()
            isolation, epoch = self._fetch.isolation_level, asked.current_leader_epoch
            may_follow = self._version >= RACKS_VERSION
            read = partition.read(asked.fetch_offset, COPIED_SIZE_MAX, isolation, epoch, is_first, may_follow)
            fewer = read.records
        if fewer is None:
            return None
        try:
            return fewer.read()
        finally:
            fewer.release()

    def is_settled(self, known: SessionPartition, partition: Partition, fetched: FetchedPartition) -> bool:
        """Whether the consumer has all that it may read; where a follower in its rack is about to have that
        too, nobody hears when it does."""
        if fetched.error_code or fetched.diverging_epoch is not None:
            return False
        is_committed = self._fetch.isolation_level == READ_COMMITTED
        bound = fetched.last_stable_offset if is_committed else fetched.high_watermark
        if known.request.fetch_offset < bound or fetched.preferred_read_replica >= 0:
            return False
        leadership = partition.leadership
        return not self.rack or leadership is None or not leadership.has_follower_in(self.rack)

    def is_enough(self, found: list[Found]) -> bool:
        return False

    def admit_fetched(self, found: list[Found]) -> bool:
        size = sum(size for _, _, _, _, size in found) + FETCHED_PARTITION_SIZE * max(len(found), 1)
        return self._broker.quotas.admit_fetched(self._client, size)

    def note_answered(self, found: list[Found]) -> None:
        for _, _, partition, fetched, size in found:
            is_failed = fetched.error_code != 0
            if is_failed:
                self._has_error = True
            if partition is not None:
                partition.counters.note_read(size, is_failed)

    def encode(self, session_id: int, topics: Topics) -> Answer:
        client = self._client
        endpoints = endpoints_for(self._broker, client.listener, topics) if self._has_error else ()
        head = self._version, self._correlation_id, client.throttle_time_ms, 0, session_id
        return encode_fetch(*head, topics, endpoints)


def _divergence(partition: Partition, asked: FetchPartition, read: PartitionRead) -> FetchedPartition | None:
    """What a reader whose last batch is not the one that this log has is told instead of records."""
    parting = partition.parting(asked.fetch_offset, asked.last_fetched_epoch)
    if parting is None:
        return None
    if read.records is not None:
        read.records.release()
    if parting[0] == UNDEFINED_EPOCH:
        return FetchedPartition(asked.index, _OUT_OF_RANGE)
    return FetchedPartition(
        asked.index,
        0,
        read.high_watermark,
        read.last_stable_offset,
        read.log_start_offset,
        read.aborted,
        diverging_epoch=parting,
    )
