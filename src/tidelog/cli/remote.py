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
from struct import Struct
from types import ModuleType, TracebackType
from typing import Any, Self

from kio.index import KioIndexError, load_payload_module, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

from tidelog.base.limits import COMMAND_ANSWER_SIZE_MAX
from tidelog.cli.addresses import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    split_address,
    unanswered,
    unreachable,
)
from tidelog.cli.failure import BadWord, Failure
from tidelog.client.spare import SpareBuffers
from tidelog.protocol.apis import API_VERSIONS, OFFSET_FETCH, Api
from tidelog.protocol.errors import ErrorCode, MalformedRequest
from tidelog.protocol.framing import ANSWER_SIZE_MIN, FrameCutter, read_frame
from tidelog.protocol.messages import make
from tidelog.protocol.wire import write_request_head

_SIZE = Struct(">i")
_ERROR = Struct(">h")
_CORRELATION_SIZE = 4
_API_VERSIONS_TRIED = (4, 3)  # 3 is from 2019; older brokers are not asked
_WRONG_WORDS = (
    ErrorCode.invalid_config,
    ErrorCode.invalid_request,
    ErrorCode.invalid_partitions,
    ErrorCode.invalid_topic_exception,
)
_NEWEST_ASKED = {OFFSET_FETCH.key: 9}  # 10 names topics by their ids alone


class RemoteBroker:
    """One connection to one broker."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._correlation_id = 0
        self._frames = FrameCutter(ANSWER_SIZE_MIN, COMMAND_ANSWER_SIZE_MAX, SpareBuffers())
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
        return api.key in self._ranges

    def types(self, api: Api) -> ModuleType:
        """The module whose classes a request of that API is made of."""
        return load_payload_module(api.key, self._version(api), EntityType.request)

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
        oldest, newest = self._ranges.get(api.key, (0, -1))
        newest = min(newest, _NEWEST_ASKED.get(api.key, newest))
        for version in range(newest, oldest - 1, -1):
            try:
                load_request_schema(api.key, version)
                return version
            except KioIndexError:
                continue
        raise Failure(f"the broker at {self.address} has no {api.name} that this command knows")

    def _ask_versions(self) -> Any:
        values = {"client_software_name": "tidelog", "client_software_version": "1"}
        for version in _API_VERSIONS_TRIED:
            body = self._exchange(API_VERSIONS, version, values)
            if _ERROR.unpack_from(body)[0] != ErrorCode.unsupported_version:
                return self._decode(API_VERSIONS, version, body)
        raise Failure(f"the broker at {self.address} is older than Kafka 2.4")

    def _exchange(self, api: Api, version: int, values: dict[str, Any]) -> bytes:
        """The body of the answer, without its header."""
        self._correlation_id += 1
        request = make(load_request_schema(api.key, version), **values)
        head = bytearray()
        write_request_head(head, api.key, version, self._correlation_id, "tidelog-cli", request.__flexible__)
        body = io.BytesIO()
        entity_writer(type(request))(body, request)
        frame = head + body.getvalue()
        _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)
        try:
            self._socket.sendall(frame)
            answer = bytes(read_frame(self._frames, self._read_into)[_CORRELATION_SIZE:])
        except MalformedRequest:
            raise Failure(f"what listens at {self.address} does not speak Kafka's protocol") from None
        except TimeoutError:
            raise unanswered(self.address) from None
        except OSError as error:
            raise unreachable(self.address, (error.strerror or "no answer").lower()) from None
        self._frames.end_frame()
        return answer

    def _read_into(self, view: memoryview) -> int:
        count = self._socket.recv_into(view)
        if not count:
            raise ConnectionResetError(0, "the connection was closed")
        return count

    def _decode(self, api: Api, version: int, body: bytes) -> Any:
        message = load_response_schema(api.key, version)
        tags_size = 1 if message.__flexible__ and api is not API_VERSIONS else 0
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
