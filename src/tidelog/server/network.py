"""Everything of a server that has a socket, but for the probe. This file is wiring only.

**Invariant:** a part knows what its constructor names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from tidelog.base.config import BrokerSettings
from tidelog.base.events import Event
from tidelog.broker.broker import Broker
from tidelog.server.acceptor import Acceptor
from tidelog.server.answers import Answers
from tidelog.server.loop import BrokerLoop
from tidelog.server.page_cache import PageCache
from tidelog.server.peers import Peers
from tidelog.server.requests import Requests
from tidelog.server.sockets import Sockets
from tidelog.server.stream import Streams
from tidelog.server.transports import Transports
from tidelog.server.watch.vitals import Vitals


class Network:
    def __init__(
        self,
        settings: BrokerSettings,
        broker: Broker,
        inputs: BrokerLoop,
        loop: asyncio.AbstractEventLoop,
        cold_threads: Executor,
        vitals: Vitals,
        tell: Callable[[Event], None],
    ) -> None:
        self._sockets = Sockets(loop, inputs.end_turn)
        self.pages = PageCache(cold_threads, loop.call_soon_threadsafe)
        streams = Streams(self._sockets, self.pages)
        requests = Requests(broker, vitals.request_times, tell)
        self.transports = Transports(settings, broker, inputs, loop, streams, requests, vitals, tell)
        rates, own_listener = broker.quotas.connections, broker.replicas.listener
        self.acceptor = Acceptor(settings, loop, self.transports, rates, own_listener, vitals, tell)
        self.answers = Answers(broker, self.transports.by_connection, vitals.request_times, tell)
        self.peers = Peers(inputs, loop, streams, settings.number("socket.request.max.bytes"))

    def hang_up(self) -> None:
        """Nobody comes in any more, and all that are here go."""
        self.acceptor.close()
        self.transports.close()
        self.peers.close()

    def close(self) -> None:
        self.hang_up()
        self._sockets.close()
