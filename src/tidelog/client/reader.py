"""The raw record batches of one range of offsets, fetching the next piece while one is processed.

| a fetch at offset x < end brings      | then                                                           |
|---------------------------------------|----------------------------------------------------------------|
| whole batches                         | they are returned; x moves behind the last, by its header      |
| a batch that begins at `end` or later | the range is over: the rest of it is a gap                     |
| nothing, and the log goes on to `end` | confirmed by a second fetch, with uncommitted records too:     |
| · that brings a batch at `end` or later | the range is over, as above                                  |
| · that brings nothing, and the topic is compacted | the range is over: the log ends in a gap           |
| · anything else                       | fetched again until `timeout_ms` is over: `ReadTimedOut`       |
| nothing, and the log does not         | fetched again until `timeout_ms` is over: `ReadTimedOut`       |
| a retriable error                     | the leader is looked up, and the fetch sent again              |
| offset out of range, or no such topic | `OffsetOutOfRange`, `TopicGone`, after confirming it           |

"The log" is its readable part: up to the high watermark, or with `committed_only` to the last stable
offset.

A broker may answer with nothing though there are records: a read from tiered storage that took too long, a
quota. So a single empty answer ends nothing.

**Invariant:** pieces follow each other, no batch is skipped or returned twice; records are not decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.base.files import Buffer
from tidelog.base.limits import ANSWER_SECONDS_MIN, ANSWER_SIZE_MAX, FETCH_BYTES, FETCH_BYTES_MIN
from tidelog.client.attempts import Attempts
from tidelog.client.cluster import EARLIEST, LATEST, Cluster
from tidelog.client.codes import name_of, passes
from tidelog.client.connection import Connection
from tidelog.client.errors import (
    ClientError,
    ConnectionLost,
    DamagedBatch,
    GaveUp,
    MalformedAnswer,
    OffsetOutOfRange,
    ReadTimedOut,
    Refused,
    TopicGone,
    TopicPartition,
)
from tidelog.client.exchange import FETCH
from tidelog.client.properties import read_number
from tidelog.protocol.batch import LENGTH_MIN, LENGTH_OVERHEAD, PLACE
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.fetch import FetchPartition, FetchRequest
from tidelog.protocol.fetch_client import (
    FetchResponse,
    ReceivedPartition,
    decode_fetch_response,
    encode_fetch_request,
)

# Fits into the sockets' buffers: the broker sends it all while the last piece is processed
TIMEOUT_MS = 120_000
_BY_NAME_NEWEST = 12
_NO_ID = bytes(16)
_READ_COMMITTED = 1
_GONE = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.inconsistent_topic_id,
)


class RawBatches(NamedTuple):
    """Whole batches, `data[start:end]`, including those of aborted transactions.

    The caller owns the memory of `data` and may write to it if it is writable.
    """

    data: memoryview
    start: int
    end: int
    aborted: list[tuple[int, int]] | None  # producer id, first offset
    next_offset: int  # by the header of the last batch


class FetchExchange:
    api = FETCH

    def __init__(self, request: FetchRequest) -> None:
        self._request = request

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
        return [encode_fetch_request(version, correlation_id, client_id, self._request)]

    def decode(self, data: memoryview, position: int, version: int) -> tuple[memoryview, FetchResponse]:
        return data, decode_fetch_response(data, position, version)


class RangeReader:
    """Iterate over it once. An abandoned reader leaves only an answer that is dropped."""

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        topic_id: bytes,
        start: int,
        end: int,
        *,
        committed_only: bool,
        fetch_bytes: int | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self._cluster = cluster
        self._partition = partition
        self._topic_id = topic_id if topic_id != _NO_ID else b""
        self._start = start
        self._end = end
        self._isolation_level = _READ_COMMITTED if committed_only else 0
        properties = cluster.properties
        if fetch_bytes is None:
            fetch_bytes = read_number(properties, "max.partition.fetch.bytes", FETCH_BYTES, 1)
        self._fetch_bytes = fetch_bytes
        self._wait_ms = min(read_number(properties, "fetch.max.wait.ms", 500), timeout_ms // 4)
        self._timeout_ms = timeout_ms
        self._offset = start
        self._bytes_seen = 0
        self._needed_bytes = 0  # the size of a batch that did not fit
        self._is_confirming = False  # the fetch under way confirms that the range is over
        self._is_over = False

    def __iter__(self) -> Iterator[RawBatches]:
        attempts = self._new_attempts()
        under_way: tuple[Connection, int] | None = None
        try:
            while self._has_more:
                try:
                    under_way = under_way or self._ask(attempts)
                    connection, correlation = under_way
                    timeout_seconds = max(attempts.seconds_left, ANSWER_SECONDS_MIN)
                    data, answer = connection.receive(correlation, timeout_seconds)
                    under_way = None
                    piece = self._take(data, answer, attempts)
                except ConnectionLost as problem:
                    under_way = None
                    self._cluster.leader_moved(self._partition.topic)
                    self._wait(attempts, problem)
                    continue
                if piece is not None:
                    under_way = self._ask_ahead(connection) if self._has_more else None
                    yield piece
                    attempts = self._new_attempts()  # the time that the caller used does not count
        finally:
            if under_way is not None:
                under_way[0].forget(under_way[1])

    @property
    def _has_more(self) -> bool:
        return self._offset < self._end and not self._is_over

    def _new_attempts(self) -> Attempts:
        return self._cluster.attempts(f"reading {self._partition} at offset {self._offset}", self._timeout_ms)

    def _wait(self, attempts: Attempts, problem: ClientError) -> None:
        try:
            attempts.again(problem)
        except GaveUp:
            raise ReadTimedOut(
                f"{self._partition}: no records at offset {self._offset} (of {self._start} to {self._end}) "
                f"for {self._timeout_ms} ms: {problem}"
            ) from problem

    def _ask(self, attempts: Attempts) -> tuple[Connection, int]:
        timeout_ms = max(1, int(attempts.seconds_left * 1_000))
        try:
            connection = self._cluster.leader(self._partition, timeout_ms)
        except GaveUp as problem:
            raise ConnectionLost(str(problem)) from problem
        return connection, self._send(connection)

    def _ask_ahead(self, connection: Connection) -> tuple[Connection, int] | None:
        """Send the next request if that is possible at once; otherwise it is sent after the piece was
        processed."""
        try:
            return connection, self._send(connection)
        except ConnectionLost:
            return None

    def _send(self, connection: Connection) -> int:
        version = connection.version_of(FETCH)
        if not self._topic_id:
            version = min(version, _BY_NAME_NEWEST)
        size = 1 if self._is_confirming else self._wanted_bytes()  # the first batch is sent whole anyway
        isolation_level = 0 if self._is_confirming else self._isolation_level
        request = FetchRequest(-1, self._wait_ms, 1, size, isolation_level)
        topic = self._topic_id if version > _BY_NAME_NEWEST else self._partition.topic
        request.topics.append(
            (topic, [FetchPartition(self._partition.partition, -1, self._offset, -1, -1, size)])
        )
        return connection.send(FetchExchange(request), version=version)

    def _wanted_bytes(self) -> int:
        """Limited by the rest of the range, estimated from the size of the records so far."""
        read_count = self._offset - self._start
        if self._needed_bytes or not read_count:
            return max(self._fetch_bytes, self._needed_bytes)
        rest = self._bytes_seen * (self._end - self._offset) // read_count
        return min(self._fetch_bytes, max(FETCH_BYTES_MIN, rest + rest // 4))

    def _take(self, data: memoryview, answer: FetchResponse, attempts: Attempts) -> RawBatches | None:
        """The piece in an answer; None if the fetch must be repeated, or if the range is over."""
        if answer.error_code != ErrorCode.none:
            self._raise(answer.error_code, attempts)
        received = [
            row for _, rows in answer.topics for row in rows if row.index == self._partition.partition
        ]
        if not received:
            if answer.throttle_time_ms <= 0:
                raise MalformedAnswer(f"{self._partition}: missing in the answer to Fetch")
            self._wait(attempts, ConnectionLost(f"throttled for {answer.throttle_time_ms} ms by a quota"))
            return None
        row = received[0]
        if row.error_code != ErrorCode.none:
            self._raise(row.error_code, attempts)
        if self._is_confirming:
            self._confirm(data, row, attempts)
            return None
        end, next_offset = self._whole_batches(data, row)
        if end > row.start:
            self._bytes_seen += end - row.start
            self._offset = next_offset
            self._needed_bytes = 0
            return RawBatches(data, row.start, end, row.aborted, next_offset)
        if not self._is_over and not self._needed_bytes:
            self._take_nothing(row, attempts)
        return None

    def _take_nothing(self, row: ReceivedPartition, attempts: Attempts) -> None:
        log_end = row.last_stable_offset if self._isolation_level else row.high_watermark
        if log_end >= self._end:
            self._is_confirming = True
            return
        what = "last stable offset" if self._isolation_level else "high watermark"
        self._wait(
            attempts, ConnectionLost(f"the {what} is {log_end}, below the end of the range, {self._end}")
        )

    def _confirm(self, data: memoryview, row: ReceivedPartition, attempts: Attempts) -> None:
        """Decide from a second fetch whether the range is over."""
        self._is_confirming = False
        if row.end - row.start >= PLACE.size:
            self._is_over = PLACE.unpack_from(data, row.start)[0] >= self._end
        else:
            self._is_over = self._cluster.is_compacted(self._partition.topic, attempts)
        if not self._is_over:
            message = f"an empty answer, although the log ends at {self._end} or later"
            self._wait(attempts, ConnectionLost(message))

    def _whole_batches(self, data: memoryview, row: ReceivedPartition) -> tuple[int, int]:
        """The end of the last whole batch below the range's end, and the offset after it."""
        position, next_offset, limit = row.start, self._offset, row.end
        unpack, range_end = PLACE.unpack_from, self._end
        while position + PLACE.size <= limit:
            base_offset, length, magic, delta = unpack(data, position)
            if base_offset >= range_end:
                self._is_over = True
                break
            if length < LENGTH_MIN or magic != 2 or delta < 0 or base_offset + delta < next_offset:
                raise self._damaged(base_offset, length, magic, delta, next_offset)
            if position + LENGTH_OVERHEAD + length > limit:
                if position == row.start:
                    self._need(LENGTH_OVERHEAD + length)
                break
            position += LENGTH_OVERHEAD + length
            next_offset = base_offset + delta + 1
        return position, next_offset

    def _need(self, size: int) -> None:
        """Raise the fetch size: some brokers do not send the first batch whole."""
        if size <= self._needed_bytes or size > ANSWER_SIZE_MAX:
            raise DamagedBatch(
                f"{self._partition}: the batch at offset {self._offset} should have {size} bytes; "
                "the broker does not send all of them"
            )
        self._needed_bytes = size

    def _damaged(
        self, base_offset: int, length: int, magic: int, delta: int, next_offset: int
    ) -> DamagedBatch:
        if magic in (0, 1) and length > 0:
            reason = f"message format {magic} is from before Kafka 0.11 and not supported"
        else:
            reason = (
                f"the batch's header has base offset {base_offset}+{delta}, length {length}, magic {magic}"
            )
        return DamagedBatch(f"{self._partition}: damaged at offset {next_offset}: {reason}")

    def _raise(self, code: int, attempts: Attempts) -> None:
        message = f"{self._partition}: Fetch at offset {self._offset}: {name_of(code)}"
        if code == ErrorCode.offset_out_of_range:
            self._check_range(message)
        elif code in _GONE:
            self._check_gone(message, attempts)
        elif not passes(code):
            raise Refused(message, code)
        raise ConnectionLost(message)

    def _check_range(self, message: str) -> None:
        edges = []
        for which in (EARLIEST, LATEST):
            edges.append(self._cluster.list_offsets({self._partition: which})[self._partition].offset)
        first, last = edges
        if not first <= self._offset <= last:
            raise OffsetOutOfRange(f"{message}: the log has {first} to {last}", self._offset, first, last)

    def _check_gone(self, message: str, attempts: Attempts) -> None:
        """Raise TopicGone if other brokers, too, have no topic of that id."""
        found = self._cluster.describe([self._partition.topic]).get(self._partition.topic)
        if found is None or self._partition.partition not in found.partitions:
            attempts.again(TopicGone(f"{message}: the topic was deleted, or never had that partition"))
        elif self._topic_id and found.id not in (self._topic_id, _NO_ID):
            raise TopicGone(f"{message}: the topic was deleted and created again")
