"""Frames for a reader that waits for one: nothing is read beyond it, and nothing is believed too early."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.base.limits import FRAME_GROWTH_SIZE
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.framing import ANSWER_SIZE_MIN, FrameCutter, PlainMemory, read_frame

SIZE_MAX = 4 * FRAME_GROWTH_SIZE


class Stream:
    """Gives its bytes in pieces of these sizes, in turn."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.rest = data
        self._sizes = sizes
        self._count = 0

    def read_into(self, view: memoryview) -> int:
        size = min(len(view), self._sizes[self._count % len(self._sizes)])
        self._count += 1
        piece, self.rest = self.rest[:size], self.rest[size:]
        if not piece:
            raise EOFError
        view[: len(piece)] = piece
        return len(piece)


def stream_of(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.binary(min_size=ANSWER_SIZE_MIN, max_size=40), min_size=1, max_size=5),
    st.lists(st.integers(1, 20), min_size=1, max_size=5),
)
def test_each_frame_is_read_to_its_end_and_no_further(frames: list[bytes], sizes: list[int]) -> None:
    stream, cutter = Stream(stream_of(*frames), sizes), FrameCutter(ANSWER_SIZE_MIN, SIZE_MAX)
    for place, frame in enumerate(frames, 1):
        assert bytes(read_frame(cutter, stream.read_into)) == frame
        assert stream.rest == stream_of(*frames[place:])


class RoomyMemory(PlainMemory):
    """Has a buffer at hand that is larger than any frame."""

    def spare(self, size: int) -> memoryview | None:
        return memoryview(bytearray(2 * size))


def test_a_buffer_with_room_to_spare_gets_no_more_than_the_frame() -> None:
    stream = Stream(stream_of(b"first", b"second"), [100])
    cutter = FrameCutter(ANSWER_SIZE_MIN, SIZE_MAX, RoomyMemory())
    assert bytes(read_frame(cutter, stream.read_into)) == b"first"
    assert stream.rest == stream_of(b"second")


@pytest.mark.parametrize("size", [FRAME_GROWTH_SIZE - 4, FRAME_GROWTH_SIZE, 2 * FRAME_GROWTH_SIZE + 7])
def test_a_large_frame_is_read_whole(size: int) -> None:
    frame = (bytes(range(251)) * (size // 251 + 1))[:size]
    stream, cutter = Stream(stream_of(frame, b"next"), [65_536]), FrameCutter(ANSWER_SIZE_MIN, SIZE_MAX)
    assert bytes(read_frame(cutter, stream.read_into)) == frame
    assert bytes(read_frame(cutter, stream.read_into)) == b"next"


@pytest.mark.parametrize("size", [-1, 0, ANSWER_SIZE_MIN - 1, SIZE_MAX + 1])
def test_a_size_that_no_frame_has_is_named(size: int) -> None:
    stream = Stream(size.to_bytes(4, "big", signed=True), [4])
    with pytest.raises(MalformedRequest, match=f"a frame of {size} bytes"):
        read_frame(FrameCutter(ANSWER_SIZE_MIN, SIZE_MAX), stream.read_into)


def test_an_announced_size_takes_no_memory() -> None:
    cutter = FrameCutter(ANSWER_SIZE_MIN, 1 << 30)
    stream = Stream((1 << 30).to_bytes(4, "big") + bytes(1_000), [1_000])
    with pytest.raises(EOFError):
        read_frame(cutter, stream.read_into)
    assert cutter.partial is not None and len(cutter.partial) == FRAME_GROWTH_SIZE
