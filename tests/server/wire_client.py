"""A client that is nothing but a socket: it sends what it likes and reads what comes."""

from __future__ import annotations

import socket
from struct import Struct
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from tests.wire.harness import (
    API_VERSIONS,
    CREATE_TOPICS,
    FETCH,
    PRODUCE,
    batch_of,
    decode_answer,
    parts,
    request_frame,
    seconds,
)

_SIZE = Struct(">i")
PATIENCE_S = 30.0


class WireClient:
    """One connection; every wait ends after `PATIENCE_S` with an exception."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, api_key: int, version: int, **values: Any) -> None:
        self.socket.sendall(self.framed(api_key, version, **values))

    def framed(self, api_key: int, version: int, **values: Any) -> bytes:
        self._correlation_id += 1
        frame = request_frame(api_key, version, self._correlation_id, **values)
        return _SIZE.pack(len(frame)) + frame

    def read_frame(self) -> bytes:
        """The next whole answer, with its size prefix; EOFError if the broker closed the connection."""
        while len(self._received) < 4 or len(self._received) < 4 + _SIZE.unpack_from(self._received)[0]:
            piece = self.socket.recv(1 << 20)
            if not piece:
                raise EOFError
            self._received += piece
        end = 4 + _SIZE.unpack_from(self._received)[0]
        frame, self._received = self._received[:end], self._received[end:]
        return frame

    def ask(self, api_key: int, version: int, **values: Any) -> Any:
        self.send(api_key, version, **values)
        return decode_answer(api_key, version, self.read_frame(), self._correlation_id)

    def is_closed_by_peer(self) -> bool:
        """Wait until the broker closes the connection; False if it answers instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    # What a friendly client does.

    def greet(self) -> None:
        answer = self.ask(API_VERSIONS, 3, client_software_name="x", client_software_version="1")
        assert answer.error_code == 0

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> UUID:
        part = parts(CREATE_TOPICS, 7)
        configs = tuple(
            part.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        )
        topic = part.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=configs
        )
        answer = self.ask(CREATE_TOPICS, 7, topics=(topic,), timeout=seconds(10), validate_only=False)
        assert answer.topics[0].error_code == 0, answer
        uuid: UUID = answer.topics[0].topic_id
        return uuid

    def produce(self, topic: str, batch: bytes | bytearray | None = None) -> int:
        """The base offset."""
        answer = self.ask(PRODUCE, 9, **produce_values(topic, batch or batch_of()))
        outcome = answer.responses[0].partition_responses[0]
        assert outcome.error_code == 0, outcome
        offset: int = outcome.base_offset
        return offset

    def fetch(self, topic: str, offset: int, **options: int) -> Any:
        answer = self.ask(FETCH, 12, **fetch_values(topic, offset, **options))
        return answer.responses[0].partitions[0]


def produce_values(topic: str, batch: bytes | bytearray) -> dict[str, Any]:
    part = parts(PRODUCE, 9)
    data = part.PartitionProduceData(index=0, records=bytes(batch))
    topics = (part.TopicProduceData(name=topic, partition_data=(data,)),)
    return {"transactional_id": None, "acks": -1, "timeout": seconds(30), "topic_data": topics}


def fetch_values(
    topic: str, offset: int, *, max_bytes: int = 2**26, max_wait_ms: int = 0, min_bytes: int = 1
) -> dict[str, Any]:
    part = parts(FETCH, 12)
    ask = part.FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    return {
        "replica_id": -1,
        "max_wait": seconds(max_wait_ms / 1_000),
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": (part.FetchTopic(topic=topic, partitions=(ask,)),),
        "forgotten_topics_data": (),
        "rack_id": "",
        "cluster_id": None,
    }
