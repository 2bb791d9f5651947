"""Incremental fetch sessions (KIP-227): the partitions a client fetches, remembered between its requests.

| session id | epoch | then                                                         |
|------------|-------|--------------------------------------------------------------|
| any        | -1    | a full fetch without a session; a session of that id ends    |
| any        | 0     | a full fetch that opens a session; one of that id ends       |
| known      | next  | an incremental fetch: only what changed is sent, both ways   |
| known      | other | INVALID_FETCH_SESSION_EPOCH                                  |
| unknown    | > 0   | FETCH_SESSION_ID_NOT_FOUND                                   |

**Invariant:** a session's epoch moves by one for each request that it takes part in.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.base.limits import FETCH_SESSION_PARTITIONS_MAX
from tidelog.protocol.errors import ErrorCode, MalformedRequest
from tidelog.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
EVICTION_MS = 120_000

TopicKey = str | bytes


class SessionPartition:
    """A partition of a session: what to fetch, and what the client was told last."""

    __slots__ = ("high_watermark", "log_start_offset", "request")

    def __init__(self, request: FetchPartition) -> None:
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1

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
        added_count = sum(
            (topic, partition.index) not in self.partitions
            for topic, partitions in request.topics
            for partition in partitions
        )
        if len(self.partitions) + added_count > FETCH_SESSION_PARTITIONS_MAX:
            raise MalformedRequest(f"a fetch session of more than {FETCH_SESSION_PARTITIONS_MAX} partitions")
        for topic, partitions in request.topics:
            for partition in partitions:
                known = self.partitions.get((topic, partition.index))
                if known is None:
                    self.partitions[topic, partition.index] = SessionPartition(partition)
                else:
                    known.request = partition
        for topic, indexes in request.forgotten:
            for index in indexes:
                self.partitions.pop((topic, index), None)

    def move_back(self, key: tuple[TopicKey, int]) -> None:
        """A partition that was just served goes last, so that the others get their turn."""
        self.partitions[key] = self.partitions.pop(key)


class FetchSessions:
    def __init__(self, slots: int, entropy: Callable[[int], bytes]) -> None:
        self._slots = slots
        self._entropy = entropy
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

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
        if session is None:
            return ErrorCode.fetch_session_id_not_found, None
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.fetch_session_topic_id_error, None
        if session.epoch != request.session_epoch:
            return ErrorCode.invalid_fetch_session_epoch, None
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.used_ms = now_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return 0, session

    def _open(self, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        """A new session, in place of one long unused if the slots are full; None if there is no place."""
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms < EVICTION_MS:
                return None
            del self._sessions[oldest.session_id]
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = int.from_bytes(self._entropy(4), "big") & EPOCH_MAX
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids, now_ms)
        return session
