"""A client that sends more than its quota, in a process of its own."""

from __future__ import annotations

import multiprocessing
import socket
import time
from multiprocessing.connection import Connection

from bench.load.admin import receive_exactly
from bench.load.frames import ResponseLayout


def over(
    address: tuple[str, int], frame: bytes, layout: ResponseLayout, interval_s: float, seconds: float
) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    """Start to send this frame at that interval, or as fast as it is answered. The connection brings the
    seconds after the start at which each answer came."""
    told, tell = multiprocessing.Pipe(duplex=False)
    arguments = (address, frame, layout, interval_s, seconds, tell)
    process = multiprocessing.get_context("fork").Process(target=_send, args=arguments, daemon=True)
    process.start()
    tell.close()
    return process, told


def _send(
    address: tuple[str, int],
    frame: bytes,
    layout: ResponseLayout,
    interval_s: float,
    seconds: float,
    tell: Connection,
) -> None:
    came: list[float] = []
    with socket.create_connection(address) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begun = time.monotonic()
        due = begun
        while due < begun + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            sock.settimeout(max(begun + seconds - time.monotonic(), 0.01))
            try:
                sock.sendall(frame)
                answer = receive_exactly(sock, layout.size)
            except TimeoutError:
                break
            assert not any(answer[layout.error_position : layout.error_position + 2]), answer
            came.append(time.monotonic() - begun)
            due = max(due + interval_s, time.monotonic())
    tell.send(came)
    tell.close()
