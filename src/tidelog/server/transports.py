"""The clients of a server: who is connected, how much memory they take, who has been silent for too long.

**Invariant:** frames half received or held back take at most `FRAMES_BUFFERED_BYTES_MAX` together.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Mapping

from tidelog.base.config import BrokerSettings
from tidelog.base.events import Event, warning
from tidelog.base.files import File
from tidelog.base.limits import FRAMES_BUFFERED_BYTES_MAX
from tidelog.broker.broker import Broker
from tidelog.broker.clients import Client
from tidelog.protocol.connection import Connection
from tidelog.server.buffers import FrameBuffers
from tidelog.server.loop import BrokerLoop
from tidelog.server.requests import Requests
from tidelog.server.stream import Streams
from tidelog.server.transport import Transport
from tidelog.server.watch.vitals import Vitals


class Transports:
    def __init__(
        self,
        settings: BrokerSettings,
        broker: Broker,
        inputs: BrokerLoop,
        loop: asyncio.AbstractEventLoop,
        streams: Streams,
        requests: Requests,
        vitals: Vitals,
        tell: Callable[[Event], None],
    ) -> None:
        self._broker = broker
        self._inputs = inputs
        self._streams = streams
        self._vitals = vitals
        self._tell = tell
        self._frame_size_max = settings.number("socket.request.max.bytes")
        self._idle_ms = settings.number("connections.max.idle.ms")
        self._count_of: dict[str, int] = {}  # by address
        self.by_connection: dict[Connection, Transport] = {}
        self.buffers = FrameBuffers()
        self.buffered_size = 0
        self.on_frames = requests.serve
        self.end_turn = inputs.end_turn
        self.call_soon = loop.call_soon
        self.call_later = loop.call_later

    def add(self, accepted: socket.socket, address: tuple[str, int], listener: str) -> None:
        """Serve a client that has come in by this listener."""
        client = Client(Connection(self._frame_size_max, self.buffers), address, listener)
        transport = Transport(self, self._streams.open(accepted), client)
        self.by_connection[transport.connection] = transport
        self._count_of[transport.peer] = self.count_of(transport.peer) + 1

    @property
    def count(self) -> int:
        return len(self.by_connection)

    def count_of(self, address: str) -> int:
        return self._count_of.get(address, 0)

    @property
    def counts(self) -> Mapping[str, int]:
        """By the listener that they came in by."""
        return Counter(transport.client.listener for transport in self.by_connection.values())

    @property
    def unsent_size(self) -> int:
        return sum(transport.unsent_size for transport in self.by_connection.values())

    def on_problem(self, transport: Transport, reason: str) -> None:
        self._vitals.broken_count += 1
        self._tell(warning("connection closed", peer=transport.peer, reason=reason))

    def on_unreadable(self, file: File, failure: OSError) -> None:
        self._broker.disks.on_unreadable(file, failure)
        self._inputs.settle()

    def on_closed(self, transport: Transport) -> None:
        del self.by_connection[transport.connection]
        self._count_of[transport.peer] -= 1
        if not self._count_of[transport.peer]:
            del self._count_of[transport.peer]
        self._broker.waiting.drop(transport.connection)
        self._broker.telemetry.drop(transport.client)

    def on_buffered(self, change: int) -> None:
        """Frames half received or held back take that much more memory, or less. Too much: the client that
        has been sending its request, or not taking its answers, for longest is dropped."""
        self.buffered_size += change
        if change > 0 and self.buffered_size > FRAMES_BUFFERED_BYTES_MAX:
            idlest = min(
                (transport for transport in self.by_connection.values() if transport.buffered_size),
                key=lambda transport: transport.last_served_ms,
            )
            idlest.close("requests half received or held back take too much memory")

    def close_idle(self, now_ms: int) -> None:
        if self._idle_ms < 0:
            return
        since_ms = now_ms - self._idle_ms
        for transport in list(self.by_connection.values()):
            if transport.is_idle(since_ms):
                transport.receive_rest()
                if transport.is_idle(since_ms):
                    transport.close()

    def close(self) -> None:
        for transport in list(self.by_connection.values()):
            transport.close()
