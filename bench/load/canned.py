"""A broker that answers everything with the same bytes: what the client could reach against no work at all.

`python -m bench.load.canned FRAME_SIZE ANSWER` (the answer in hexadecimal) prints its port and answers each
FRAME_SIZE bytes that it receives, until its input ends. It is a process of its own, as a broker is.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.load.frames import ResponseLayout

ROOT = Path(__file__).resolve().parents[2]
RECEIVE_SIZE = 1 << 16


@contextmanager
def canned(frame_size: int, layout: ResponseLayout) -> Iterator[tuple[str, int]]:
    """The address of one that answers frames of that size with an answer of that layout, without error."""
    answer = (layout.size - 4).to_bytes(4, "big") + bytes(layout.size - 4)
    command = [sys.executable, "-m", "bench.load.canned", str(frame_size), answer.hex()]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield ("127.0.0.1", int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def serve(frame_size: int, answer: bytes) -> None:
    poll, listening = select.epoll(), socket.create_server(("127.0.0.1", 0), backlog=1_024)
    poll.register(listening.fileno(), select.EPOLLIN)
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    connections: dict[int, socket.socket] = {}
    partial: dict[int, int] = {}
    print(listening.getsockname()[1], flush=True)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == sys.stdin.fileno():
                return
            if descriptor == listening.fileno():
                accepted, _ = listening.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[accepted.fileno()], partial[accepted.fileno()] = accepted, 0
                poll.register(accepted.fileno(), select.EPOLLIN)
                continue
            received = len(connections[descriptor].recv(RECEIVE_SIZE))
            if not received:
                connections.pop(descriptor).close()
                continue
            count, partial[descriptor] = divmod(partial[descriptor] + received, frame_size)
            connections[descriptor].sendall(answer * count)


if __name__ == "__main__":
    serve(int(sys.argv[1]), bytes.fromhex(sys.argv[2]))
