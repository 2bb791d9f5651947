"""Record batches to their leaders: idempotent, several requests under way, each partition in order.

    sender = Sender(cluster, properties={})
    sender.send(partition, batch, record_count)    # blocks only when enough is under way
    sender.flush()                                 # everything is in the log, or SendFailed

A request has one batch of each partition and is sent when `max.request.size` is reached or a partition
has a second batch. After a retriable error a batch is sent again with the same sequence until
`delivery.timeout.ms` is over (`lanes` has the rules); any other error ends the sender.

**Invariant:** under way or gathered are at most `max.in.flight.requests.per.connection` requests and one
more for each leader, and a batch or two for each partition; nothing waits without a time limit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NoReturn

from tidelog.client.cluster import Cluster
from tidelog.client.codes import name_of, passes
from tidelog.client.connection import Connection
from tidelog.client.errors import (
    BadProperty,
    ClientError,
    ConnectionLost,
    GaveUp,
    MalformedAnswer,
    SendFailed,
    TopicPartition,
)
from tidelog.client.identity import ProducerIdentity, acquire_identity
from tidelog.client.lanes import Channel, Lane, Outgoing, ProduceExchange
from tidelog.client.produce import ProduceResponse
from tidelog.client.properties import Properties, read_number, read_switch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.produce import ProducedPartition

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
IDEMPOTENT_IN_FLIGHT_MAX = 5  # a broker recognizes duplicates among so many batches
_TOO_LARGE = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)
_FENCED = (ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id)


class Sender:
    """With the `identity` of a transactional producer, all batches are part of its open transaction."""

    def __init__(
        self, cluster: Cluster, *, properties: Mapping[str, str], identity: ProducerIdentity | None = None
    ) -> None:
        self._cluster = cluster
        self._acks, self._is_idempotent = _read_acks(properties)
        self._in_flight_max = _read_in_flight(properties, self._is_idempotent)
        self._delivery_seconds = read_number(properties, "delivery.timeout.ms", 120_000) / 1_000
        self._request_size_max = read_number(properties, "max.request.size", 1 << 20, 1)
        self._timeout_ms = read_number(properties, "request.timeout.ms", 30_000)
        self._backoff_seconds = read_number(properties, "retry.backoff.ms", 100) / 1_000
        self._backoff_seconds_max = read_number(properties, "retry.backoff.max.ms", 1_000) / 1_000
        self._identity = identity
        self._transactional_id = None if identity is None else identity.transactional_id
        self._lanes: dict[TopicPartition, Lane] = {}
        self._channels: dict[Connection, Channel] = {}
        self._topics: set[str] = set()
        self._failure: ClientError | None = None

    def send(self, partition: TopicPartition, batch: bytearray, record_count: int) -> None:
        """Add one record batch without producer and checksum; the sender owns it from here on."""
        self._check()
        try:
            lane = self._lane(partition)
            self._stamp(partition, batch, record_count)
            lane.waiting.append(Outgoing(lane, batch, record_count))
            if lane.channel is not None:
                lane.channel.waiting_size += len(batch)
            while len(lane.waiting) > 1 or (lane.waiting and self._is_full(lane)):
                self._advance(lane)
        except ClientError as problem:
            self._fail(problem)

    def flush(self) -> None:
        """Return when everything is acknowledged; raise SendFailed if a batch cannot be sent."""
        self._check()
        try:
            while busy := [lane for lane in self._lanes.values() if not lane.is_done]:
                for lane in busy:
                    if lane.channel is None and lane.waiting:
                        self._assign(lane)
                for channel in list(self._channels.values()):
                    self._send_all(channel)
                    if channel.requests:
                        self._receive(channel)
        except ClientError as problem:
            self._fail(problem)

    def ends(self) -> dict[TopicPartition, tuple[int, int]]:
        """The first acknowledged offset in each partition, and the one after the last."""
        return {
            partition: (lane.first_offset, lane.next_offset)
            for partition, lane in self._lanes.items()
            if lane.first_offset >= 0
        }

    def close(self) -> None:
        """Send nothing more: batches that were not flushed may or may not be in the log."""
        self._failure = self._failure or SendFailed("this Sender is closed")
        for channel in self._channels.values():
            for correlation, _ in channel.requests:
                channel.connection.forget(correlation)
        self._channels.clear()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, problem: ClientError) -> NoReturn:
        self._failure = problem if isinstance(problem, SendFailed) else SendFailed(str(problem))
        self.close()
        raise self._failure from problem

    def _lane(self, partition: TopicPartition) -> Lane:
        lane = self._lanes.get(partition)
        if lane is None:
            if partition.topic not in self._topics:
                self._cluster.wake(partition.topic)
                self._topics.add(partition.topic)
            lane = self._lanes[partition] = Lane(partition)
        return lane

    def _stamp(self, partition: TopicPartition, batch: bytearray, record_count: int) -> None:
        if self._identity is None:
            self._identity = acquire_identity(self._cluster) if self._is_idempotent else ProducerIdentity()
        self._identity.stamp(partition, batch, record_count)

    def _is_full(self, lane: Lane) -> bool:
        channel = lane.channel or self._assign(lane)
        return channel.waiting_size >= self._request_size_max

    def _advance(self, lane: Lane) -> None:
        """Take the lane's next batch one step nearer to its leader."""
        channel = lane.channel or self._assign(lane)
        while channel.requests and channel.connection.has_arrived():
            self._receive(channel)
        if lane.channel is not channel:
            return
        if not self._send_one(channel) and channel.requests:
            self._receive(channel)

    def _send_all(self, channel: Channel) -> None:
        while self._send_one(channel):
            pass

    def _send_one(self, channel: Channel) -> bool:
        """Send a request if the window allows one and a lane has a batch."""
        if len(channel.requests) >= self._in_flight_max:
            return False
        deadline = time.monotonic() + self._delivery_seconds
        batches = channel.gather(self._request_size_max, self._in_flight_max, deadline)
        if not batches:
            return False
        exchange = ProduceExchange(self._acks, self._timeout_ms, batches, self._transactional_id)
        try:
            correlation = channel.connection.send(exchange, is_answered=self._acks != 0)
        except ConnectionLost as problem:
            channel.requests.append((-1, batches))
            self._lose(channel, problem)
            return False
        if self._acks == 0:
            for outgoing in batches:
                outgoing.lane.acknowledge(outgoing, -1)
        else:
            channel.requests.append((correlation, batches))
        return True

    def _receive(self, channel: Channel) -> None:
        """Wait for the oldest answer of a leader."""
        correlation, batches = channel.requests[0]
        try:
            answer: ProduceResponse = channel.connection.receive(correlation)
        except ConnectionLost as problem:
            self._lose(channel, problem)
            return
        channel.requests.popleft()
        rows = {(topic, row.index): row for topic, partitions in answer.topics for row in partitions}
        for outgoing in batches:
            row = rows.get(outgoing.lane.partition)
            if row is None:
                where = f"{outgoing.lane.partition}: {channel.connection.address}"
                raise MalformedAnswer(f"{where}: missing in the answer to Produce")
            self._settle(outgoing, row)
            self._turn_back(outgoing.lane)

    def _settle(self, outgoing: Outgoing, row: ProducedPartition) -> None:
        lane, code = outgoing.lane, row.error_code
        if code == ErrorCode.none or code == ErrorCode.duplicate_sequence_number:
            lane.acknowledge(outgoing, row.base_offset if code == ErrorCode.none else -1)
        elif passes(code) or (code == ErrorCode.out_of_order_sequence_number and not lane.is_next(outgoing)):
            lane.fail(outgoing, name_of(code))
        else:
            raise _refused(outgoing, row)

    def _lose(self, channel: Channel, problem: ConnectionLost) -> None:
        """The connection is lost: its unanswered batches are sent again, to whichever broker leads then."""
        self._channels.pop(channel.connection, None)
        for _, batches in channel.requests:
            for outgoing in batches:
                outgoing.lane.fail(outgoing, str(problem))
        channel.requests.clear()
        for lane in list(channel.lanes.values()):
            if lane.failed:
                self._turn_back(lane)
            else:
                channel.remove(lane)
                self._cluster.leader_moved(lane.partition.topic)

    def _turn_back(self, lane: Lane) -> None:
        if not lane.failed or lane.under_way:
            return
        if lane.channel is not None:
            lane.channel.remove(lane)
        lane.turn_back()
        seconds = min(self._backoff_seconds * 2 ** min(lane.failure_count - 1, 16), self._backoff_seconds_max)
        lane.retry_at = time.monotonic() + seconds
        self._cluster.leader_moved(lane.partition.topic)

    def _assign(self, lane: Lane) -> Channel:
        """Find the leader of a lane that has none."""
        head, now = lane.waiting[0], time.monotonic()
        head.deadline = head.deadline or now + self._delivery_seconds
        if lane.failure_count and head.deadline - now <= self._backoff_seconds:
            raise self._timed_out(lane, lane.problem)
        time.sleep(max(0.0, min(lane.retry_at, head.deadline) - now))
        timeout_ms = max(1, int((head.deadline - time.monotonic()) * 1_000))
        try:
            connection = self._cluster.leader(lane.partition, timeout_ms)
        except GaveUp as problem:
            if not lane.failure_count:
                raise
            raise self._timed_out(lane, f"{lane.problem}, then {problem}") from problem
        channel = self._channels.get(connection)
        if channel is None:
            channel = self._channels[connection] = Channel(connection)
        channel.add(lane)
        return channel

    def _timed_out(self, lane: Lane, problem: str) -> SendFailed:
        return SendFailed(
            f"{lane.partition}: not acknowledged within delivery.timeout.ms="
            f"{self._delivery_seconds * 1_000:.0f}, and may or may not be in the log: {problem}"
        )


def _refused(outgoing: Outgoing, row: ProducedPartition) -> SendFailed:
    code = row.error_code
    message = f"{outgoing.lane.partition}: Produce: {name_of(code)}"
    if row.error_message:
        message += f": {row.error_message}"
    if code in _TOO_LARGE:
        message += (
            f": the batch has {len(outgoing.batch)} bytes; raise the topic's max.message.bytes, "
            "or make batches smaller with batch.size"
        )
    elif code in _FENCED:
        message += (
            ": the broker has lost what it knew of this producer; records may be missing before this batch"
        )
    return SendFailed(message)


def _read_acks(properties: Properties) -> tuple[int, bool]:
    text = properties.get("acks", "all").strip().lower()
    if text not in ACKS:
        raise BadProperty(f"acks={text}: expected one of {', '.join(ACKS)}")
    is_idempotent = read_switch(properties, "enable.idempotence", ACKS[text] == -1)
    if is_idempotent and ACKS[text] != -1:
        raise BadProperty(f"acks={text}: enable.idempotence=true needs acks=all")
    return ACKS[text], is_idempotent


def _read_in_flight(properties: Properties, is_idempotent: bool) -> int:
    name = "max.in.flight.requests.per.connection"
    wanted = read_number(properties, name, IDEMPOTENT_IN_FLIGHT_MAX, 1)
    if is_idempotent and wanted > IDEMPOTENT_IN_FLIGHT_MAX:
        raise BadProperty(f"{name}={wanted}: enable.idempotence=true allows {IDEMPOTENT_IN_FLIGHT_MAX}")
    # Without sequences a batch that is sent again would be appended after later batches.
    return wanted if is_idempotent else 1
