"""An incremental fetch session (KIP-227), of a consumer or of a follower: the partitions that it fetches, and
those of them that are due.

| a partition of a session | when                                                                        |
|--------------------------|-----------------------------------------------------------------------------|
| due                      | named by a request, moved since it was settled, or with something untold    |
| settled                  | answered, and nothing more to answer until it moves                         |

A session holds thousands of partitions of which few change. A fetch reads those that are due, in the order in
which they became due; a partition that was just served goes last, so that the others get their turn.

**Invariant:** a settled partition is watched. While a fetch of the session waits, its due partitions are
watched too; otherwise they need not be, and a session that nobody uses stops watching what moves.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from tidelog.base.limits import FETCH_SESSION_PARTITIONS_MAX
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, Topic
from tidelog.replication.partition import Partition
from tidelog.replication.watches import Watches

TopicKey = str | bytes
PartitionKey = tuple[TopicKey, int]


class Waiting(Protocol):
    """A request that waits for its answer."""

    is_gone: bool


W = TypeVar("W", bound=Waiting)


class SessionPartition:
    """A partition of a session: what to fetch, and what the client was told last."""

    __slots__ = ("high_watermark", "log_start_offset", "request", "watched")

    def __init__(self, request: FetchPartition) -> None:
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1
        self.watched: Partition | None = None

    def is_news(self, fetched: FetchedPartition) -> bool:
        """Whether the client does not know it yet."""
        return (
            fetched.records is not None
            or fetched.error_code != 0
            or fetched.diverging_epoch is not None
            or fetched.preferred_read_replica != -1
            or fetched.high_watermark != self.high_watermark
            or fetched.log_start_offset != self.log_start_offset
        )

    def note_told(self, fetched: FetchedPartition) -> None:
        if fetched.error_code:
            self.high_watermark = -1
        else:
            self.high_watermark = fetched.high_watermark
            self.log_start_offset = fetched.log_start_offset


class FetchSession(Generic[W]):
    __slots__ = (
        "_view",
        "_watches",
        "due",
        "epoch",
        "partitions",
        "session_id",
        "used_ms",
        "uses_topic_ids",
        "waiting",
    )

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int, watches: Watches[W]) -> None:
        self.session_id = session_id  # 0: it ends with its request
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.used_ms = now_ms
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.due: dict[PartitionKey, None] = {}
        self.waiting: W | None = None  # its fetch that waits
        self._view: tuple[object, ...] = ()
        self._watches = watches

    def update(self, request: FetchRequest) -> None:
        """Take over what a request names, which is due, and what it forgets."""
        known, count = self.partitions, len(self.partitions)
        for _, partitions in request.topics:
            count += len(partitions)
        if count > FETCH_SESSION_PARTITIONS_MAX:
            self._check_size(request)
        if not known:
            for topic, partitions in request.topics:
                for asked in partitions:  # of one that is named twice the last counts
                    known[topic, asked.index] = SessionPartition(asked)
            self.due = dict.fromkeys(known)
        else:
            self._change(request.topics)
        if request.session_epoch > 0:  # a full fetch names all that it wants
            for topic, indexes in request.forgotten:
                for index in indexes:
                    self.forget((topic, index))

    def _change(self, topics: list[Topic]) -> None:
        known, due = self.partitions, self.due
        for topic, partitions in topics:
            for asked in partitions:
                key = (topic, asked.index)
                held = known.get(key)
                if held is None:
                    known[key] = SessionPartition(asked)
                else:
                    held.request = asked
                due[key] = None

    def _check_size(self, request: FetchRequest) -> None:
        named = {(topic, asked.index) for topic, partitions in request.topics for asked in partitions}
        if len(named.union(self.partitions)) > FETCH_SESSION_PARTITIONS_MAX:
            reason = f"a fetch session of more than {FETCH_SESSION_PARTITIONS_MAX} partitions"
            raise MalformedRequest(reason)

    def use_view(self, view: tuple[object, ...]) -> None:
        """What an answer depends on beside the partitions; if that has changed, every partition is due."""
        if view != self._view:
            self._view = view
            self.due |= dict.fromkeys(self.partitions)

    def forget(self, key: PartitionKey) -> None:
        known = self.partitions.pop(key, None)
        self.due.pop(key, None)
        if known is not None:
            self._unwatch(known)

    def settle(self, key: PartitionKey, partition: Partition) -> None:
        """There is nothing more to answer of a partition until it moves."""
        del self.due[key]
        self.watch(key, partition)

    def move_back(self, key: PartitionKey) -> None:
        """A partition that was just served goes last."""
        del self.due[key]
        self.due[key] = None

    def watch(self, key: PartitionKey, partition: Partition) -> None:
        known = self.partitions[key]
        if known.watched is not partition:
            self._unwatch(known)
            known.watched = partition
            self._watches.watch(partition, self)

    def _unwatch(self, known: SessionPartition) -> None:
        if known.watched is not None:
            self._watches.unwatch(known.watched, self)
            known.watched = None

    def _key_of(self, partition: Partition) -> PartitionKey:
        return (partition.topic_id if self.uses_topic_ids else partition.topic, partition.index)

    def note_moved(self, partition: Partition) -> None:
        key = self._key_of(partition)
        if key not in self.due:
            self.due[key] = None
        elif self.waiting is None or self.waiting.is_gone:
            self._unwatch(self.partitions[key])

    def woken_by(self, partition: Partition) -> W | None:
        return self.waiting

    def close(self) -> None:
        """The session has ended: it watches nothing, and has nothing to answer."""
        for known in self.partitions.values():
            self._unwatch(known)
        self.partitions.clear()
        self.due.clear()
