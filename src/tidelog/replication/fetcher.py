"""Following one leader: all partitions that it leads and this broker has, in one fetch session (R2, KIP-227).

One request is under way at most. It names only what has changed since the last: where a log ends now, who
came, who went. Partitions that have to wait (after an error, or for an fsync) are out of the session
meanwhile. Of one that gives much at once more is asked for the next time, within bounds: fewer
requests cost less.

Pure: says which frame to send, and takes the answer apart.

**Invariant:** what the session is thought to hold is what the leader was told and has confirmed by an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.base.limits import FETCH_BACKOFF_MS_FIRST, FLUSHING_WAIT_MS, REPLICA_FETCH_GROWTH_MAX
from tidelog.protocol.errors import ErrorCode, MalformedRequest
from tidelog.protocol.fetch import FetchPartition, FetchRequest
from tidelog.protocol.fetch_client import ReceivedPartition, decode_fetch_response, encode_fetch_request
from tidelog.replication.partition import Partition

FETCH_VERSION = 17
CLIENT_ID = "tidelog-replica"
_BODY_POSITION = 5  # behind the correlation id and the header's tagged fields
_SESSION_ERRORS = (
    int(ErrorCode.fetch_session_id_not_found),
    int(ErrorCode.invalid_fetch_session_epoch),
    int(ErrorCode.fetch_session_topic_id_error),
)
_NONE = int(ErrorCode.none)
_EPOCH_MAX = 2**31 - 1  # of a session, as its leader counts


class FetchLimits(NamedTuple):
    wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    backoff_ms: int
    timeout_ms: int


class Received(NamedTuple):
    partition: Partition
    answer: ReceivedPartition
    records: memoryview


class Fetcher:
    """The session with one leader, over one connection."""

    def __init__(self, node_id: int, broker_epoch: int, limits: FetchLimits) -> None:
        self.broker_epoch = broker_epoch
        self.limits = limits
        self._partitions: dict[tuple[bytes, int], Partition] = {}
        self._waiting: dict[tuple[bytes, int], int] = {}  # until when; -1 for an fsync
        self._backoffs: dict[tuple[bytes, int], int] = {}  # for what the leader refuses next
        self._sizes: dict[tuple[bytes, int], int] = {}  # what is asked for of those that give much
        self._told: dict[tuple[bytes, int], FetchPartition] = {}  # what the session has
        self._changed: dict[tuple[bytes, int], None] = {}  # what may differ from that
        self._session_id = 0
        self._session_epoch = 0
        self._request = FetchRequest(node_id, limits.wait_ms, limits.min_bytes, limits.max_bytes, 0)  # last
        self._correlation_id = 0
        self.is_under_way = False
        self._sent_ms = 0
        self._retry_ms = 0

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, partition: Partition) -> bool:
        return self._partitions.get(_key(partition)) is partition

    def add(self, partition: Partition) -> None:
        """Follow a partition, or follow it on under another epoch."""
        key = _key(partition)
        self._partitions[key] = partition
        self._waiting.pop(key, None)
        self._backoffs.pop(key, None)
        self._changed[key] = None

    def remove(self, partition: Partition) -> None:
        key = _key(partition)
        if self._partitions.get(key) is partition:
            del self._partitions[key]
            self._waiting.pop(key, None)
            self._backoffs.pop(key, None)
            self._sizes.pop(key, None)
            self._changed[key] = None

    def hold(self, partition: Partition, until_ms: int = -1) -> None:
        """Leave a partition out until then, or until `release`."""
        self._waiting[_key(partition)] = until_ms
        self._changed[_key(partition)] = None

    def back_off(self, partition: Partition, now_ms: int) -> None:
        """The leader refuses a partition: leave it out for a while, longer each time. Most often it has only
        yet to hear that it leads."""
        key = _key(partition)
        wait_ms = min(self._backoffs.get(key, FETCH_BACKOFF_MS_FIRST), self.limits.backoff_ms)
        self._backoffs[key] = 2 * wait_ms
        self.hold(partition, now_ms + wait_ms)

    def release(self, partition: Partition) -> None:
        key = _key(partition)
        if self._waiting.pop(key, None) is not None:
            self._changed[key] = None

    def touch(self, partition: Partition) -> None:
        """Its log has changed."""
        self._changed[_key(partition)] = None
        self._backoffs.pop(_key(partition), None)

    def is_overdue(self, now_ms: int) -> bool:
        """Whether an answer has been waited for too long: nobody may be there any more."""
        return self.is_under_way and now_ms - self._sent_ms > self.limits.wait_ms + self.limits.timeout_ms

    # Requests.

    def next_request(self, now_ms: int) -> bytes | bytearray | None:
        """The frame to send now; None if one is under way, or there is nothing to ask for."""
        if self.is_under_way or now_ms < self._retry_ms:
            return None
        if self._waiting:
            self._end_waits(now_ms)
        wanted, forgotten = self._difference()
        if not self._told and not wanted:
            return None
        request, wait_ms = self._request, self.limits.wait_ms
        if self._waiting and any(due < 0 for due in self._waiting.values()):
            wait_ms = min(wait_ms, FLUSHING_WAIT_MS)  # what is being flushed is wanted very soon
        request.max_wait_ms, request.replica_epoch = wait_ms, self.broker_epoch
        request.session_id, request.session_epoch = self._session_id, self._session_epoch
        request.topics = []
        for (topic_id, _), asked in wanted.items():
            if request.topics and request.topics[-1][0] == topic_id:
                request.topics[-1][1].append(asked)
            else:
                request.topics.append((topic_id, [asked]))
        request.forgotten = [(topic_id, [index]) for topic_id, index in forgotten]
        for key in forgotten:
            del self._told[key]
        self._told.update(wanted)
        self._changed = {}
        self.is_under_way = True
        self._sent_ms = now_ms
        self._retry_ms = 0
        self._correlation_id = (self._correlation_id + 1) & _EPOCH_MAX
        return encode_fetch_request(FETCH_VERSION, self._correlation_id, CLIENT_ID, request)

    def _end_waits(self, now_ms: int) -> None:
        for key in [key for key, due in self._waiting.items() if 0 <= due <= now_ms]:
            del self._waiting[key]
            self._changed[key] = None

    def _difference(self) -> tuple[dict[tuple[bytes, int], FetchPartition], list[tuple[bytes, int]]]:
        wanted: dict[tuple[bytes, int], FetchPartition] = {}
        forgotten = []
        for key in self._changed:
            partition = self._partitions.get(key)
            if partition is None or key in self._waiting:
                if key in self._told:
                    forgotten.append(key)
                continue
            asked = self._ask(key, partition)
            if asked != self._told.get(key):
                wanted[key] = asked
        return wanted, forgotten

    def _ask(self, key: tuple[bytes, int], partition: Partition) -> FetchPartition:
        log = partition.log
        return FetchPartition(
            partition.index,
            partition.leader_epoch,
            log.end_offset,
            log.epochs.latest,
            log.start_offset,
            self._sizes.get(key, self.limits.partition_max_bytes),
        )

    # Answers.

    def on_answer(self, frame: memoryview, now_ms: int) -> Iterator[Received]:
        """What came for each partition, in turn: what is done with one may have others dropped, as a disk
        that fails does. An answer to another request is left."""
        if int.from_bytes(frame[:4], "big") != self._correlation_id or not self.is_under_way:
            return
        self.is_under_way = False
        try:
            response = decode_fetch_response(frame, _BODY_POSITION, FETCH_VERSION)
        except MalformedRequest:
            self.restart(now_ms)
            return
        if response.error_code != _NONE:
            self.restart(
                now_ms if response.error_code in _SESSION_ERRORS else now_ms + self.limits.backoff_ms
            )
            return
        self._session_id = response.session_id
        if response.session_id == 0:  # the leader keeps no session: all is asked for each time
            told, self._told, self._session_epoch = self._told, {}, 0
            self._changed = dict.fromkeys(self._partitions)
        else:
            told = self._told
            self._session_epoch = 1 if self._session_epoch == _EPOCH_MAX else self._session_epoch + 1
        for topic_id, answers in response.topics:
            for answer in answers:
                key = (topic_id if isinstance(topic_id, bytes) else b"", answer.index)
                partition, asked = self._partitions.get(key), told.get(key)
                if partition is not None and asked is not None and _is_as_asked(partition, asked):
                    self._note_size(key, answer.end - answer.start, asked.max_bytes)
                    yield Received(partition, answer, frame[answer.start : answer.end])

    def _note_size(self, key: tuple[bytes, int], size: int, asked_size: int) -> None:
        """Ask for twice as much next time if there was a good part of it, and for half if there was not."""
        size_min = self.limits.partition_max_bytes
        if 4 * size > asked_size:
            self._sizes[key] = min(2 * asked_size, REPLICA_FETCH_GROWTH_MAX * size_min)
        elif asked_size > size_min:
            self._sizes[key] = max(asked_size // 2, size_min)

    def restart(self, retry_ms: int) -> None:
        """Begin with a new session, not before that time: the old one is lost, or its connection is."""
        self.is_under_way = False
        self._session_id = self._session_epoch = 0
        self._told = {}
        self._changed = dict.fromkeys(self._partitions)
        self._retry_ms = retry_ms


def _is_as_asked(partition: Partition, asked: FetchPartition) -> bool:
    """Whether its log has stayed as it was when more was asked for."""
    log = partition.log
    return (
        asked.fetch_offset == log.end_offset
        and asked.current_leader_epoch == partition.leader_epoch
        and asked.last_fetched_epoch == log.epochs.latest
        and asked.log_start_offset == log.start_offset
    )


def _key(partition: Partition) -> tuple[bytes, int]:
    return partition.topic_id, partition.index
