"""A broker at the other end of a socket, asked with plain messages.

For what confluent-kafka's AdminClient has no call for: types and documentation of settings, settings of
client-metrics and groups, log directories, finalized features, many groups at once, eligible leader
replicas, replicas that move. Everything else goes through librdkafka.

**Invariant:** a request is in the newest version that both sides know; a broker that does not answer is
named once, by its address.
"""

from __future__ import annotations

import io
import socket
from enum import IntEnum
from struct import Struct
from types import ModuleType, TracebackType
from typing import Any, Self

from kio.index import KioIndexError, load_payload_module, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

from tidelog.cli.addresses import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    split_address,
    unanswered,
    unreachable,
)
from tidelog.cli.failure import BadWord, Failure
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import make
from tidelog.protocol.wire import write_request_head

_SIZE = Struct(">i")
_ERROR = Struct(">h")
_CORRELATION_SIZE = 4
_API_VERSIONS_TRIED = (4, 3)  # 3 is from 2019; older brokers are not asked
_ANSWER_SIZE_MAX = 256 * 1024 * 1024
_WRONG_WORDS = (
    ErrorCode.invalid_config,
    ErrorCode.invalid_request,
    ErrorCode.invalid_partitions,
    ErrorCode.invalid_topic_exception,
)


class Api(IntEnum):
    """The calls that are made here, by their keys in the protocol."""

    METADATA = 3
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    DESCRIBE_CONFIGS = 32
    DESCRIBE_LOG_DIRS = 35
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    UNREGISTER_BROKER = 64
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


_NEWEST_ASKED = {Api.OFFSET_FETCH: 9}  # 10 names topics by their ids alone


class RemoteBroker:
    """One connection to one broker."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection(split_address(address), CONNECT_TIMEOUT_S)
        except OSError as error:
            raise unreachable(address, (error.strerror or "timed out").lower()) from None
        self._socket.settimeout(ANSWER_TIMEOUT_S)
        self.versions = self._ask_versions()
        self._ranges: dict[int, tuple[int, int]] = {
            api.api_key: (api.min_version, api.max_version) for api in self.versions.api_keys
        }

    def serves(self, api: Api) -> bool:
        return api in self._ranges

    def types(self, api: Api) -> ModuleType:
        """The module whose classes a request of that API is made of."""
        return load_payload_module(api, self._version(api), EntityType.request)

    def ask(self, api: Api, **values: Any) -> Any:
        """The answer to a request with those of the values that its version has."""
        version = self._version(api)
        return self._decode(api, version, self._exchange(api, version, values))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _version(self, api: Api) -> int:
        oldest, newest = self._ranges.get(api, (0, -1))
        newest = min(newest, _NEWEST_ASKED.get(api, newest))
        for version in range(newest, oldest - 1, -1):
            try:
                load_request_schema(api, version)
                return version
            except KioIndexError:
                continue
        name = "".join(word.capitalize() for word in api.name.split("_"))
        raise Failure(f"the broker at {self.address} has no {name} that this command knows")

    def _ask_versions(self) -> Any:
        values = {"client_software_name": "tidelog", "client_software_version": "1"}
        for version in _API_VERSIONS_TRIED:
            body = self._exchange(Api.API_VERSIONS, version, values)
            if _ERROR.unpack_from(body)[0] != ErrorCode.unsupported_version:
                return self._decode(Api.API_VERSIONS, version, body)
        raise Failure(f"the broker at {self.address} is older than Kafka 2.4")

    def _exchange(self, api: Api, version: int, values: dict[str, Any]) -> bytes:
        """The body of the answer, without its header."""
        self._correlation_id += 1
        request = make(load_request_schema(api, version), **values)
        head = bytearray()
        write_request_head(head, api, version, self._correlation_id, "tidelog-cli", request.__flexible__)
        body = io.BytesIO()
        entity_writer(type(request))(body, request)
        frame = head + body.getvalue()
        _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)
        try:
            self._socket.sendall(frame)
            return self._receive(_SIZE.unpack(self._receive(_SIZE.size))[0])[_CORRELATION_SIZE:]
        except TimeoutError:
            raise unanswered(self.address) from None
        except OSError as error:
            raise unreachable(self.address, (error.strerror or "no answer").lower()) from None

    def _receive(self, size: int) -> bytes:
        if not 0 <= size <= _ANSWER_SIZE_MAX:
            raise Failure(f"what listens at {self.address} does not speak Kafka's protocol")
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(min(size - len(received), 1 << 20))
            if not piece:
                raise ConnectionResetError(0, "the connection was closed")
            received += piece
        return bytes(received)

    def _decode(self, api: Api, version: int, body: bytes) -> Any:
        message = load_response_schema(api, version)
        tags_size = 1 if message.__flexible__ and api is not Api.API_VERSIONS else 0
        try:
            return entity_reader(message)(body, tags_size)[0]
        except (SerialError, ValueError, TypeError, IndexError) as error:
            raise Failure(f"the answer of {self.address} cannot be read: {error}") from None


def check(what: str, error_code: ErrorCode, message: str | None) -> None:
    """Raise the failure that an error in an answer means."""
    if error_code is ErrorCode.none:
        return
    reason = (message or error_code.name.replace("_", " ")).rstrip(".")
    raise (BadWord if error_code in _WRONG_WORDS else Failure)(f"{what}: {reason}")


def open_any(bootstrap_server: str) -> RemoteBroker:
    """The first broker of the list that answers."""
    failure: Failure | None = None
    for address in bootstrap_server.split(","):
        try:
            return RemoteBroker(address.strip())
        except BadWord:
            raise
        except Failure as error:
            failure = error
    assert failure is not None, "a split has at least one part"
    raise failure
