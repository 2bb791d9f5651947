"""A request in an envelope: what one broker hands to another, and for whom (KIP-590).

The request goes as its client has sent it, beside the client's principal and address. Unlike Kafka's, the
answer has no envelope: it is that of the request, under the envelope's number.

**Invariant:** a request without a principal is a broker's own.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.files import Buffer
from tidelog.protocol.apis import ENVELOPE_KEY
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.messages import decode_request, encode_request, request_types

_VERSION = 0
_CLIENT_ID = "tidelog"


class Envelope(NamedTuple):
    frame: bytes  # without its size
    principal: str | None
    address: str


def seal(frame: Buffer, principal: str | None = None, address: str = "") -> bytes:
    """The frame of the envelope, without its size."""
    request = request_types(ENVELOPE_KEY, _VERSION).EnvelopeRequest(
        request_data=bytes(frame),
        request_principal=None if principal is None else principal.encode(),
        client_host_address=address.encode(),
    )
    return encode_request(ENVELOPE_KEY, _VERSION, _CLIENT_ID, request)


def open_envelope(frame: memoryview, version: int, position: int) -> Envelope:
    if version != _VERSION:
        raise MalformedRequest(f"version {version} of an envelope")
    found = decode_request(ENVELOPE_KEY, version, frame, position)
    principal = found.request_principal
    return Envelope(
        found.request_data,
        None if principal is None else principal.decode("utf-8", "replace"),
        found.client_host_address.decode("utf-8", "replace"),
    )
