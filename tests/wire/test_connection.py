"""The byte stream of a client: however it is cut up, the same frames come out, answers keep their order."""

from __future__ import annotations

from struct import Struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.harness import PRODUCE, Harness, batch_of, decode_answer, request_frame
from tests.wire.requests import produce_values
from tidelog.base.limits import FRAME_GROWTH_SIZE
from tidelog.handlers.table import dispatch
from tidelog.protocol.connection import FRAME_SIZE_MIN, Connection, Slot
from tidelog.protocol.errors import MalformedRequest

_SIZE = Struct(">i")
FRAME_SIZE_MAX = 4 * FRAME_GROWTH_SIZE
FRAMES = st.lists(st.binary(min_size=FRAME_SIZE_MIN, max_size=40), max_size=12)


def stream_of(frames: list[bytes]) -> bytes:
    return b"".join(_SIZE.pack(len(frame)) + frame for frame in frames)


def feed(connection: Connection, data: bytes, shared: bytearray) -> list[bytes]:
    """Bring `data` in as a socket would: into the frame's own buffer where there is one, else the shared."""
    frames: list[bytes] = []
    while data:
        target = connection.receive_target()
        if target is not None:
            size = min(len(target), len(data))
            target[:size] = data[:size]
            frame = connection.received_in_target(size)
            frames += [] if frame is None else [bytes(frame)]
        else:
            size = min(len(shared), len(data))
            shared[:size] = data[:size]
            frames += map(bytes, connection.receive(memoryview(shared)[:size]))
            shared[:] = b"\xee" * len(shared)  # the next reader of the shared buffer overwrites it
        data = data[size:]
    return frames


@settings(max_examples=200, deadline=None)
@given(FRAMES, st.lists(st.integers(1, 30), min_size=1), st.integers(1, 64))
def test_any_splitting_of_a_stream_gives_the_same_frames(
    frames: list[bytes], sizes: list[int], shared_size: int
) -> None:
    connection = Connection(FRAME_SIZE_MAX)
    stream = stream_of(frames)
    shared = bytearray(shared_size)
    received: list[bytes] = []
    position = turn = 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        received += feed(connection, stream[position : position + size], shared)
        position += size
        turn += 1
    assert received == frames
    assert connection.buffered_size == 0


@pytest.mark.parametrize("size", [FRAME_GROWTH_SIZE - 4, FRAME_GROWTH_SIZE, 3 * FRAME_GROWTH_SIZE + 7])
def test_a_frame_larger_than_every_buffer_arrives_whole(size: int) -> None:
    connection = Connection(FRAME_SIZE_MAX)
    frame = bytes(range(256)) * (size // 256 + 1)
    frame = frame[:size]
    received = feed(connection, stream_of([frame, b"12345678"]), bytearray(100_000))
    assert received == [frame, b"12345678"]


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=20))
def test_sizes_outside_the_limits_are_refused(size: int, rest: bytes) -> None:
    connection = Connection(FRAME_SIZE_MAX)
    rest = rest[: max(size, 0)]  # what follows a whole frame is the size of the next
    data = memoryview(_SIZE.pack(size) + rest)
    if FRAME_SIZE_MIN <= size <= FRAME_SIZE_MAX:
        assert connection.receive(data) == ([rest[:size]] if size <= len(rest) else [])
    else:
        with pytest.raises(MalformedRequest):
            connection.receive(data)


class CountingMemory:
    """Keeps one buffer."""

    def __init__(self) -> None:
        self.allocated: list[int] = []
        self.kept: memoryview | None = None

    def spare(self, size: int) -> memoryview | None:
        buffer, self.kept = self.kept, None
        return buffer if buffer is not None and len(buffer) >= size else None

    def allocate(self, size: int) -> memoryview:
        self.allocated.append(size)
        return memoryview(bytearray(size))

    def give_back(self, buffer: memoryview) -> None:
        self.kept = buffer


def test_a_large_frame_gets_its_memory_in_one_go_and_leaves_it_to_the_next() -> None:
    memory = CountingMemory()
    connection = Connection(FRAME_SIZE_MAX, memory=memory)
    size = FRAME_SIZE_MAX - 1
    for number, smaller in enumerate((0, 0, 1_000)):
        frame = bytes([number]) * (size - smaller)
        assert feed(connection, stream_of([frame]), bytearray(100_000)) == [frame]
        connection.end_frame()
    assert memory.allocated == [size + 4]


def test_a_large_frame_gets_no_memory_before_its_first_part_has_come() -> None:
    memory, shared = CountingMemory(), bytearray(65_536)
    connection = Connection(FRAME_SIZE_MAX, memory=memory)
    feed(connection, _SIZE.pack(FRAME_SIZE_MAX) + bytes(FRAME_GROWTH_SIZE - 5), shared)
    assert memory.allocated == []
    feed(connection, bytes(2), shared)
    assert memory.allocated == [FRAME_SIZE_MAX + 4]


@settings(max_examples=50, deadline=None)
@given(st.integers(FRAME_SIZE_MIN, FRAME_SIZE_MAX), st.integers(1, 60_000), st.integers(1, 30))
def test_memory_is_bounded_by_what_arrived(size: int, piece: int, count: int) -> None:
    connection = Connection(FRAME_SIZE_MAX)
    shared = bytearray(65_536)
    arrived = 0
    feed(connection, _SIZE.pack(size), shared)
    for _ in range(count):
        wanted = min(piece, size - arrived)
        feed(connection, bytes(wanted), shared)
        arrived += wanted
        assert connection.buffered_size <= max(FRAME_GROWTH_SIZE, arrived + 4)


@given(st.lists(st.sampled_from(["answer", "hold", "none"]), max_size=30), st.randoms(use_true_random=False))
def test_answers_leave_in_order_whatever_the_order_of_fills(kinds: list[str], random: object) -> None:
    connection = Connection(FRAME_SIZE_MAX)
    held = []
    for number, kind in enumerate(kinds):
        answer = str(number).encode()
        if kind == "answer":
            connection.answer(answer)
        else:
            slot = Slot()
            connection.hold(slot)
            held.append((slot, answer if kind == "hold" else None))
    random.shuffle(held)  # type: ignore[attr-defined]
    for slot, filled in held:
        connection.fill(slot, filled)
        done = [int(bytes(answer)) for answer in connection.output if not isinstance(answer, list)]
        assert done == sorted(done)
    expected = [str(number).encode() for number, kind in enumerate(kinds) if kind != "none"]
    assert connection.output == expected
    assert len(connection.slots) == 0


def test_nothing_overtakes_a_held_request() -> None:
    connection = Connection(FRAME_SIZE_MAX)
    slot = Slot()
    connection.hold(slot)
    connection.answer(b"second")
    assert connection.output == []
    assert len(connection.slots) == 2
    connection.fill(slot, b"first")
    assert connection.output == [b"first", b"second"]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_produce_cut_inside_its_size_is_appended_and_answered(harness: Harness, size: int) -> None:
    """The broker stamps batches where they lie, so the memory of every frame must be writable."""
    harness.create_topic("t")
    values = produce_values(harness, 9, {"t": [(0, batch_of(3))]})
    stream = memoryview(bytearray(stream_of([request_frame(PRODUCE, 9, 1, **values)])))
    connection = harness.connection
    assert connection.receive(stream[:size]) == []
    assert connection.receive_target() is None, "the rest is read into the shared buffer"
    (frame,) = connection.receive(stream[size:])
    assert not frame.readonly
    dispatch(harness.broker, harness.client, frame)
    harness.settle()
    (answer,) = harness.answers()
    produced = decode_answer(PRODUCE, 9, answer, 1).responses[0].partition_responses[0]
    assert (produced.error_code, produced.base_offset) == (0, 0)
    assert harness.check_logs() == {"t-0": 3}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "a TLS handshake on a plaintext listener"),
        (b"GET /metrics HTTP/1.1\r\n", "an HTTP request on a Kafka listener"),
        (b"POST / HTTP/1.1\r\n", "an HTTP request on a Kafka listener"),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
    ],
)
def test_what_is_no_frame_is_called_by_its_name(data: bytes, what: str) -> None:
    with pytest.raises(MalformedRequest, match=what):
        Connection(FRAME_SIZE_MAX).receive(memoryview(data))
