"""The coordination store of this broker, on the loop: requests go out, events come in, some in each turn.

**Invariant:** events reach the broker in the order in which the store gave them, and none after a failure.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from time import monotonic_ns

from tidelog.base.config import BrokerSettings
from tidelog.base.events import Event, error, info, warning
from tidelog.base.limits import STORE_TURN_MS_MAX
from tidelog.base.metrics import MILLISECOND_NS, Histogram
from tidelog.base.setting import InvalidSetting
from tidelog.broker.broker import Broker, StoreFailed
from tidelog.cluster.store import Store, StoreEvent, StoreReply, StoreRequest, Watch
from tidelog.log.directory import ForeignDirectory
from tidelog.server.life import Life
from tidelog.server.locks import StartFailed
from tidelog.server.loop import BrokerLoop
from tidelog.server.stores.connect import CONNECT, connect
from tidelog.server.stores.embedded import STORE_FILE, EmbeddedStore
from tidelog.server.watch.report import trace_of

OpenStore = Callable[[Callable[[], None]], Store]
TURN_NS_MAX = STORE_TURN_MS_MAX * MILLISECOND_NS  # as the loop counts


def is_shared(settings: BrokerSettings) -> bool:
    """Other brokers keep what they know in the same store."""
    return settings.text(CONNECT) != ""


class StoreLink:
    def __init__(
        self,
        broker: Broker,
        inputs: BrokerLoop,
        life: Life,
        loop: asyncio.AbstractEventLoop,
        times: Histogram,
        tell: Callable[[Event], None],
    ) -> None:
        self._broker = broker
        self._inputs = inputs
        self._life = life
        self._loop = loop
        self._times = times
        self._tell = tell
        self._store: Store
        self._received: deque[StoreEvent] = deque()  # and not yet acted on
        self._submitted_ns: dict[int, int] = {}  # when what the store works on was asked, by ticket
        self.serving: asyncio.Future[None] = loop.create_future()  # the broker has begun to serve

    def notify(self) -> None:
        """On any thread: there is something to receive."""
        self._loop.call_soon_threadsafe(self._on_news)

    async def open(self, settings: BrokerSettings, folder: str, open_shared: OpenStore | None) -> None:
        if open_shared is not None:
            self._store = open_shared(self.notify)
        elif is_shared(settings):
            self._store = await connect(settings, self.notify)
        else:
            self._store = EmbeddedStore(os.path.join(folder, STORE_FILE), self.notify)

    async def close(self) -> None:
        await self._loop.run_in_executor(None, self._store.close)

    def submit(self, request: StoreRequest | Watch) -> None:
        if isinstance(request, StoreRequest):
            self._submitted_ns[request.ticket] = monotonic_ns()
        self._store.submit(request)

    def check(self) -> None:
        """Whether it can be reached: the broker is told, and the operator."""
        is_connected = self._store.is_connected
        if is_connected != self._broker.standing.is_store_reached:
            self._broker.note_store(is_connected)
            self._tell(info("store connected") if is_connected else warning("store disconnected"))

    def _on_news(self) -> None:
        """For one turn: a hundred new topics are a hundred replies."""
        self._inputs.set_time()
        self._received += self._store.receive()
        until_ns = monotonic_ns() + TURN_NS_MAX
        has_failed = self._life.failed.is_set
        while self._received and monotonic_ns() < until_ns and not has_failed():
            self._take(self._received.popleft())
        if not self._life.is_stopping:
            self._inputs.settle()
            if self._received and not has_failed():
                self._loop.call_soon(self._on_news)

    def _take(self, event: StoreEvent) -> None:
        if isinstance(event, StoreReply):
            self._times.observe(monotonic_ns() - self._submitted_ns.pop(event.ticket))
        try:
            self._broker.on_store_event(event)
        except (StoreFailed, ForeignDirectory, InvalidSetting, OSError) as problem:
            if isinstance(problem, StoreFailed) and self.serving.done():
                self._life.fail(str(problem))
            else:
                self._on_bad_reply(str(problem))
        except Exception as bug:
            self._on_bad_reply(trace_of(bug))
        if self._broker.is_serving and not self.serving.done():
            self.serving.set_result(None)

    def _on_bad_reply(self, problem: str) -> None:
        """A reply that could not be acted on ends a start, and is told by a broker that serves."""
        if self.serving.done():
            self._tell(error("store event failed", traceback=problem))
        else:
            self.serving.set_exception(StartFailed(problem))
