"""One request and how its answer is read: what a connection sends and receives.

`KioExchange` serves every API whose messages kio knows: `build` makes the request from the classes of the
version that the broker and we have in common.

**Invariant:** an answer is measured before kio decodes it; what cannot be decoded is a `MalformedRequest`.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeVar

from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

from tidelog.base.files import Buffer
from tidelog.protocol import wire
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.messages import response_type
from tidelog.protocol.shape import Measure, check_shape


class Api(NamedTuple):
    """An API and the versions of it that we speak; `flexible` is the first with tagged fields."""

    key: int
    name: str
    oldest: int
    newest: int
    flexible: int


PRODUCE = Api(0, "Produce", 3, 12, 9)
FETCH = Api(1, "Fetch", 4, 17, 12)
LIST_OFFSETS = Api(2, "ListOffsets", 1, 10, 6)
METADATA = Api(3, "Metadata", 4, 13, 9)
OFFSET_COMMIT = Api(8, "OffsetCommit", 2, 9, 8)  # 10 names topics by id
OFFSET_FETCH = Api(9, "OffsetFetch", 2, 9, 6)
FIND_COORDINATOR = Api(10, "FindCoordinator", 0, 6, 3)
SASL_HANDSHAKE = Api(17, "SaslHandshake", 1, 1, 2)
API_VERSIONS = Api(18, "ApiVersions", 0, 4, 3)
INIT_PRODUCER_ID = Api(22, "InitProducerId", 0, 5, 2)
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", 1, 4, 4)
SASL_AUTHENTICATE = Api(36, "SaslAuthenticate", 0, 2, 2)

Answer = TypeVar("Answer", covariant=True)


class Exchange(Protocol[Answer]):
    @property
    def api(self) -> Api: ...

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
        """The whole frame, from its size prefix on, in pieces."""

    def decode(self, data: memoryview, position: int, version: int) -> Answer:
        """The answer whose body begins at `position` and ends where `data` ends."""


class KioExchange:
    def __init__(self, api: Api, build: Callable[[ModuleType], Any]) -> None:
        self.api = api
        self._build = build

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
        out = bytearray()
        flexible = version >= self.api.flexible
        wire.write_request_head(out, self.api.key, version, correlation_id, client_id, flexible)
        request = self._build(_request_types(self.api.key, version))
        body = io.BytesIO()
        entity_writer(type(request))(body, request)
        out += body.getbuffer()
        wire.INT32.pack_into(out, 0, len(out) - 4)
        return [out]

    def decode(self, data: memoryview, position: int, version: int) -> Any:
        message = response_type(self.api.key, version)
        body = bytes(data[position:])
        measure = Measure()
        check_shape(message, body, 0, measure)
        try:
            return entity_reader(message)(measure.apply_cuts(body), 0)[0]
        except (SerialError, ValueError, TypeError, OverflowError) as error:
            raise MalformedRequest(f"{message.__name__}: {error}") from None


@cache
def _request_types(api_key: int, version: int) -> ModuleType:
    return load_payload_module(api_key, version, EntityType.request)
