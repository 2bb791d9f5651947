"""One of the two brokers, as bytes on a socket: a frame goes out, a frame or a silence comes back.

**Invariant:** nothing here knows what a frame means; a connection that was closed or left without an
answer is never used again.
"""

from __future__ import annotations

import socket
from enum import Enum
from struct import Struct

ANSWER_SECONDS_MAX = 60.0
_SIZE = Struct(">i")


class Silence(Enum):
    """What came instead of an answer."""

    CLOSED = "closed"
    NO_ANSWER = "no answer"


Reply = bytes | Silence


class Side:
    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port
        self._socket: socket.socket | None = None

    def send(self, data: bytes) -> None:
        """Send bytes as they are, on the connection of the last request if it still stands."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS_MAX)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # `receive` will say so

    def receive(self, seconds_max: float = ANSWER_SECONDS_MAX) -> Reply:
        """The next frame without its size prefix."""
        assert self._socket is not None
        self._socket.settimeout(seconds_max)
        try:
            head = self._read(_SIZE.size)
            frame = self._read(_SIZE.unpack(head)[0]) if head is not None else None
        except TimeoutError:
            self.close()
            return Silence.NO_ANSWER
        except ConnectionResetError:
            frame = None
        if frame is None:
            self.close()
            return Silence.CLOSED
        return frame

    def _read(self, size: int) -> bytes | None:
        assert self._socket is not None
        read = bytearray()
        while len(read) < size:
            piece = self._socket.recv(size - len(read))
            if not piece:
                return None
            read += piece
        return bytes(read)

    def end_sending(self) -> None:
        """Tell the broker that nothing more comes; what it still says can be received."""
        assert self._socket is not None
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # closed by the broker already, which `receive` will say

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
