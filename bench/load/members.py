"""Members of a group that act at once: each has a connection, and at most one request on its way.

A `Table` loops over the answers as they come and hands each to its member; what a member does next is the
protocol's, in `classic_members` and `consumer_members`.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from bench.load.pipeline import STALL_SECONDS_MAX, BadAnswer, Span

Address = tuple[str, int]
RECEIVE_SIZE = 1 << 16


class Member:
    """One connection; `is_waiting` while an answer is due."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.is_waiting = False
        self._received = b""

    def send(self, frame: bytes) -> None:
        assert not self.is_waiting
        self.is_waiting = True
        self.socket.sendall(frame)

    def receive(self) -> bytes | None:
        """The whole answer, or nothing while some of it is on its way."""
        received = self.socket.recv(RECEIVE_SIZE)
        if not received:
            raise ConnectionError("the broker closed the connection")
        self._received += received
        answer = self._received
        if len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            return None
        self._received = b""
        self.is_waiting = False
        return answer

    def close(self) -> None:
        self.socket.close()


class Stopwatch:
    """What one event took, of the wall and of the client's CPU."""

    def __init__(self) -> None:
        self._cpu, self._started = time.process_time(), time.perf_counter()

    def read(self) -> Span:
        elapsed = time.perf_counter() - self._started
        return Span(1, elapsed, time.process_time() - self._cpu)


Kind = TypeVar("Kind", bound=Member)


class Table(Generic[Kind]):
    """The members that sit around one poll."""

    def __init__(self, members: Sequence[Kind] = ()) -> None:
        self._poll = select.epoll()
        self.members: list[Kind] = []
        self._by_descriptor: dict[int, Kind] = {}
        for member in members:
            self.seat(member)

    def seat(self, member: Kind) -> None:
        self.members.append(member)
        self._by_descriptor[member.socket.fileno()] = member
        self._poll.register(member.socket.fileno(), select.EPOLLIN)

    def dismiss(self, member: Kind) -> None:
        self.members.remove(member)
        self._poll.unregister(member.socket.fileno())
        del self._by_descriptor[member.socket.fileno()]
        member.close()

    def run(self, act: Callable[[Kind, bytes], None], is_over: Callable[[], bool]) -> None:
        """Hand each answer to `act` until it `is_over`."""
        while not is_over():
            events = self._poll.poll(STALL_SECONDS_MAX)
            if not events:
                raise BadAnswer(f"no answer for {STALL_SECONDS_MAX:.0f} s")
            for descriptor, _ in events:
                member = self._by_descriptor[descriptor]
                answer = member.receive()
                if answer is not None:
                    act(member, answer)

    def drain(self) -> None:
        """Wait for what is still on its way, and do nothing with it."""
        self.run(lambda *_: None, lambda: not any(member.is_waiting for member in self.members))

    def close(self) -> None:
        for member in self.members:
            member.close()
        self._poll.close()
