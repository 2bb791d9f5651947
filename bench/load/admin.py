"""A plain blocking connection for everything that is not measured: topics, metadata, offsets.

Messages are kio's; the hot frames are in `frames`.
"""

from __future__ import annotations

import io
import socket
import struct
import time
import uuid
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import TypeVar

from kio.schema.create_topics.v7 import request as create_request
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.delete_topics.v6 import request as delete_request
from kio.schema.delete_topics.v6.response import DeleteTopicsResponse
from kio.schema.describe_topic_partitions.v0 import request as describe_request
from kio.schema.describe_topic_partitions.v0.response import DescribeTopicPartitionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import request as offsets_request
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.metadata.v12 import request as metadata_request
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64
from kio.static.protocol import RequestPayload, ResponsePayload

Response = TypeVar("Response", bound=ResponsePayload)
TIMEOUT_SECONDS = 60.0
LATEST = -1


class Refused(Exception):
    """A broker answered with an error code."""


class Admin:
    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def broker_count(self) -> int:
        return len(self._metadata(()).brokers)

    def create_topic(self, topic: str, partition_count: int, settings: dict[str, str] | None = None) -> None:
        """Create `topic` and return once every partition has a leader."""
        self.create_topics((topic,), partition_count, settings)

    def create_topics(
        self, topics: Sequence[str], partition_count: int, settings: dict[str, str] | None = None
    ) -> None:
        """Create all in one request and return once the last one is led, which Kafka does in order."""
        configs = tuple(
            create_request.CreatableTopicConfig(name=key, value=value)
            for key, value in (settings or {}).items()
        )
        wanted = tuple(
            create_request.CreatableTopic(
                name=TopicName(topic),
                num_partitions=i32(partition_count),
                replication_factor=i16(1),
                assignments=(),
                configs=configs,
            )
            for topic in topics
        )
        request = create_request.CreateTopicsRequest(topics=wanted, timeout=milliseconds(30_000))
        for result in self.call(request, CreateTopicsResponse).topics:
            _refuse_unless_none(result.error_code, f"creating {result.name}: {result.error_message}")
        self.wait_for_leaders(topics[-1], partition_count)

    def wait_for_leaders(self, topic: str, partition_count: int) -> None:
        """Return once metadata names every leader and the leaders know it, which Kafka learns later."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not self._is_led(topic, partition_count):
            if time.monotonic() > deadline:
                raise Refused(f"{topic} has no leaders after {TIMEOUT_SECONDS:.0f} s")
            time.sleep(0.002)

    def _is_led(self, topic: str, partition_count: int) -> bool:
        if self.led_partition_count(topic) != partition_count:
            return False
        try:
            self.end_offset(topic, partition_count)
        except Refused:
            return False
        return True

    def led_partition_count(self, topic: str) -> int:
        return led_partition_count(self.exchange(metadata_frame((topic,))))

    def described_partition_count(self, topics: Sequence[str]) -> int:
        """By DescribeTopicPartitions, page after page."""
        asked = tuple(describe_request.TopicRequest(name=TopicName(topic)) for topic in topics)
        cursor: describe_request.Cursor | None = None
        count = 0
        while True:
            request = describe_request.DescribeTopicPartitionsRequest(topics=asked, cursor=cursor)
            page = self.call(request, DescribeTopicPartitionsResponse)
            for topic in page.topics:
                _refuse_unless_none(topic.error_code, f"describing {topic.name}")
                count += len(topic.partitions)
            if page.next_cursor is None:
                return count
            cursor = describe_request.Cursor(
                topic_name=page.next_cursor.topic_name, partition_index=page.next_cursor.partition_index
            )

    def delete_topic(self, topic: str) -> None:
        self.delete_topics((topic,))

    def delete_topics(self, topics: Sequence[str]) -> None:
        states = tuple(
            delete_request.DeleteTopicState(name=TopicName(topic), topic_id=None) for topic in topics
        )
        request = delete_request.DeleteTopicsRequest(topics=states, timeout=milliseconds(30_000))
        for result in self.call(request, DeleteTopicsResponse).responses:
            _refuse_unless_none(result.error_code, f"deleting {result.name}")

    def end_offset(self, topic: str, partition_count: int) -> int:
        """The sum of the log end offsets of all partitions of `topic`."""
        return sum_of_offsets(self.exchange(offsets_frame((topic,), partition_count)))

    def call(self, request: RequestPayload, response_type: type[Response]) -> Response:
        return read_response(self.exchange(request_frame(request)), response_type)

    def exchange(self, frame: bytes) -> bytes:
        """Send a whole frame; return the whole answer, its size field included."""
        self.socket.sendall(frame)
        size = receive_exactly(self.socket, 4)
        return size + receive_exactly(self.socket, int.from_bytes(size, "big"))

    def _metadata(self, topics: tuple[str, ...]) -> MetadataResponse:
        return read_response(self.exchange(metadata_frame(topics)), MetadataResponse)


def request_frame(request: RequestPayload) -> bytes:
    header = RequestHeader(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(0),
        client_id="bench",
    )
    stream = io.BytesIO()
    entity_writer(RequestHeader)(stream, header)
    entity_writer(type(request))(stream, request)
    body = stream.getvalue()
    return struct.pack(">i", len(body)) + body


def metadata_frame(topics: Sequence[str] | None) -> bytes:
    """Ask for the metadata of some topics, or of all."""
    wanted = None
    if topics is not None:
        wanted = tuple(
            metadata_request.MetadataRequestTopic(topic_id=uuid.UUID(int=0), name=TopicName(topic))
            for topic in topics
        )
    return request_frame(
        metadata_request.MetadataRequest(
            topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
    )


def offsets_frame(topics: Sequence[str], partition_count: int) -> bytes:
    """Ask for the log end offsets of all partitions of some topics."""
    partitions = tuple(
        offsets_request.ListOffsetsPartition(partition_index=i32(index), timestamp=i64(LATEST))
        for index in range(partition_count)
    )
    asked = tuple(
        offsets_request.ListOffsetsTopic(name=TopicName(topic), partitions=partitions) for topic in topics
    )
    return request_frame(
        offsets_request.ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(0), topics=asked)
    )


def sum_of_offsets(answer: bytes) -> int:
    total = 0
    for topic in read_response(answer, ListOffsetsResponse).topics:
        for partition in topic.partitions:
            _refuse_unless_none(partition.error_code, f"offsets of {topic.name}")
            total += partition.offset
    return total


def led_partition_count(answer: bytes) -> int:
    """How many partitions have a leader, in an answer of Metadata."""
    return sum(
        partition.leader_id >= 0 and partition.error_code is ErrorCode.none
        for topic in read_response(answer, MetadataResponse).topics
        for partition in topic.partitions
    )


def read_response(answer: bytes, response_type: type[Response]) -> Response:
    header_size = 9 if response_type.__flexible__ else 8
    return entity_reader(response_type)(answer, header_size)[0]


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view = memoryview(buffer)
    filled = 0
    while filled < size:
        received = connection.recv_into(view[filled:])
        if received == 0:
            raise ConnectionError("the broker closed the connection")
        filled += received
    return bytes(buffer)


def milliseconds(count: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=count))


def _refuse_unless_none(code: ErrorCode, what: str) -> None:
    if code is not ErrorCode.none:
        raise Refused(f"{what}: {code.name}")
