"""The work of a sender: the batches of each partition in their order, and the requests under way.

A partition's batches stand in one `Lane`: acknowledged batches leave at its front, new ones join at its end.
A `Channel` is a leader with the lanes that have batches for it.

| a lane         | sends                                                                              |
|----------------|------------------------------------------------------------------------------------|
| is new         | one batch, and waits for its answer: a broker that does not know a producer accepts|
|                | any sequence, so a second batch could be appended before the first                 |
| had a failure  | nothing until every batch under way is answered; then as if it were new            |
| else           | as many as are allowed                                                             |

**Invariant:** the batches of a partition are sent in the order in which they came, also when sent again.
"""

from __future__ import annotations

from collections import deque

from tidelog.base.files import Buffer
from tidelog.client.connection import Connection
from tidelog.client.errors import TopicPartition
from tidelog.client.exchange import PRODUCE, TRANSACTIONAL_PRODUCE
from tidelog.client.produce import ProduceResponse, decode_produce_response, encode_produce_request


class Outgoing:
    """One batch under way."""

    __slots__ = ("batch", "deadline", "lane", "record_count")

    def __init__(self, lane: Lane, batch: bytearray, record_count: int) -> None:
        self.lane = lane
        self.batch = batch
        self.record_count = record_count
        self.deadline = 0.0  # set at the first attempt: a caller may fill a request slowly


class Lane:
    """The batches of one partition that are not acknowledged yet."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[Outgoing] = deque()
        self.under_way: deque[Outgoing] = deque()
        self.failed: list[Outgoing] = []
        self.channel: Channel | None = None
        self.is_trusted = False  # the broker has acknowledged a batch since the last failure
        self.failure_count = 0
        self.retry_at = 0.0
        self.problem = ""
        self.first_offset = -1
        self.next_offset = -1

    @property
    def is_done(self) -> bool:
        return not (self.waiting or self.under_way or self.failed)

    def may_send(self, window: int) -> bool:
        return bool(self.waiting) and len(self.under_way) < (window if self.is_trusted else 1)

    def is_next(self, outgoing: Outgoing) -> bool:
        """Whether all batches before it are acknowledged."""
        return not self.failed and self.under_way[0] is outgoing

    def acknowledge(self, outgoing: Outgoing, base_offset: int) -> None:
        self.under_way.remove(outgoing)
        if not self.failed:
            self.is_trusted = True
            self.failure_count = 0
        if base_offset >= 0:
            self.first_offset = base_offset if self.first_offset < 0 else min(self.first_offset, base_offset)
            self.next_offset = max(self.next_offset, base_offset + outgoing.record_count)

    def fail(self, outgoing: Outgoing, problem: str) -> None:
        """Mark a batch to be sent again, before all later batches."""
        self.under_way.remove(outgoing)
        self.failed.append(outgoing)
        self.is_trusted = False
        self.problem = problem

    def turn_back(self) -> None:
        """All batches under way are answered: move the failed ones back to the front, in their order."""
        assert not self.under_way
        self.waiting.extendleft(reversed(self.failed))
        self.failed.clear()
        self.failure_count += 1


class Channel:
    """A leader: the lanes with batches for it, and its unanswered requests."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.requests: deque[tuple[int, list[Outgoing]]] = deque()
        self.lanes: dict[TopicPartition, Lane] = {}
        self.waiting_size = 0

    def add(self, lane: Lane) -> None:
        lane.channel = self
        self.lanes[lane.partition] = lane
        self.waiting_size += sum(len(outgoing.batch) for outgoing in lane.waiting)

    def remove(self, lane: Lane) -> None:
        lane.channel = None
        del self.lanes[lane.partition]
        self.waiting_size -= sum(len(outgoing.batch) for outgoing in lane.waiting)

    def gather(self, size_max: int, window: int, deadline: float) -> list[Outgoing]:
        """The next request: one batch of each lane that may send, as many as fit, at least one."""
        gathered: list[Outgoing] = []
        size = 0
        for partition, lane in list(self.lanes.items()):
            if not lane.may_send(window):
                continue
            size += len(lane.waiting[0].batch)
            if gathered and size > size_max:
                break
            outgoing = lane.waiting.popleft()
            lane.under_way.append(outgoing)
            outgoing.deadline = outgoing.deadline or deadline
            gathered.append(outgoing)
            self.waiting_size -= len(outgoing.batch)
            self.lanes[partition] = self.lanes.pop(partition)  # behind the others: round robin
        return gathered


class ProduceExchange:
    def __init__(
        self, acks: int, timeout_ms: int, batches: list[Outgoing], transactional_id: str | None = None
    ) -> None:
        self.api = PRODUCE if transactional_id is None else TRANSACTIONAL_PRODUCE
        self._transactional_id = transactional_id
        self._acks = acks
        self._timeout_ms = timeout_ms
        topics: dict[str | bytes, list[tuple[int, Buffer]]] = {}
        for outgoing in batches:
            partition = outgoing.lane.partition
            topics.setdefault(partition.topic, []).append((partition.partition, outgoing.batch))
        self._topics = list(topics.items())

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
        return encode_produce_request(
            version,
            correlation_id,
            client_id,
            self._acks,
            self._timeout_ms,
            self._topics,
            self._transactional_id,
        )

    def decode(self, data: memoryview, position: int, version: int) -> ProduceResponse:
        return decode_produce_response(data, position, version)
