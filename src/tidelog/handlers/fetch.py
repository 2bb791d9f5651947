"""Fetch.

*Behaviour*: reads the partitions asked for, or remembered by the fetch session, in turn, until the bytes
asked for are found. Too little, and no error: the request is parked and the same read runs again when one
of the partitions moves, until `max_wait_ms`. Records are ranges of files; nothing here touches them.
A consumer reads what is committed, also from a follower, to which the leader may send it if that is in its
rack (R12). What followers send is `replica_fetch`'s.

*Versions*: 4 adds isolation; 5 the log start offset; 7 sessions; 9 leader epochs; 11 racks; 12 is
flexible and tells divergence; 13 names topics by id; 15 moves the replica id; 16 hints at the leader
(KIP-951); 17 and 18 are for followers.
"""

from __future__ import annotations

from tidelog.base.files import FileSlice
from tidelog.base.limits import COPIED_SIZE_MAX, FETCH_WAIT_MS_MAX, LOOKUP_WAIT_MS
from tidelog.base.replication_rows import RACK_SELECTOR
from tidelog.broker.broker import Broker
from tidelog.broker.sessions import FetchSession, SessionPartition, TopicKey
from tidelog.broker.waiting import Parked
from tidelog.handlers.hints import endpoints_for, hint_leader
from tidelog.handlers.names import facts_of, missing_error
from tidelog.handlers.replica_fetch import handle_replica_fetch
from tidelog.handlers.request import Request, Result
from tidelog.log.epochs import UNDEFINED_EPOCH
from tidelog.log.segment import Unready
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import CorruptBatch, ErrorCode
from tidelog.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, decode_fetch, encode_fetch
from tidelog.replication.partition import READ_COMMITTED, Partition, PartitionRead

TOPIC_IDS_VERSION = 13
RACKS_VERSION = 11
HINTS_VERSION = 16
Wanted = list[tuple[TopicKey, FetchPartition, Partition | None]]

_STORAGE = int(ErrorCode.kafka_storage_error)
_OUT_OF_RANGE = int(ErrorCode.offset_out_of_range)
_INVALID = int(ErrorCode.invalid_request)
_NOT_A_BROKER = int(ErrorCode.cluster_authorization_failed)
_NOT_LEADER = int(ErrorCode.not_leader_or_follower)
READ_UNCOMMITTED = 0


def handle_fetch(broker: Broker, request: Request) -> Result:
    fetch = decode_fetch(request.data, request.position, request.version)
    uses_topic_ids = request.version >= TOPIC_IDS_VERSION
    if fetch.replica_id >= 0:
        if request.connection.listener != broker.replicas.listener:
            return _refuse(request, fetch, _NOT_A_BROKER)
        return handle_replica_fetch(broker, request, fetch, uses_topic_ids)
    error, session = broker.sessions.find(fetch, uses_topic_ids, broker.uptime_ms)
    if error:
        return encode_fetch(request.version, request.correlation_id, 0, error, 0, [])
    if fetch.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _refuse(request, fetch, _INVALID)
    if session is not None:
        session.update(fetch)
    reading = Reading(broker, request, fetch, session)
    reading.read()
    wait_ms = max(min(fetch.max_wait_ms, FETCH_WAIT_MS_MAX), reading.lookup_ms)
    if reading.is_enough(fetch.min_bytes) or wait_ms <= 0:
        return reading.encode()
    return ParkedFetch(broker.uptime_ms + wait_ms, reading, fetch.min_bytes)


def _refuse(request: Request, fetch: FetchRequest, error: int) -> Answer:
    """An error for the whole, and for each partition while topics have names, as Kafka puts it."""
    topics: list[tuple[TopicKey, list[FetchedPartition]]] = []
    if request.version < TOPIC_IDS_VERSION:
        topics = [
            (topic, [FetchedPartition(asked.index, error, aborted=[]) for asked in asks])
            for topic, asks in fetch.topics
        ]
    return encode_fetch(request.version, request.correlation_id, 0, error, 0, topics)


class Reading:
    """One fetch: what is wanted, and what the last read of it found."""

    __slots__ = (
        "_broker",
        "_correlation_id",
        "_fetch",
        "_found",
        "_has_error",
        "_is_awaiting",
        "_is_cut",
        "_is_full",
        "_listener",
        "_session",
        "_size",
        "_version",
        "_wanted",
    )

    def __init__(
        self, broker: Broker, request: Request, fetch: FetchRequest, session: FetchSession | None
    ) -> None:
        self._broker = broker
        self._version = request.version
        self._correlation_id = request.correlation_id
        self._listener = request.connection.listener
        self._fetch = fetch
        self._session = session
        # A session's first answer and one without a session tell of every partition.
        self._is_full = fetch.session_epoch <= 0
        self._wanted = self._find_wanted()
        self._found: list[tuple[TopicKey, FetchedPartition]] = []
        self._size = 0
        self._has_error = False
        self._is_awaiting = False
        self._is_cut = False

    def _find_wanted(self) -> Wanted:
        of = self._broker.partitions.of
        wanted: Wanted = []
        if self._session is not None:
            pairs = [(topic, known.request) for (topic, _), known in self._session.partitions.items()]
        else:
            # A partition that is named twice is read once, as asked last.
            named = {(topic, asked.index): asked for topic, asks in self._fetch.topics for asked in asks}
            pairs = [(topic, asked) for (topic, _), asked in named.items()]
        for topic, asked in pairs:
            partitions = of(topic)
            known = partitions[asked.index] if partitions and 0 <= asked.index < len(partitions) else None
            wanted.append((topic, asked, known))
        return wanted

    @property
    def partitions(self) -> list[Partition]:
        return [partition for _, _, partition in self._wanted if partition is not None]

    def read(self) -> None:
        """Read everything that is wanted, from the start; what an earlier read found is let go."""
        self.release()
        try:
            self._read_all()
        except BaseException:
            self.release()
            raise

    def _read_all(self) -> None:
        left = min(self._fetch.max_bytes, self._broker.settings.number("fetch.max.bytes"))
        for topic, asked, partition in self._wanted:
            fetched = self._read_one(topic, asked, partition, left)
            size = _size_of(fetched)
            if size and partition is not None:
                left -= size
                self._size += size
                partition.sent_size += size
            if fetched.error_code:
                self._has_error = True
            self._found.append((topic, fetched))

    def _read_one(
        self, topic: TopicKey, asked: FetchPartition, partition: Partition | None, left: int
    ) -> FetchedPartition:
        if partition is None:
            image = self._broker.image
            fetched = FetchedPartition(asked.index, missing_error(image, topic, asked.index), aborted=[])
            hint_leader(fetched, facts_of(image, topic, asked.index), self._version >= HINTS_VERSION)
            return fetched
        try:
            if self._fetch.rack_id and (nearer := self._nearer(asked, partition)) is not None:
                return nearer
            return self._fetch_one(asked, partition, max(min(asked.max_bytes, left), 0))
        except OSError as failure:
            partition.failed_read_count += 1
            self._broker.fail_directory(partition.directory, failure)
            return FetchedPartition(asked.index, _STORAGE)
        except CorruptBatch as problem:
            partition.failed_read_count += 1
            return FetchedPartition(asked.index, self._broker.damaged.note(partition, problem))
        except Unready as lookup:
            return self._await(asked, partition, lookup)

    def _fetch_one(self, asked: FetchPartition, partition: Partition, size: int) -> FetchedPartition:
        isolation, epoch = self._fetch.isolation_level, asked.current_leader_epoch
        is_first, may_follow = self._size == 0, self._version >= RACKS_VERSION
        read = partition.read(asked.fetch_offset, size, isolation, epoch, is_first, may_follow)
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
            records = self._copy(partition, asked, read.records)
        self._is_cut = self._is_cut or is_cut
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

    def _await(self, asked: FetchPartition, partition: Partition, lookup: Unready) -> FetchedPartition:
        """It takes longer to find than a request may: nothing for now. Who waits is woken when it is done."""
        self._broker.lookups.wait_for(partition, lookup)
        self._is_awaiting = True
        high_watermark, stable = partition.high_watermark, partition.last_stable_offset
        aborted: list[tuple[int, int]] | None = [] if self._fetch.isolation_level == READ_COMMITTED else None
        start_offset = partition.log.start_offset
        return FetchedPartition(asked.index, 0, high_watermark, stable, start_offset, aborted)

    def _may_be_replaced(self, asked: FetchPartition, partition: Partition) -> bool:
        """Somebody asks for what is beyond the end, and not all who are in sync follow this broker. They may
        follow another one by now, where the reader has read on: to be told OFFSET_OUT_OF_RANGE it would begin
        anew, or skip."""
        leadership, broker = partition.leadership, self._broker
        return (
            leadership is not None
            and asked.fetch_offset > partition.log.end_offset
            and not all(
                broker.sessions.hears(node_id, partition, broker.uptime_ms)
                for node_id in leadership.in_sync_followers
            )
        )

    def _nearer(self, asked: FetchPartition, partition: Partition) -> FetchedPartition | None:
        """The answer to a consumer that a follower in its rack can serve: who that is (R12)."""
        leadership = partition.leadership
        selector = self._broker.settings.text("replica.selector.class")
        if leadership is None or not selector.endswith(RACK_SELECTOR):
            return None
        if partition.check_epoch(asked.current_leader_epoch):
            return None
        preferred = leadership.preferred_for(self._fetch.rack_id, asked.fetch_offset, self._listener)
        if preferred is None:
            return None
        self._is_cut = True  # so that it is told at once
        return FetchedPartition(
            asked.index,
            0,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log.start_offset,
            [],
            preferred,
        )

    def _copy(self, partition: Partition, asked: FetchPartition, records: FileSlice) -> bytes | None:
        """Too many files are pinned by answers that nobody takes: give the bytes, and let the file go. If
        they are many, fewer of them; a batch that is larger goes alone."""
        fewer: FileSlice | None = records
        if records.size > COPIED_SIZE_MAX:
            records.release()
            isolation, epoch = self._fetch.isolation_level, asked.current_leader_epoch
            is_first, may_follow = self._size == 0, self._version >= RACKS_VERSION
            read = partition.read(asked.fetch_offset, COPIED_SIZE_MAX, isolation, epoch, is_first, may_follow)
            fewer = read.records
        if fewer is None:
            return None
        try:
            return fewer.read()
        finally:
            fewer.release()

    @property
    def lookup_ms(self) -> int:
        """How long to wait at least for what is being looked up."""
        return LOOKUP_WAIT_MS if self._is_awaiting else 0

    def is_enough(self, min_bytes: int) -> bool:
        """Whether to answer now: enough bytes, an error to tell, or nothing that waiting would bring."""
        return self._size >= min_bytes or self._has_error or self._is_cut or not self._wanted

    def encode(self) -> Answer:
        session = self._session
        found = self._found
        if session is not None:
            found = [
                (topic, fetched)
                for topic, fetched in found
                if self._note(session, topic, fetched) or self._is_full
            ]
        topics: list[tuple[TopicKey, list[FetchedPartition]]] = []
        for topic, fetched in found:
            if topics and topics[-1][0] == topic:
                topics[-1][1].append(fetched)
            else:
                topics.append((topic, [fetched]))
        endpoints = endpoints_for(self._broker, self._listener, topics) if self._has_error else ()
        session_id = session.session_id if session is not None else 0
        return encode_fetch(self._version, self._correlation_id, 0, 0, session_id, topics, endpoints)

    def _note(self, session: FetchSession, topic: TopicKey, fetched: FetchedPartition) -> bool:
        known: SessionPartition | None = session.partitions.get((topic, fetched.index))
        if known is None:
            return False
        if fetched.records is not None:
            session.move_back((topic, fetched.index))
        return known.is_news(fetched)

    def release(self) -> None:
        """Let go of the files that a read has pinned and that nobody will send."""
        for place, (_, fetched) in enumerate(self._found):
            partition = self._wanted[place][2]
            if partition is not None:
                partition.sent_size -= _size_of(fetched)
            if isinstance(fetched.records, FileSlice):
                fetched.records.release()
        self._found = []
        self._size = 0
        self._has_error = False
        self._is_awaiting = False
        self._is_cut = False


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


def _size_of(fetched: FetchedPartition) -> int:
    records = fetched.records
    if isinstance(records, FileSlice):
        return records.size
    return len(records) if isinstance(records, bytes) else 0


class ParkedFetch(Parked):
    """A fetch that waits for bytes."""

    __slots__ = ("_min_bytes", "_reading")

    def __init__(self, deadline_ms: int, reading: Reading, min_bytes: int) -> None:
        super().__init__(deadline_ms, reading.partitions)
        self._reading = reading
        self._min_bytes = min_bytes
        reading.release()

    def try_finish(self) -> Answer | None:
        reading = self._reading
        reading.read()
        if reading.is_enough(self._min_bytes):
            return reading.encode()
        reading.release()
        return None

    def finish_late(self) -> Answer | None:
        self._reading.read()
        return self._reading.encode()
