"""Incremental fetch sessions (KIP-227): who has one, and under which epoch it goes on.

| session id | epoch | then                                                         |
|------------|-------|--------------------------------------------------------------|
| any        | -1    | a full fetch without a session; a session of that id ends    |
| any        | 0     | a full fetch that opens a session; one of that id ends       |
| known      | next  | an incremental fetch: only what changed is sent, both ways   |
| known      | other | INVALID_FETCH_SESSION_EPOCH                                  |
| unknown    | > 0   | FETCH_SESSION_ID_NOT_FOUND                                   |

**Invariant:** a session's epoch moves by one for each request that it takes part in. A follower has one
session at most. One fetch of a session waits at most: when the next one comes, or the session ends, it is
answered with what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.base.limits import FOLLOWER_SESSIONS_MAX, SESSION_EVICTION_MS
from tidelog.broker.waiting import Parked, WaitingRoom
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.fetch import FetchRequest
from tidelog.replication.fetch_session import FetchSession
from tidelog.replication.follower_session import FollowerSession
from tidelog.replication.partition import Partition

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1  # of four bytes; then it begins at 1 again

Session = FetchSession[Parked]
FollowersSession = FollowerSession[Parked]


class FetchSessions:
    def __init__(self, slots: int, entropy: Callable[[int], bytes], waiting: WaitingRoom) -> None:
        self._slots = slots
        self._entropy = entropy
        self._waiting = waiting
        self._sessions: dict[int, Session] = {}
        self._followers: dict[int, FollowersSession] = {}  # by replica id

    def __len__(self) -> int:
        return len(self._sessions) + len(self._followers)

    def find(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> tuple[int, Session | None]:
        """(error code, session): the session this request takes part in, new or known, if any."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            ended = self._sessions.pop(request.session_id, None)
            if ended is not None:
                self._close(ended)
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
    ) -> tuple[int, FollowersSession | None]:
        """The same for a follower: a new session takes the place of the one it had."""
        session = self._followers.get(request.replica_id)
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self.tell_moved()
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

    def tell_moved(self) -> None:
        """What has moved in this turn is due already, and a follower that had all of it counts as caught up
        until it last asked: to be called before a session is used or ends, and before ISRs are decided."""
        if self._waiting.watches.moved:
            self._waiting.find_woken()

    def hurry(self, replica_ids: Iterable[int]) -> None:
        """Answer the fetches of these that wait: there is something new that they have not asked for."""
        for replica_id in replica_ids:
            session = self._followers.get(replica_id)
            if session is not None:
                self._finish_waiting(session)

    def without_id(self, uses_topic_ids: bool, now_ms: int) -> Session:
        """The session of a request that has none: it ends with the request."""
        return FetchSession(0, uses_topic_ids, now_ms, self._waiting.watches)

    def follower_without_id(self, replica_id: int, uses_topic_ids: bool, now_ms: int) -> FollowersSession:
        return FollowerSession(0, uses_topic_ids, now_ms, replica_id, self._waiting.watches)

    def drop(self, session: Session) -> None:
        """End a session that its client does not know."""
        if self._sessions.pop(session.session_id, None) is not None:
            session.close()

    def _finish_waiting(self, session: Session) -> None:
        """Answer the fetch of a session that waits, if one does."""
        parked = session.waiting
        if parked is not None and not parked.is_gone:
            self._waiting.finish_now(parked)

    def _close(self, session: Session) -> None:
        self._finish_waiting(session)
        session.close()

    def _take_part(
        self, session: Session | None, request: FetchRequest, uses_topic_ids: bool, now_ms: int
    ) -> int:
        if session is None:
            return ErrorCode.fetch_session_id_not_found
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.fetch_session_topic_id_error
        if session.epoch != request.session_epoch:
            return ErrorCode.invalid_fetch_session_epoch
        self.tell_moved()
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.used_ms = now_ms
        self._finish_waiting(session)
        return 0

    def _end(self, session: FollowersSession) -> None:
        self._close(session)
        del self._followers[session.replica_id]

    def _open(self, uses_topic_ids: bool, now_ms: int) -> Session | None:
        """A new session, in place of one long unused if the slots are full; None if there is no place."""
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms < SESSION_EVICTION_MS:
                return None
            del self._sessions[oldest.session_id]
            self._close(oldest)
        session: Session = FetchSession(self._new_id(), uses_topic_ids, now_ms, self._waiting.watches)
        self._sessions[session.session_id] = session
        return session

    def _open_follower(self, replica_id: int, uses_topic_ids: bool, now_ms: int) -> FollowersSession:
        """Followers need no slot, or consumers could keep them out; there are no more of them than brokers,
        unless somebody makes them up."""
        if len(self._followers) >= FOLLOWER_SESSIONS_MAX:
            self._end(min(self._followers.values(), key=lambda each: each.used_ms))
        watches = self._waiting.watches
        session: FollowersSession = FollowerSession(
            self._new_id(), uses_topic_ids, now_ms, replica_id, watches
        )
        self._followers[replica_id] = session
        return session

    def _new_id(self) -> int:
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = int.from_bytes(self._entropy(4), "big") & EPOCH_MAX
        return session_id
