"""Other people's connections, of one kind, in a process of their own.

`python -m bench.load.crowd KIND HOST PORT COUNT TOPIC` opens them, says that it is ready, and goes on until
its input ends. What it sends is paced, because the question is what many connections cost the others, not
who gets the processor.

| kind      | each of them                                                                  |
|-----------|-------------------------------------------------------------------------------|
| idle      | connects, asks for nothing                                                    |
| busy      | sends a record and waits for the answer, four times a second                  |
| slow      | asks for megabytes, again and again, and reads none of it                     |
| half-open | sends half a request and is never heard of again                              |
| storm     | connects and is gone (by RST) 50 ms later; then the next, a thousand a second |
| dripping  | sends a byte a second                                                         |
"""

from __future__ import annotations

import resource
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.load.batches import build_batch
from bench.load.frames import fetch_frame, produce_frame

Address = tuple[str, int]
ROOT = Path(__file__).resolve().parents[2]
BUSY_REQUESTS_PER_SECOND = 4
SLOW_FETCHES = 8
SLOW_FETCH_BYTES = 4 << 20
STORM_TICK_SECONDS = 0.05
DRIP_SECONDS = 1.0
_ABORTED = struct.pack("ii", 1, 0)


@contextmanager
def crowd(kind: str, address: Address, count: int, topic: str) -> Iterator[None]:
    """The others are there while the block runs."""
    command = [sys.executable, "-m", "bench.load.crowd", kind, address[0], str(address[1]), str(count), topic]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdin is not None and process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            raise ChildProcessError(f"the {kind} crowd did not come")
        yield
        if process.poll() is not None:
            raise ChildProcessError(f"the {kind} crowd left early, with {process.returncode}")
    finally:
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
        process.stdout.close()


def _connected(address: Address, count: int, receive_buffer: int = 0) -> list[socket.socket]:
    sockets = []
    for _ in range(count):
        opened = socket.socket()
        if receive_buffer:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        opened.connect(address)
        sockets.append(opened)
    return sockets


def _is_over(seconds: float) -> bool:
    """Wait that long, or until the input ends."""
    return bool(select.select([sys.stdin], [], [], max(seconds, 0))[0])


def _wait() -> None:
    print("ready", flush=True)
    while not _is_over(60):
        pass


def be_idle(address: Address, count: int, topic: str) -> None:
    kept = _connected(address, count)
    _wait()
    del kept


def be_busy(address: Address, count: int, topic: str) -> None:
    sockets = _connected(address, count)
    frame = produce_frame(topic, 0, build_batch(1, 100))
    poll = select.epoll()
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    by_descriptor = {opened.fileno(): opened for opened in sockets}
    for opened in sockets:
        opened.setblocking(False)
        poll.register(opened.fileno(), select.EPOLLIN)
    print("ready", flush=True)
    interval = 1 / (count * BUSY_REQUESTS_PER_SECOND)
    due, place = time.perf_counter(), 0
    while True:
        for descriptor, _ in poll.poll(max(due - time.perf_counter(), 0)):
            if descriptor not in by_descriptor:
                return
            by_descriptor[descriptor].recv(1 << 16)
        while time.perf_counter() >= due:
            sockets[place].send(frame)
            place = (place + 1) % count
            due += interval


def be_slow(address: Address, count: int, topic: str) -> None:
    frame = fetch_frame(topic, [0], SLOW_FETCH_BYTES)
    sockets = _connected(address, count, receive_buffer=4_096)
    for opened in sockets:
        opened.sendall(frame * SLOW_FETCHES)
    _wait()
    del sockets


def be_half_open(address: Address, count: int, topic: str) -> None:
    frame = produce_frame(topic, 0, build_batch(50, 200))
    sockets = _connected(address, count)
    for opened in sockets:
        opened.sendall(frame[: len(frame) // 2])
    _wait()
    del sockets


def be_a_storm(address: Address, count: int, topic: str) -> None:
    per_tick = max(int(count * STORM_TICK_SECONDS), 1)
    gone: list[socket.socket] = []
    print("ready", flush=True)
    due = time.perf_counter()
    while not _is_over(due - time.perf_counter()):
        due += STORM_TICK_SECONDS
        for opened in gone:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORTED)
            opened.close()
        gone = []
        for _ in range(per_tick):
            opened = socket.socket()
            opened.setblocking(False)
            opened.connect_ex(address)
            gone.append(opened)


def drip(address: Address, count: int, topic: str) -> None:
    frame = produce_frame(topic, 0, build_batch(1, 100))
    sockets = _connected(address, count)
    print("ready", flush=True)
    place = 0
    while not _is_over(DRIP_SECONDS):
        for opened in sockets:
            opened.sendall(frame[place : place + 1])
        place = (place + 1) % len(frame)


KINDS: dict[str, Callable[[Address, int, str], None]] = {
    "idle": be_idle,
    "busy": be_busy,
    "slow": be_slow,
    "half-open": be_half_open,
    "storm": be_a_storm,
    "dripping": drip,
}


def main() -> None:
    kind, host, port, count, topic = sys.argv[1:]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    KINDS[kind]((host, int(port)), int(count), topic)


if __name__ == "__main__":
    main()
