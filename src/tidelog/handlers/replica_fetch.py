"""Fetch, as a follower sends it (R2).

*Behaviour*: a follower has all before the offsets that it asks for: the high watermark may move, and it may
join the ISR. It gets what there is to the end of the log, or where its log and this one part (R8). Looked at
is only what has moved since it was last told, and what the request names (`broker.sessions`). A high
watermark that it was not told is no answer in itself, unless consumers read from followers: it comes with the
next records, or when the wait is over.
Where the log begins now is told at once: somebody may wait for it. While the throttle holds a follower back,
it is told everything but records.

A fetch without a session is answered at once, whatever it would wait for.
"""

from __future__ import annotations

from tidelog.base.files import FileSlice
from tidelog.base.limits import FETCH_WAIT_MS_MAX, REPLICA_COPIED_SIZE_MAX
from tidelog.base.replication_rows import RACK_SELECTOR
from tidelog.broker.broker import Broker
from tidelog.broker.sessions import FollowerSession, SessionPartition, TopicKey
from tidelog.broker.waiting import Parked
from tidelog.handlers.names import missing_error
from tidelog.handlers.request import Request, Result
from tidelog.log.segment import Unready
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import CorruptBatch, ErrorCode
from tidelog.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, encode_fetch
from tidelog.replication.partition import Partition
from tidelog.replication.throttle import LEADER_RATE, LEADER_REPLICAS, NO_LIMIT, is_throttled

_NOT_LEADER = int(ErrorCode.not_leader_or_follower)
_STORAGE = int(ErrorCode.kafka_storage_error)


def handle_replica_fetch(
    broker: Broker, request: Request, fetch: FetchRequest, uses_topic_ids: bool
) -> Result:
    error, session = broker.sessions.find_follower(fetch, uses_topic_ids, broker.uptime_ms)
    if error:
        return encode_fetch(request.version, request.correlation_id, 0, error, 0, [])
    kept = session
    if session is None:
        session = FollowerSession(0, uses_topic_ids, broker.uptime_ms, fetch.replica_id, broker.waiting)
    session.update(fetch)
    session.serves_readers = broker.settings.text("replica.selector.class").endswith(RACK_SELECTOR)
    reading = ReplicaReading(broker, request, fetch, session)
    reading.note_offsets()
    wait_ms = min(fetch.max_wait_ms, FETCH_WAIT_MS_MAX)
    must_answer = kept is None or wait_ms <= 0
    if must_answer or reading.may_find():
        reading.read()
    if must_answer or reading.is_enough():
        answer = reading.encode()
        if kept is None:
            session.close()
        return answer
    parked = ParkedReplicaFetch(broker.uptime_ms + wait_ms, reading)
    session.parked = parked
    return parked


class ReplicaReading:
    """One fetch of a follower, and what the last read for it found."""

    __slots__ = (
        "_broker",
        "_correlation_id",
        "_fetch",
        "_found",
        "_is_full",
        "_is_news",
        "_rate",
        "_session",
        "_size",
        "_version",
    )

    def __init__(
        self, broker: Broker, request: Request, fetch: FetchRequest, session: FollowerSession
    ) -> None:
        self._broker = broker
        self._version = request.version
        self._correlation_id = request.correlation_id
        self._fetch = fetch
        self._session = session
        self._is_full = fetch.session_epoch <= 0  # then every partition is told of
        self._found: list[tuple[tuple[TopicKey, int], Partition | None, FetchedPartition]] = []
        self._size = 0
        self._is_news = False  # something that is told at once
        rate = broker.settings.number(LEADER_RATE)
        self._rate = rate if rate < NO_LIMIT else None  # of what throttled replicas get

    def _partition(self, key: tuple[TopicKey, int]) -> Partition | None:
        topic, index = key
        partitions = self._broker.partitions.of(topic)
        return partitions[index] if partitions and 0 <= index < len(partitions) else None

    def note_offsets(self) -> None:
        replicas, fetch, session = self._broker.replicas, self._fetch, self._session
        for key in session.moved:
            partition = self._partition(key)
            if partition is not None:
                session.watch(key, partition)
                asked = session.partitions[key].request
                if not partition.check_epoch(asked.current_leader_epoch):
                    replicas.on_fetch(partition, fetch.replica_id, fetch.replica_epoch, asked)
        replicas.admit()

    def may_find(self) -> bool:
        """Whether to read at all: mostly what has moved is a high watermark, which followers hear of with the
        next records."""
        session = self._session
        if self._is_full or session.serves_readers or not session.partitions:
            return True
        for key in session.moved:
            partition = self._partition(key)
            if partition is None or session.partitions[key].is_behind(partition, session.replica_id):
                return True
        return False

    def read(self) -> None:
        """Read all that has moved, from the start; what an earlier read found is let go."""
        self.release()
        try:
            self._read_moved()
        except BaseException:
            self.release()
            raise

    def _read_moved(self) -> None:
        left = min(self._fetch.max_bytes, self._broker.settings.number("fetch.max.bytes"))
        for key in self._session.moved:
            partition = self._partition(key)
            known = self._session.partitions[key]
            is_held = self._rate is not None and self._is_held(partition, self._rate)
            fetched = self._read_one(key, partition, known.request, 0 if is_held else left, not is_held)
            if isinstance(fetched.records, FileSlice):
                left -= fetched.records.size
                self._size += fetched.records.size
            has_new_start = fetched.log_start_offset > known.log_start_offset
            if fetched.error_code or fetched.diverging_epoch is not None or has_new_start:
                self._is_news = True
            self._found.append((key, partition, fetched))

    def _is_throttled(self, partition: Partition | None) -> bool:
        if partition is None:
            return False
        return is_throttled(partition.log.settings, LEADER_REPLICAS, partition.index, self._broker.node_id)

    def _is_held(self, partition: Partition | None, rate: int) -> bool:
        """Whether the follower gets no records of this one for now."""
        leadership = partition.leadership if partition is not None else None
        if leadership is None or self._fetch.replica_id in leadership.facts.in_sync_replicas:
            return False
        broker = self._broker
        return self._is_throttled(partition) and broker.replicas.given.wait_ms(rate, broker.uptime_ms) > 0

    def _note_given(self, rate: int) -> None:
        broker = self._broker
        for _, partition, fetched in self._found:
            if isinstance(fetched.records, FileSlice) and self._is_throttled(partition):
                broker.replicas.given.record(fetched.records.size, rate, broker.uptime_ms)

    def _read_one(
        self,
        key: tuple[TopicKey, int],
        partition: Partition | None,
        asked: FetchPartition,
        left: int,
        may_have_one: bool,
    ) -> FetchedPartition:
        if partition is None:
            return FetchedPartition(asked.index, missing_error(self._broker.image, *key))
        leadership = partition.leadership
        if leadership is not None and self._fetch.replica_id not in leadership.followers:
            return FetchedPartition(asked.index, _NOT_LEADER)
        try:
            read = partition.read_replica(
                asked.fetch_offset,
                max(min(asked.max_bytes, left), 0),
                asked.current_leader_epoch,
                asked.last_fetched_epoch,
                self._size == 0 and may_have_one,
            )
        except OSError as failure:
            self._broker.fail_directory(partition.directory, failure)
            return FetchedPartition(asked.index, _STORAGE)
        except CorruptBatch as problem:
            return FetchedPartition(asked.index, self._broker.damaged.note(partition, problem))
        except Unready as lookup:
            self._broker.lookups.wait_for(partition, lookup)
            start_offset = partition.log.start_offset
            return FetchedPartition(asked.index, 0, partition.high_watermark, -1, start_offset)
        self._is_news = self._is_news or read.is_cut
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

    def is_enough(self) -> bool:
        """Whether to answer now: enough bytes, something that cannot wait, or nothing to wait for."""
        is_urgent = self._is_full or self._is_news or not self._session.partitions
        if is_urgent or self._size >= self._fetch.min_bytes:
            return True
        return self._session.serves_readers and self._has_untold_watermark()

    def _has_untold_watermark(self) -> bool:
        """Whether a high watermark has moved since the follower was told."""
        partitions = self._session.partitions
        return any(
            partition is not None and partitions[key].high_watermark < partition.high_watermark
            for key, partition, _ in self._found
        )

    def encode(self) -> Answer:
        try:
            return self._encode()
        except BaseException:
            self.release()
            raise

    def _encode(self) -> Answer:
        session = self._session
        if self._rate is not None:
            self._note_given(self._rate)
        topics: list[tuple[TopicKey, list[FetchedPartition]]] = []
        for key, partition, fetched in self._found:
            known = session.partitions[key]
            is_news = known.is_news(fetched)
            if isinstance(fetched.records, FileSlice) and fetched.records.size <= REPLICA_COPIED_SIZE_MAX:
                fetched.records = _copied(fetched.records)
            if is_news or self._is_full:
                if topics and topics[-1][0] == key[0]:
                    topics[-1][1].append(fetched)
                else:
                    topics.append((key[0], [fetched]))
            if partition is not None and self._is_settled(known, partition, fetched):
                del session.moved[key]
            elif fetched.records is not None:
                session.move_back(key)
        pieces = encode_fetch(self._version, self._correlation_id, 0, 0, session.session_id, topics)
        buffers = [piece for piece in pieces if not isinstance(piece, FileSlice)]
        return b"".join(buffers) if len(buffers) == len(pieces) else pieces

    def _is_settled(self, known: SessionPartition, partition: Partition, fetched: FetchedPartition) -> bool:
        """Whether the follower has all that there is, committed, and is in sync: until something moves, its
        fetches say nothing new of this partition."""
        leadership, end_offset = partition.leadership, partition.log.end_offset
        if leadership is None or fetched.error_code or fetched.diverging_epoch is not None:
            return False
        replica_id = self._fetch.replica_id
        has_all = known.request.fetch_offset == end_offset == fetched.high_watermark
        return has_all and leadership.awaited != replica_id and not leadership.is_outside(replica_id)

    def release(self) -> None:
        """Let go of the files that a read has pinned and that nobody will send."""
        for _, _, fetched in self._found:
            if isinstance(fetched.records, FileSlice):
                fetched.records.release()
        self._found = []
        self._size = 0
        self._is_news = False


def _copied(records: FileSlice) -> FileSlice | bytes:
    """A few bytes that were just written: they are sent with what is around them, in one call."""
    try:
        data = records.read()
    except OSError:
        data = b""
    if len(data) < records.size:
        return records  # whoever sends it finds out, and closes the connection
    records.release()
    return data


class ParkedReplicaFetch(Parked):
    """A follower's fetch that waits until something moves; its session says when."""

    __slots__ = ("_reading",)

    def __init__(self, deadline_ms: int, reading: ReplicaReading) -> None:
        super().__init__(deadline_ms, [])
        self._reading = reading
        reading.release()

    def try_finish(self) -> Answer | None:
        reading = self._reading
        reading.read()
        if reading.is_enough():
            return reading.encode()
        reading.release()
        return None

    def finish_late(self) -> Answer | None:
        self._reading.read()
        return self._reading.encode()
