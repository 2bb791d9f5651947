"""Memory of large frames is kept for the next one, within its bound and while frames keep coming."""

from __future__ import annotations

import os

from tests.server.wire_client import WireClient
from tests.wire.harness import batch_of
from tidelog.base.limits import FRAME_BUFFERS_KEPT_SIZE, MIB
from tidelog.server.buffers import FrameBuffers
from tidelog.testing import Broker


def test_a_served_buffer_is_kept_for_a_frame_that_fits() -> None:
    buffers = FrameBuffers()
    buffer = buffers.allocate(3 * MIB)
    buffers.give_back(buffer)
    assert buffers.spare(4 * MIB) is None
    assert buffers.allocate(2 * MIB) is buffer
    assert buffers.spare(2 * MIB) is None, "it is in use"


def test_what_is_kept_has_a_bound() -> None:
    buffers = FrameBuffers()
    half = FRAME_BUFFERS_KEPT_SIZE // 2
    taken = [buffers.allocate(half) for _ in range(3)]
    for buffer in taken:
        buffers.give_back(buffer)
    buffers.give_back(buffers.allocate(FRAME_BUFFERS_KEPT_SIZE + 1))
    kept = [buffers.spare(2 * MIB) for _ in range(3)]
    assert [buffer is not None for buffer in kept] == [True, True, False]
    assert all(buffer is not taken[0] for buffer in kept), "the oldest goes first"


def test_nothing_is_kept_while_nobody_sends_large_frames() -> None:
    buffers = FrameBuffers()
    buffers.give_back(buffers.allocate(2 * MIB))
    buffers.age()
    kept = buffers.spare(2 * MIB)
    assert kept is not None, "it was used since"
    buffers.give_back(kept)
    buffers.age()
    buffers.age()
    assert buffers.spare(2 * MIB) is None


def test_large_records_in_the_same_memory_arrive_as_they_were_sent() -> None:
    with Broker(message_max_bytes=8 * MIB) as broker, WireClient(broker.port) as client:
        client.create_topic("t")
        values = [os.urandom(size) for size in (5 * MIB, 3 * MIB, 6 * MIB)]
        for offset, value in enumerate(values):
            client.produce("t", batch_of(value=value))
            assert value in client.fetch("t", offset).records
