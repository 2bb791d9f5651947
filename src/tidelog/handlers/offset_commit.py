"""OffsetCommit: where a group is in each partition.

**Invariant:** a commit is acknowledged when it is in the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from tidelog.base.limits import API_VERSION_BITS, COMMITS_MAX
from tidelog.broker.broker import Broker
from tidelog.broker.clients import Client
from tidelog.broker.waiting import Parked
from tidelog.cluster.facts import TopicFacts
from tidelog.groups.offsets import Commit, CommitAsk
from tidelog.handlers.group_coordination import commit_deadline
from tidelog.handlers.names import unknown_error
from tidelog.handlers.request import Request, Result
from tidelog.protocol.apis import OFFSET_COMMIT
from tidelog.protocol.commit import (
    CommitForm,
    decode_offset_commit,
    encode_offset_commit,
    frame_of,
)
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import ErrorCode

_MISSING = -1  # the number of partitions of an unknown topic
_EPOCHS_VERSION = 9
_CORRELATION_ID = Struct(">i")
_CORRELATION_ID_AT = 4
_new = tuple.__new__  # of a named tuple, at a third of what calling its class costs
# Of a commit: each topic with its partitions, whatever else is said of them.
_Topics = Sequence[tuple[str | bytes, Sequence[tuple[int, *tuple[object, ...]]]]]


def handle_offset_commit(broker: Broker, request: Request) -> Result:
    """*Behaviour*: keeps an offset for each partition, of a member or of somebody who is in no group.

    *Versions*: to 4 it may say how long to keep them; 6 adds leader epochs; 7 static members; 9 the consumer
    protocol; 10 names topics by id.
    """
    version = request.version
    decoded, form = decode_offset_commit(version, request.data, request.position)
    group_id, epoch, member_id, instance_id, retention_ms, topics = decoded
    request.client.repeated = (
        _RepeatedCommit(broker, request.client, version, form) if form is not None else None
    )
    counts: list[int] = []
    commits: list[Commit] = []
    for topic, parts in topics:
        known = _known(broker, topic)
        count = len(known.partitions) if known is not None else _MISSING
        counts.append(count)
        if known is not None:
            name, topic_id = known.name, known.topic_id
            commits += [Commit(name, *part, topic_id) for part in parts if 0 <= part[0] < count]
    waiting = _WaitingCommit(broker, request.client, version, request.correlation_id, topics, counts)
    if not commits:
        return waiting.encode([])
    if len(commits) > COMMITS_MAX:
        return waiting.encode([ErrorCode.invalid_commit_offset_size] * len(commits))
    shard = broker.coordinators.find(group_id)
    if isinstance(shard, ErrorCode):
        return waiting.encode([shard] * len(commits))
    knows_epochs = version >= _EPOCHS_VERSION
    ask = CommitAsk(group_id, member_id, instance_id, epoch, retention_ms, knows_epochs, commits)
    broker.coordinators.commit(shard, ask, waiting)
    return waiting


def _known(broker: Broker, topic: str | bytes) -> TopicFacts | None:
    image = broker.image
    return image.topics.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)


class _RepeatedCommit:
    """The commits of a member that differ from its last one in offsets alone, and in nothing that is wrong:
    they go the shorter of two ways to the same coordinator."""

    __slots__ = ("_asker", "_broker", "_client", "_count_place", "_form", "_partitions", "_version", "_well")

    def __init__(self, broker: Broker, client: Client, version: int, form: CommitForm) -> None:
        self._broker = broker
        self._client = client
        self._version = version
        self._form = form
        knows_epochs = version >= _EPOCHS_VERSION
        self._asker = (form.group_id, form.member_id, None, form.epoch, -1, knows_epochs)
        self._count_place = OFFSET_COMMIT.key << API_VERSION_BITS | version
        self._partitions: list[int] = []
        self._well = b""  # what is answered if all is well with those

    def serve(self, frame: memoryview) -> Parked | None:
        broker, form = self._broker, self._form
        parts = form.parts_in(frame)
        if not parts or len(parts) > COMMITS_MAX:
            return None
        known, shard = _known(broker, form.topic), broker.coordinators.find(form.group_id)
        if known is None or isinstance(shard, ErrorCode):
            return None
        name, topic_id, count = known.name, known.topic_id, len(known.partitions)
        commits, partitions = [], []
        for partition, offset, leader_epoch in parts:
            if not 0 <= partition < count:
                return None
            commits.append(_new(Commit, (name, partition, offset, leader_epoch, "", topic_id)))
            partitions.append(partition)
        if partitions != self._partitions:
            self._partitions, self._well = partitions, form.well(partitions)
        broker.served_counts[self._count_place] += 1
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame, _CORRELATION_ID_AT)
        topics = [(form.topic, parts)]
        waiting = _WaitingCommit(
            broker, self._client, self._version, correlation_id, topics, [count], self._well
        )
        broker.coordinators.commit(shard, _new(CommitAsk, (*self._asker, commits)), waiting)
        return waiting


class _WaitingCommit(Parked):
    """An OffsetCommit request that is answered when it is written."""

    __slots__ = ("_broker", "_client", "_correlation_id", "_counts", "_topics", "_version", "_well")

    def __init__(
        self,
        broker: Broker,
        client: Client,
        version: int,
        correlation_id: int,
        topics: _Topics,
        counts: list[int],
        well: bytes = b"",
    ) -> None:
        super().__init__(commit_deadline(broker), [])
        self.api_key = OFFSET_COMMIT.key
        self._broker = broker
        self._client = client
        self._version = version
        self._correlation_id = correlation_id
        self._topics = topics
        self._counts = counts  # of partitions in each topic
        self._well = well  # what is answered if all is well, if that is known

    def give(self, codes: list[ErrorCode]) -> None:
        self._broker.waiting.finish(self, self.encode(codes))

    def fail(self, code: int) -> None:
        if not self.is_gone:
            self._broker.waiting.finish(self, self._refusal(ErrorCode(code)))

    def finish_late(self) -> Answer | None:
        return self._refusal(ErrorCode.coordinator_not_available)

    def _refusal(self, code: ErrorCode) -> bytes:
        part_count = sum(len(parts) for _, parts in self._topics)
        return self.encode([code] * part_count)

    def encode(self, codes: list[ErrorCode]) -> bytes:
        """With one code for each partition that there is."""
        throttle_time_ms = self._client.throttle_time_ms
        if self._well and not throttle_time_ms and not any(codes):
            return frame_of(self._correlation_id, self._well)
        left = iter(codes)
        answer = []
        for (topic, parts), count in zip(self._topics, self._counts, strict=True):
            told = []
            for part in parts:
                is_there = 0 <= part[0] < count
                told.append((part[0], next(left) if is_there else unknown_error(topic, count != _MISSING)))
            answer.append((topic, told))
        return encode_offset_commit(self._version, self._correlation_id, throttle_time_ms, answer)
