"""One request as its handler sees it, and what a handler may return.

**Invariant:** `data` is valid only while the handler runs; what is kept for later is copied out of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tidelog.broker.broker import Broker
from tidelog.broker.clients import Client
from tidelog.broker.waiting import Parked
from tidelog.protocol.connection import Answer
from tidelog.protocol.messages import decode_request, encode_response, make, response_type, response_types

NO_THROTTLE = timedelta(0)

_CLIENT_ID_SIZE_POSITION, _CLIENT_ID_POSITION = 8, 10


class Request:
    __slots__ = ("api_key", "client", "correlation_id", "data", "position", "version")

    def __init__(
        self,
        client: Client,
        api_key: int,
        version: int,
        correlation_id: int,
        data: memoryview,
        position: int,
    ) -> None:
        self.client = client
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.data = data
        self.position = position  # where the body begins

    @property
    def client_id(self) -> str | None:
        """The client's name for itself, read from the header when somebody asks."""
        size = int.from_bytes(self.data[_CLIENT_ID_SIZE_POSITION:_CLIENT_ID_POSITION], "big", signed=True)
        if size < 0:
            return None
        text = bytes(self.data[_CLIENT_ID_POSITION : _CLIENT_ID_POSITION + size])
        return text.decode("utf-8", "replace")

    def decode(self) -> Any:
        return decode_request(self.api_key, self.version, self.data, self.position)

    def make(self, part: str, /, **values: Any) -> Any:
        """A part of the response, by the name its class has in Kafka's schema."""
        return make(getattr(response_types(self.api_key, self.version), part), **values)

    def respond(self, **values: Any) -> bytes:
        """The whole frame of the answer, with the client's throttle time."""
        throttle_time_ms = self.client.throttle_time_ms
        values["throttle_time"] = (
            timedelta(milliseconds=throttle_time_ms) if throttle_time_ms else NO_THROTTLE
        )
        response = make(response_type(self.api_key, self.version), **values)
        return encode_response(self.api_key, self.version, self.correlation_id, response)


# The answer, None if the client wants none, or a request to park.
Result = Answer | Parked | None
Handler = Callable[[Broker, Request], Result]
