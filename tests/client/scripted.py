"""A broker that says what a test tells it to: a thread with a socket, and one function for each API.

A function gets what was `Asked` and returns the bytes to send, whole frames or not; `None` closes the
connection. ApiVersions and Metadata have answers of their own unless a test replaces them.

**Invariant:** after the `with` block there is no thread and no socket; what a function raised is raised.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Container
from datetime import timedelta
from struct import Struct
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import UUID

from tidelog.protocol import wire
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import decode_request, encode_response, make, response_type, response_types

_HEADER = Struct(">hhih")
_ZERO = timedelta(0)
FLEXIBLE = {0: 9, 1: 12, 2: 6, 3: 9, 8: 8, 9: 6, 10: 3, 17: 2, 18: 3, 22: 2, 32: 4, 36: 2, 60: 0}
VERSIONS = {
    0: (3, 12),
    1: (4, 17),
    2: (1, 10),
    3: (4, 12),
    8: (2, 9),
    9: (2, 9),
    10: (0, 6),
    18: (0, 4),
    22: (0, 5),
    32: (1, 4),
    60: (0, 1),
}
TOPIC = "told"
TOPIC_ID = bytes(range(16))


class Asked(NamedTuple):
    api_key: int
    version: int
    correlation: int
    data: memoryview
    position: int

    def decode(self) -> Any:
        return decode_request(self.api_key, self.version, self.data, self.position)

    def respond(self, **fields: Any) -> bytes:
        """A frame of the response with those fields."""
        response = make(
            response_type(self.api_key, self.version), **{"throttle_time": _ZERO} | _coded(fields)
        )
        return encode_response(self.api_key, self.version, self.correlation, response)

    def make(self, kind: str, **fields: Any) -> Any:
        return make(getattr(response_types(self.api_key, self.version), kind), **_coded(fields))


def _coded(fields: dict[str, Any]) -> dict[str, Any]:
    if "error_code" in fields:
        fields["error_code"] = ErrorCode(fields["error_code"])
    return fields


Answers = Callable[[Asked], bytes | None]


class ScriptedBroker:
    def __init__(self, **answers: Answers) -> None:
        """Answers by the name of the API: `fetch=…, list_offsets=…`."""
        self.versions = dict(VERSIONS)
        self.asked: list[Asked] = []
        self.connection_count = 0
        self.partition_count = 1
        self.leaderless: set[int] = set()
        self.topic_id = TOPIC_ID
        self._problems: list[BaseException] = []
        self._answers: dict[int, Answers] = {18: self.tell_versions, 3: self.tell_metadata}
        for name, answer in answers.items():
            self.answer(name, answer)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def answer(self, name: str, answer: Answers) -> None:
        self._answers[API_KEYS[name]] = answer

    def count(self, name: str) -> int:
        return sum(asked.api_key == API_KEYS[name] for asked in self.asked)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop_connections()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)
        if self._problems and error is None:
            raise self._problems[0]

    def drop_connections(self) -> None:
        for connection in self._sockets:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # closed already

    def tell_versions(self, asked: Asked) -> bytes:
        rows = [
            asked.make("ApiVersion", api_key=key, min_version=oldest, max_version=newest)
            for key, (oldest, newest) in self.versions.items()
        ]
        return asked.respond(error_code=0, api_keys=tuple(rows))

    def tell_metadata(self, asked: Asked) -> bytes:
        return tell_metadata(asked, self.port, self.partition_count, self.topic_id, self.leaderless)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connection_count += 1
            self._sockets.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while (frame := _read_frame(connection)) is not None:
                    asked = _parse(frame)
                    self.asked.append(asked)
                    reply = self._answers[asked.api_key](asked)
                    if reply is None:
                        return
                    connection.sendall(reply)
            except OSError:
                return
            except BaseException as problem:
                self._problems.append(problem)


API_KEYS = {
    "produce": 0,
    "fetch": 1,
    "list_offsets": 2,
    "metadata": 3,
    "offset_commit": 8,
    "offset_fetch": 9,
    "find_coordinator": 10,
    "sasl_handshake": 17,
    "api_versions": 18,
    "init_producer_id": 22,
    "describe_configs": 32,
    "sasl_authenticate": 36,
    "describe_cluster": 60,
}


def tell_metadata(
    asked: Asked, port: int, partition_count: int, topic_id: bytes, leaderless: Container[int] = ()
) -> bytes:
    broker = asked.make("MetadataResponseBroker", node_id=1, host="127.0.0.1", port=port, rack=None)
    partitions = tuple(
        asked.make(
            "MetadataResponsePartition",
            error_code=5 if index in leaderless else 0,
            partition_index=index,
            leader_id=-1 if index in leaderless else 1,
            leader_epoch=0,
            replica_nodes=(1,),
            isr_nodes=(1,),
            offline_replicas=(),
        )
        for index in range(partition_count)
    )
    wanted = asked.decode().topics
    names = [TOPIC] if wanted is None else [topic.name for topic in wanted]
    topics = tuple(
        asked.make(
            "MetadataResponseTopic",
            error_code=0 if name == TOPIC and partition_count else 3,
            name=name,
            topic_id=UUID(bytes=topic_id),
            is_internal=False,
            partitions=partitions if name == TOPIC else (),
        )
        for name in names
    )
    return asked.respond(brokers=(broker,), cluster_id="c", controller_id=1, topics=topics)


def _read_frame(connection: socket.socket) -> bytes | None:
    head = _read(connection, 4)
    return None if head is None else _read(connection, wire.INT32.unpack(head)[0])


def _read(connection: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return data


def _parse(frame: bytes) -> Asked:
    api_key, version, correlation, name_size = _HEADER.unpack_from(frame)
    position = _HEADER.size + max(name_size, 0)
    if version >= FLEXIBLE[api_key]:
        position = wire.skip_tagged_fields(frame, position)
    return Asked(api_key, version, correlation, memoryview(frame), position)
