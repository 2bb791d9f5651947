"""What is fuzzed: functions that take any bytes and raise nothing but an AssertionError of their own.

| target     | the bytes are                                                                           |
|------------|-----------------------------------------------------------------------------------------|
| connection | one that says how to cut up the rest, which is a client's stream                        |
| request    | a frame without its size prefix, served by a whole broker                               |
| batch      | one that picks a topic and whether the checksum is made to fit, then a batch to append  |
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.wire.batches import with_crc
from tests.wire.harness import FRAME_SIZE_MAX, START_MS, Harness
from tidelog.protocol.connection import Connection
from tidelog.protocol.errors import MalformedRequest, RefusedBatch

TOPICS = ("t", "compacted", "squeezed")
LIVES = 5_000  # inputs after which the log is checked and a new broker takes over
STREAM_FRAME_SIZE_MAX = 1_000


def fuzz_connection(data: bytes) -> None:
    if not data:
        return
    whole = _frames_of(data[1:], len(data))
    assert _frames_of(data[1:], data[0] % 16 + 1) == whole


def _frames_of(stream: bytes, piece_size: int) -> list[bytes | None]:
    """The frames in a stream that arrives in such pieces; None at the end if it was refused."""
    connection = Connection(STREAM_FRAME_SIZE_MAX)
    frames: list[bytes | None] = []
    position = 0
    try:
        while position < len(stream):
            target = connection.receive_target()
            if target is None:
                piece = stream[position : position + piece_size]
                frames += map(bytes, connection.receive(memoryview(piece)))
                position += len(piece)
            else:
                piece = stream[position : position + min(piece_size, len(target))]
                target[: len(piece)] = piece
                frame = connection.received_in_target(len(piece))
                frames += [] if frame is None else [bytes(frame)]
                position += len(piece)
            assert connection.buffered_size <= STREAM_FRAME_SIZE_MAX + 4
    except MalformedRequest:
        frames = _before_refusal(stream)
    return frames


def _before_refusal(stream: bytes) -> list[bytes | None]:
    """A stream that is refused in the end may have given up to all frames before it, by how it was cut."""
    frames: list[bytes | None] = []
    position = 0
    while 8 <= (size := int.from_bytes(stream[position : position + 4], "big")) <= STREAM_FRAME_SIZE_MAX:
        frames.append(stream[position + 4 : position + 4 + size])
        position += 4 + size
    return [*frames, None]


class Life:
    """A broker that serves some thousands of inputs, then is checked and replaced."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tidelog-fuzz-")
        self.harness = Harness(Path(self._folder.name), auto_create_topics_enable="false")
        self.harness.create_topic("t", partitions=2, segment_bytes="65536")
        self.harness.create_topic("compacted", cleanup_policy="compact")
        self.harness.create_topic("squeezed", compression_type="lz4")
        self.harness.holds_store = True  # no input may make ten thousand folders
        self._left = LIVES

    @property
    def is_over(self) -> bool:
        self._left -= 1
        return self._left < 0

    def end(self) -> None:
        self.harness.check_logs()
        self._folder.cleanup()


_life: Life | None = None


def _broker() -> Harness:
    global _life  # noqa: PLW0603  the fuzzer calls a function and nothing else
    if _life is not None and _life.is_over:
        _life.end()
        _life = None
    _life = _life or Life()
    return _life.harness


def fuzz_request(data: bytes) -> None:
    harness = _broker()
    try:
        harness.send_frame(data)
        harness.answers()
    except MalformedRequest:
        harness.broker.waiting.drop(harness.connection)
        harness.answers()
        harness.connection = Connection(FRAME_SIZE_MAX)
    harness.held_requests.clear()
    if harness.broker.waiting.count > 50:
        harness.advance(5 * 60 * 1_000)
        harness.answers()


def fuzz_batch(data: bytes) -> None:
    if not data:
        return
    partition = _broker().partition(TOPICS[data[0] % 3])
    batch = bytearray(data[1:])
    if data[0] & 0x80:
        with_crc(batch)
    end_offset = partition.log.end_offset
    try:
        appended = partition.append(memoryview(batch), 0, len(batch), START_MS)
    except RefusedBatch:
        assert partition.log.end_offset == end_offset
        return
    assert appended.is_duplicate or appended.base_offset == end_offset


def check_what_is_left() -> None:
    """The logs that the inputs so far have left behind are whole."""
    global _life  # noqa: PLW0603
    if _life is not None:
        _life.end()
        _life = None


TARGETS: dict[str, Callable[[bytes], None]] = {
    "connection": fuzz_connection,
    "request": fuzz_request,
    "batch": fuzz_batch,
}
