"""One request and the decoder of its answer: what a connection sends and receives.

`KioExchange` serves every API whose messages kio knows: `build` makes the request from the classes of the
newest version that both the broker and this client support.

**Invariant:** an answer is measured before kio decodes it; malformed bytes are a `MalformedRequest`.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, Protocol, TypeVar

from kio.index import load_payload_module
from kio.serial import entity_writer
from kio.static.constants import EntityType

from tidelog.base.files import Buffer
from tidelog.protocol import apis, wire
from tidelog.protocol.apis import Api
from tidelog.protocol.messages import decode_response

# The versions that this client has. Newer ones of Produce, OffsetCommit and OffsetFetch name topics by id.
PRODUCE = apis.PRODUCE.narrowed(3, 12)
FETCH = apis.FETCH.narrowed(4, 17)
LIST_OFFSETS = apis.LIST_OFFSETS.narrowed(1, 10)
METADATA = apis.METADATA.narrowed(4, 13)
OFFSET_COMMIT = apis.OFFSET_COMMIT.narrowed(2, 9)
OFFSET_FETCH = apis.OFFSET_FETCH.narrowed(2, 9)
FIND_COORDINATOR = apis.FIND_COORDINATOR.narrowed(0, 6)
API_VERSIONS = apis.API_VERSIONS.narrowed(0, 4)
INIT_PRODUCER_ID = apis.INIT_PRODUCER_ID.narrowed(0, 5)
# Transactions: only the versions of KIP-890, whose epoch rises with each transaction.
TRANSACTIONAL_PRODUCE = apis.PRODUCE.narrowed(12, 12)
FIND_COORDINATORS = apis.FIND_COORDINATOR.narrowed(4, 6)
END_TXN = apis.END_TXN.narrowed(5, 5)
TXN_OFFSET_COMMIT = apis.TXN_OFFSET_COMMIT.narrowed(5, 5)
STABLE_OFFSET_FETCH = apis.OFFSET_FETCH.narrowed(8, 9)
DESCRIBE_TRANSACTIONS = apis.DESCRIBE_TRANSACTIONS
LIST_TRANSACTIONS = apis.LIST_TRANSACTIONS.narrowed(1, 2)
DESCRIBE_CONFIGS = apis.DESCRIBE_CONFIGS.narrowed(1, 4)
SASL_HANDSHAKE = apis.SASL_HANDSHAKE
SASL_AUTHENTICATE = apis.SASL_AUTHENTICATE

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
        flexible = version >= self.api.flexible_version
        wire.write_request_head(out, self.api.key, version, correlation_id, client_id, flexible)
        request = self._build(_request_types(self.api.key, version))
        body = io.BytesIO()
        entity_writer(type(request))(body, request)
        out += body.getbuffer()
        wire.INT32.pack_into(out, 0, len(out) - 4)
        return [out]

    def decode(self, data: memoryview, position: int, version: int) -> Any:
        return decode_response(self.api.key, version, data, position)


@cache
def _request_types(api_key: int, version: int) -> ModuleType:
    return load_payload_module(api_key, version, EntityType.request)
