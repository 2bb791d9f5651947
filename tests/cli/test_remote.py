"""Requests of commands: what was answered takes no memory once it is decoded."""

from __future__ import annotations

from weakref import ref

import pytest

from tidelog.cli.remote import RemoteBroker
from tidelog.client.spare import SpareBuffers
from tidelog.testing import Broker


def test_the_memory_of_a_large_answer_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.protocol.framing.FRAME_GROWTH_SIZE", 64)
    allocate = SpareBuffers.allocate
    allocated: list[ref[memoryview]] = []

    def recorded_allocate(buffers: SpareBuffers, size: int) -> memoryview:
        buffer = allocate(buffers, size)
        allocated.append(ref(buffer))
        return buffer

    with Broker() as broker:
        monkeypatch.setattr(SpareBuffers, "allocate", recorded_allocate)
        with RemoteBroker(f"127.0.0.1:{broker.port}"):
            assert [buffer() for buffer in allocated] == [None]
