"""One request at a time on one connection: what a caller that waits for each answer sees."""

from __future__ import annotations

import socket
import time

from bench.load.admin import receive_exactly
from bench.load.frames import ResponseLayout
from bench.load.pipeline import BadAnswer


class Caller:
    def __init__(self, address: tuple[str, int], frame: bytes, layout: ResponseLayout) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frame = frame
        self._layout = layout

    def latencies(self, count: int) -> list[int]:
        """Nanoseconds from before the send to after the answer, for each of `count` requests."""
        clock, send, receive = time.perf_counter_ns, self._socket.sendall, self._socket.recv
        frame, size = self._frame, self._layout.size
        taken = []
        for _ in range(count):
            started = clock()
            send(frame)
            answer = receive(size)
            if len(answer) != size:
                answer += receive_exactly(self._socket, size - len(answer))
            taken.append(clock() - started)
            self._check(answer)
        return taken

    def _check(self, answer: bytes) -> None:
        position = self._layout.error_position
        if answer[position : position + 2] != b"\x00\x00":
            raise BadAnswer(f"an answer with an error: {answer!r}")

    def close(self) -> None:
        self._socket.close()
