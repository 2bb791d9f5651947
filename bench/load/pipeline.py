"""The load loop: frames encoded beforehand go out, fixed-size answers come in and are checked in bulk.

A `Lane` is one connection that keeps up to `window` requests unanswered. Frames are sent a chunk at a time
(one big frame, or many small ones in one write); answers are checked for size and error code by strided
slices, so a small request costs the client far less than a microsecond of Python.

**Invariant:** every answer is checked; the loop returns only when all that was sent has been answered.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.load.frames import ResponseLayout

RECEIVE_SIZE = 1 << 18
DISCARD_SIZE = 1 << 23
FETCH_PREFIX_SIZE = 15
STALL_SECONDS_MAX = 60.0
# Linux drops what is received from TCP with this flag, without copying it anywhere.
DISCARD_FLAG = socket.MSG_TRUNC


class BadAnswer(Exception):
    """A broker answered with an error, or with something of another size than asked for."""


@dataclass(frozen=True)
class Span:
    """What a run took: frames answered, seconds of the wall, seconds of the client's CPU."""

    frame_count: int
    seconds: float
    client_cpu_seconds: float

    @property
    def frames_per_second(self) -> float:
        return self.frame_count / self.seconds


class Lane:
    def __init__(
        self,
        address: tuple[str, int],
        chunks: Sequence[bytes],
        frames_per_chunk: int,
        window: int,
        layout: ResponseLayout,
    ) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.answered_count = 0
        self.sent_count = 0
        self.is_blocked = False
        self._chunks = [memoryview(chunk) for chunk in chunks]
        self._chunk_index = 0
        self.frames_per_chunk = frames_per_chunk
        self._window = window
        self._unsent = memoryview(b"")
        self._layout = layout
        self._buffer = bytearray(RECEIVE_SIZE)
        self._view = memoryview(self._buffer)
        self._filled = 0

    def send(self, frame_count_max: int) -> None:
        """Send while the window, the socket and `frame_count_max` allow."""
        self.is_blocked = False
        while True:
            if not self._unsent and not self._take_chunk(frame_count_max):
                return
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            except BlockingIOError:
                self.is_blocked = True
                return

    def _take_chunk(self, frame_count_max: int) -> bool:
        after = self.sent_count + self.frames_per_chunk
        if after > frame_count_max or after - self.answered_count > self._window:
            return False
        self._unsent = self._chunks[self._chunk_index]
        self._chunk_index = (self._chunk_index + 1) % len(self._chunks)
        self.sent_count = after
        return True

    def receive(self) -> None:
        received = self.socket.recv_into(self._view[self._filled :])
        if received == 0:
            raise ConnectionError("the broker closed the connection")
        self._filled += received
        complete = self._filled // self._layout.size
        if complete:
            self._check(complete)
            end = complete * self._layout.size
            rest = self._filled - end
            self._buffer[:rest] = self._buffer[end : self._filled]
            self._filled = rest
            self.answered_count += complete

    def _check(self, count: int) -> None:
        size, position = self._layout.size, self._layout.error_position
        view = self._view[: count * size]
        low_byte = (size - 4) & 0xFF
        if (
            bytes(view[3::size]).count(low_byte) != count
            or bytes(view[position::size]).count(0) != count
            or bytes(view[position + 1 :: size]).count(0) != count
        ):
            raise BadAnswer(f"expected {count} answers of {size} bytes without error: {bytes(view[:size])!r}")


class DiscardLane(Lane):
    """A lane for big answers of one size: looks at the first bytes of each and drops the rest unread."""

    _remaining = 0
    _discarded = bytearray(DISCARD_SIZE)

    def receive(self) -> None:
        try:
            while True:
                if self._remaining:
                    self._discard()
                else:
                    self._read_prefix()
        except BlockingIOError:
            return

    def _discard(self) -> None:
        wanted = min(self._remaining, DISCARD_SIZE)
        received = self.socket.recv_into(self._discarded, wanted, DISCARD_FLAG)
        if received == 0:
            raise ConnectionError("the broker closed the connection")
        self._remaining -= received
        if not self._remaining:
            self.answered_count += 1

    def _read_prefix(self) -> None:
        received = self.socket.recv_into(self._view[self._filled : FETCH_PREFIX_SIZE])
        if received == 0:
            raise ConnectionError("the broker closed the connection")
        self._filled += received
        if self._filled < FETCH_PREFIX_SIZE:
            return
        prefix = bytes(self._view[:FETCH_PREFIX_SIZE])
        position = self._layout.error_position
        size = int.from_bytes(prefix[:4], "big") + 4
        if size != self._layout.size or prefix[position : position + 2] != b"\x00\x00":
            raise BadAnswer(f"expected an answer of {self._layout.size} bytes without error: {prefix!r}")
        self._remaining = size - FETCH_PREFIX_SIZE
        self._filled = 0


def run(lanes: Sequence[Lane], *, frame_count: int | None = None, seconds: float | None = None) -> Span:
    """Send `frame_count` frames on each lane, or as many as `seconds` allow; wait for every answer."""
    poll = select.epoll()
    by_descriptor = {lane.socket.fileno(): lane for lane in lanes}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.EPOLLIN)
    assert frame_count is None or all(frame_count % lane.frames_per_chunk == 0 for lane in lanes)
    limit = frame_count if frame_count is not None else 1 << 62
    cpu_before, started = time.process_time(), time.perf_counter()
    deadline = started + seconds if seconds is not None else float("inf")
    try:
        for lane in lanes:
            _send(poll, lane, limit)
        while True:
            for descriptor, event in _wait(poll):
                lane = by_descriptor[descriptor]
                if event & ~select.EPOLLOUT:
                    lane.receive()
                _send(poll, lane, limit if time.perf_counter() < deadline else 0)
            if _is_done(lanes, limit if time.perf_counter() < deadline else 0):
                break
    finally:
        poll.close()
    elapsed, cpu = time.perf_counter() - started, time.process_time() - cpu_before
    return Span(sum(lane.answered_count for lane in lanes), elapsed, cpu)


def close(lanes: Sequence[Lane]) -> None:
    for lane in lanes:
        lane.socket.close()


def _is_done(lanes: Sequence[Lane], limit: int) -> bool:
    return all(lane.answered_count == lane.sent_count and lane.sent_count >= limit for lane in lanes)


def _wait(poll: select.epoll) -> list[tuple[int, int]]:
    events = poll.poll(STALL_SECONDS_MAX)
    if not events:
        raise BadAnswer(f"no answer for {STALL_SECONDS_MAX:.0f} s")
    return events


def _send(poll: select.epoll, lane: Lane, limit: int) -> None:
    was_blocked = lane.is_blocked
    lane.send(limit)
    if lane.is_blocked != was_blocked:
        interest = select.EPOLLIN | (select.EPOLLOUT if lane.is_blocked else 0)
        poll.modify(lane.socket.fileno(), interest)
