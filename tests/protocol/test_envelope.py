"""Requests in envelopes: what is sealed is opened as it was, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.apis import ENVELOPE_KEY
from tidelog.protocol.envelope import Envelope, open_envelope, seal
from tidelog.protocol.errors import MalformedRequest

_HEADER_SIZE = 8 + 2 + len("tidelog") + 1  # up to the body: numbers, client id, tags


@given(st.binary(max_size=300), st.none() | st.text(max_size=20), st.text(max_size=20))
def test_a_request_comes_out_as_it_went_in(frame: bytes, principal: str | None, address: str) -> None:
    sealed = seal(frame, principal, address)
    assert int.from_bytes(sealed[:2], "big") == ENVELOPE_KEY
    assert open_envelope(memoryview(sealed), 0, _HEADER_SIZE) == Envelope(frame, principal, address)


@pytest.mark.parametrize("size", [0, 1, 5, 30])
def test_an_envelope_that_is_cut_off_is_malformed(size: int) -> None:
    sealed = seal(b"x" * 40, "User:ann", "10.0.0.1")
    with pytest.raises(MalformedRequest):
        open_envelope(memoryview(sealed)[: _HEADER_SIZE + size], 0, _HEADER_SIZE)


def test_an_envelope_of_another_version_is_malformed() -> None:
    with pytest.raises(MalformedRequest, match="version 1"):
        open_envelope(memoryview(seal(b"")), 1, _HEADER_SIZE)
