"""Incremental fetch sessions (KIP-227): the partitions a client fetches, remembered between its requests.

| session id | epoch | then                                                         |
|------------|-------|--------------------------------------------------------------|
| any        | -1    | a full fetch without a session; a session of that id ends    |
| any        | 0     | a full fetch that opens a session; one of that id ends       |
| known      | next  | an incremental fetch: only what changed is sent, both ways   |
| known      | other | INVALID_FETCH_SESSION_EPOCH                                  |
| unknown    | > 0   | FETCH_SESSION_ID_NOT_FOUND                                   |

The session of a follower has thousands of partitions of which few change: the waiting room tells it which
moved, and a fetch looks at those and at what it names.

**Invariant:** a session's epoch moves by one for each request that it takes part in. A follower has one
session at most; what is not among its `moved` has nothing to tell, and nothing to learn from another fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.base.limits import FETCH_SESSION_PARTITIONS_MAX
from tidelog.broker.waiting import Parked, WaitingRoom
from tidelog.protocol.errors import ErrorCode, MalformedRequest
from tidelog.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest
from tidelog.replication.partition import Partition

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
EVICTION_MS = 120_000
FOLLOWERS_MAX = 1_000
SILENT_MS_MAX = 1_000  # of a follower that is there, or twice as long as it asks to wait

TopicKey = str | bytes


class SessionPartition:
    """A partition of a session: what to fetch, and what the client was told last."""

    __slots__ = ("high_watermark", "log_start_offset", "request")

    def __init__(self, request: FetchPartition) -> None:
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1

    def is_behind(self, partition: Partition, replica_id: int) -> bool:
        """Whether a follower would learn more than a high watermark by an answer."""
        asked, log, leadership = self.request, partition.log, partition.leadership
        return (
            leadership is None
            or replica_id not in leadership.followers
            or asked.fetch_offset != log.end_offset
            or asked.current_leader_epoch != partition.leader_epoch
            or self.log_start_offset < log.start_offset
            or partition.error_code != 0
            or partition.parting(asked.fetch_offset, asked.last_fetched_epoch) is not None
        )

    def is_news(self, fetched: FetchedPartition) -> bool:
        """Whether the client needs to hear of it; if so, it is noted as told."""
        is_news = (
            fetched.records is not None
            or fetched.error_code != 0
            or fetched.diverging_epoch is not None
            or fetched.preferred_read_replica != -1
            or fetched.high_watermark != self.high_watermark
            or fetched.log_start_offset != self.log_start_offset
        )
        if fetched.error_code:
            self.high_watermark = -1
        else:
            self.high_watermark = fetched.high_watermark
            self.log_start_offset = fetched.log_start_offset
        return is_news


class FetchSession:
    __slots__ = ("epoch", "partitions", "session_id", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.used_ms = now_ms
        self.partitions: dict[tuple[TopicKey, int], SessionPartition] = {}

    def update(self, request: FetchRequest) -> None:
        named = [(topic, partition.index) for topic, partitions in request.topics for partition in partitions]
        if len(self.partitions) + len(named) > FETCH_SESSION_PARTITIONS_MAX:
            added_count = sum(key not in self.partitions for key in named)
            if len(self.partitions) + added_count > FETCH_SESSION_PARTITIONS_MAX:
                reason = f"a fetch session of more than {FETCH_SESSION_PARTITIONS_MAX} partitions"
                raise MalformedRequest(reason)
        for topic, partitions in request.topics:
            for partition in partitions:
                known = self.partitions.get((topic, partition.index))
                if known is None:
                    self.partitions[topic, partition.index] = SessionPartition(partition)
                else:
                    known.request = partition
        for topic, indexes in request.forgotten:
            for index in indexes:
                self.forget((topic, index))

    def forget(self, key: tuple[TopicKey, int]) -> None:
        self.partitions.pop(key, None)

    def move_back(self, key: tuple[TopicKey, int]) -> None:
        """A partition that was just served goes last, so that the others get their turn."""
        self.partitions[key] = self.partitions.pop(key)


class FollowerSession(FetchSession):
    __slots__ = (
        "_replica_epoch",
        "_silent_ms_max",
        "_steady_ms",
        "_waiting",
        "_watched",
        "moved",
        "parked",
        "replica_id",
        "serves_readers",
    )

    def __init__(
        self, session_id: int, uses_topic_ids: bool, now_ms: int, replica_id: int, waiting: WaitingRoom
    ) -> None:
        super().__init__(session_id, uses_topic_ids, now_ms)
        self.replica_id = replica_id
        self._replica_epoch = -1
        self._silent_ms_max = SILENT_MS_MAX
        self._steady_ms = now_ms  # since when it has been used all the time
        self.serves_readers = False  # it has consumers of its own, who wait for the high watermark
        self.moved: dict[tuple[TopicKey, int], None] = {}  # to be looked at, in this order
        self.parked: Parked | None = None  # its fetch that waits
        self._waiting = waiting
        self._watched: dict[tuple[TopicKey, int], Partition] = {}

    def update(self, request: FetchRequest) -> None:
        super().update(request)
        for topic, partitions in request.topics:
            for partition in partitions:
                if (topic, partition.index) in self.partitions:  # or it is forgotten by the same request
                    self.moved[topic, partition.index] = None
        if request.replica_epoch != self._replica_epoch:  # whose every offset counts anew
            self._replica_epoch = request.replica_epoch
            self.moved = dict.fromkeys(self.partitions)

    def note_use(self, wait_ms: int, now_ms: int) -> None:
        """It is about to be used again, by a request that may be kept waiting so long."""
        if now_ms - self.used_ms > self._silent_ms_max:
            self._steady_ms = now_ms
        self._silent_ms_max = max(SILENT_MS_MAX, 2 * wait_ms)

    def is_steady(self, now_ms: int) -> bool:
        """Whether it has been used all the time, until just now."""
        silent_ms_max = self._silent_ms_max
        return now_ms - self.used_ms <= silent_ms_max <= now_ms - self._steady_ms

    def forget(self, key: tuple[TopicKey, int]) -> None:
        super().forget(key)
        self.moved.pop(key, None)
        partition = self._watched.pop(key, None)
        if partition is not None:
            self._waiting.unwatch(partition, self)

    def watch(self, key: tuple[TopicKey, int], partition: Partition) -> None:
        """Hear from now on when it moves."""
        known = self._watched.get(key)
        if known is not partition:
            if known is not None:
                self._waiting.unwatch(known, self)
            self._watched[key] = partition
            self._waiting.watch(partition, self)

    def woken_by(self, partition: Partition) -> Parked | None:
        key = (partition.topic_id if self.uses_topic_ids else partition.topic, partition.index)
        if key not in self.moved:
            self.moved[key] = None
            if partition.leadership is not None:
                partition.leadership.renew(self.replica_id, self.used_ms)
        known = self.partitions.get(key)
        if known is None or self.serves_readers or known.is_behind(partition, self.replica_id):
            return self.parked
        return None

    def move_back(self, key: tuple[TopicKey, int]) -> None:
        self.moved.pop(key, None)
        self.moved[key] = None

    def close(self) -> None:
        for key in list(self._watched):
            self.forget(key)


class FetchSessions:
    def __init__(self, slots: int, entropy: Callable[[int], bytes], waiting: WaitingRoom) -> None:
        self._slots = slots
        self._entropy = entropy
        self._waiting = waiting
        self._sessions: dict[int, FetchSession] = {}
        self._followers: dict[int, FollowerSession] = {}  # by replica id

    def __len__(self) -> int:
        return len(self._sessions) + len(self._followers)

    def find(
        self, request: FetchRequest, uses_topic_ids: bool, now_ms: int
    ) -> tuple[int, FetchSession | None]:
        """(error code, session): the session this request takes part in, new or known, if any."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            if request.session_epoch == FINAL_EPOCH:
                return 0, None
            return 0, self._open(uses_topic_ids, now_ms)
        session = self._sessions.get(request.session_id)
        error = self._take_part(session, request, uses_topic_ids, now_ms)
        if error or session is None:
            return error, None
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return 0, session

    def find_follower(
        self, request: FetchRequest, uses_topic_ids: bool, now_ms: int
    ) -> tuple[int, FollowerSession | None]:
        """The same for a follower: a new session takes the place of the one it had."""
        session = self._followers.get(request.replica_id)
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session is not None:
                self._end(session)
            if request.session_epoch == FINAL_EPOCH:
                return 0, None
            return 0, self._open_follower(request.replica_id, uses_topic_ids, now_ms)
        if session is not None and session.session_id != request.session_id:
            session = None
        if session is not None:
            session.note_use(request.max_wait_ms, now_ms)
        error = self._take_part(session, request, uses_topic_ids, now_ms)
        return error, None if error else session

    def hears(self, replica_id: int, partition: Partition, now_ms: int) -> bool:
        """Whether a follower of the partition has asked for it all the time, until just now. What it had sent
        before this broker was stopped for a while, and is found by it when it goes on, says nothing."""
        session = self._followers.get(replica_id)
        if session is None or not session.is_steady(now_ms):
            return False
        topic = partition.topic_id if session.uses_topic_ids else partition.topic
        return (topic, partition.index) in session.partitions

    def hurry(self, replica_ids: Iterable[int]) -> None:
        """Answer the fetches of these that wait: there is something new that they have not asked for."""
        for replica_id in replica_ids:
            session = self._followers.get(replica_id)
            parked = session.parked if session is not None else None
            if parked is not None and not parked.is_gone:
                self._waiting.finish_now(parked)

    def _take_part(
        self, session: FetchSession | None, request: FetchRequest, uses_topic_ids: bool, now_ms: int
    ) -> int:
        if session is None:
            return ErrorCode.fetch_session_id_not_found
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.fetch_session_topic_id_error
        if session.epoch != request.session_epoch:
            return ErrorCode.invalid_fetch_session_epoch
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.used_ms = now_ms
        return 0

    def _end(self, session: FollowerSession) -> None:
        session.close()
        del self._followers[session.replica_id]

    def _open(self, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        """A new session, in place of one long unused if the slots are full; None if there is no place."""
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms < EVICTION_MS:
                return None
            del self._sessions[oldest.session_id]
        session = FetchSession(self._new_id(), uses_topic_ids, now_ms)
        self._sessions[session.session_id] = session
        return session

    def _open_follower(self, replica_id: int, uses_topic_ids: bool, now_ms: int) -> FollowerSession:
        """Followers need no slot, or consumers could keep them out; there are no more of them than brokers,
        unless somebody makes them up."""
        if len(self._followers) >= FOLLOWERS_MAX:
            self._end(min(self._followers.values(), key=lambda each: each.used_ms))
        session = FollowerSession(self._new_id(), uses_topic_ids, now_ms, replica_id, self._waiting)
        self._followers[replica_id] = session
        return session

    def _new_id(self) -> int:
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = int.from_bytes(self._entropy(4), "big") & EPOCH_MAX
        return session_id
