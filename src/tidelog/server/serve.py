"""The server: one loop that carries bytes between sockets and the broker, and runs what the broker asks for.

**Invariant:** the broker is touched on the loop only; threads fsync, unlink, warm pages and talk to the
store, and come back as events.
"""

from __future__ import annotations

import asyncio
import os
import socket
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic_ns, time_ns

from tidelog.base.clock import monotonic_ms, wall_ms
from tidelog.base.config import BrokerSettings
from tidelog.base.descriptors import Descriptors
from tidelog.base.events import debug, error, info, warning
from tidelog.base.files import DiskDirectory, File
from tidelog.base.forms import read_address_limits
from tidelog.base.limits import (
    ANSWERS_PER_FLUSH,
    API_KEY_MAX,
    CONNECTIONS_MAX,
    FRAMES_BUFFERED_BYTES_MAX,
    PIPELINED_REQUESTS_MAX,
    RECEIVE_BUFFER_SIZE,
    TURN_MS_MAX,
)
from tidelog.base.metrics import DURATION_BOUNDS_NS, MILLISECOND_NS, SECOND_NS
from tidelog.base.setting import InvalidSetting
from tidelog.broker.broker import Broker, StoreFailed
from tidelog.cluster.store import Store, StoreEvent, StoreReply
from tidelog.handlers.table import dispatch
from tidelog.log.directory import ForeignDirectory, LogDirectory
from tidelog.protocol.connection import Connection
from tidelog.protocol.errors import MalformedRequest
from tidelog.server.answers import NOT_SERVED, Answers
from tidelog.server.buffers import FrameBuffers
from tidelog.server.disk_space import DiskSpace
from tidelog.server.effects import Effects
from tidelog.server.flushing import run_together
from tidelog.server.jobs import PAUSE_S, Jobs
from tidelog.server.listeners import advertised_of, bind, listeners_of, probe_listener_of
from tidelog.server.locks import DirectoryLocks, StartFailed
from tidelog.server.pages import PageProbe
from tidelog.server.peers import Peers
from tidelog.server.probe import Probe
from tidelog.server.process import descriptor_share, read_boot_id
from tidelog.server.report import Report, start_events, trace_of
from tidelog.server.sockets import Sockets
from tidelog.server.stores.connect import CONNECT, connect
from tidelog.server.stores.embedded import EmbeddedStore
from tidelog.server.transport import Transport
from tidelog.server.vitals import Vitals

STORE_FILE = "tidelog-store.sqlite"
TICK_MS = 100  # or sooner, when somebody's deadline comes, or a session of a group ends
IDLE_CHECK_MS = 1_000
HAND_OVER_S_MAX = 15.0
TURN_NS_MAX = TURN_MS_MAX * MILLISECOND_NS
STORE_TURN_NS_MAX = 5 * MILLISECOND_NS
SLOW_NS = 100 * MILLISECOND_NS


class Server:
    """One broker in this process: `start`, then `stop` (clean) or `abort` (as a crash would)."""

    def __init__(
        self,
        properties: Mapping[str, str],
        write: Callable[[str], None] | None = None,
        open_store: Callable[[Callable[[], None]], Store] | None = None,
    ) -> None:
        """`open_store` gives a store that is shared with other brokers; it calls what it is given whenever
        there is something to receive."""
        self.settings = BrokerSettings(properties)
        self._open_store = open_store
        self._listeners = listeners_of(self.settings)
        self._probe_listener = probe_listener_of(self.settings)
        self.report = Report(
            write,
            lambda: self.settings.text("operator.log.level"),
            self.settings.text("operator.log.format") == "json",
            wall_ms,
            monotonic_ms,
        )
        self.vitals = Vitals(API_KEY_MAX + 1, [listener.name for listener in self._listeners])
        self.probe_port = 0
        self._watcher: Probe | None = None
        self.host = ""
        self.port = 0
        self.addresses: dict[str, tuple[str, int]] = {}  # what clients are told, by listener
        self.node_id = self.settings.number("node.id")
        self.failed: asyncio.Event = asyncio.Event()
        self.failure = ""  # why it cannot go on
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_SIZE))
        self.frame_buffers = FrameBuffers()
        self._frame_size_max = self.settings.number("socket.request.max.bytes")
        self._idle_ms = self.settings.number("connections.max.idle.ms")
        self._transports: dict[Connection, Transport] = {}
        self._peers: dict[str, int] = {}
        self._buffered_size = 0
        self._sockets: list[socket.socket] = []
        self._locks: DirectoryLocks | None = None
        self._is_store_open = False
        self._received: deque[StoreEvent] = deque()  # from the store, and not yet acted on
        self._started_ms = monotonic_ms()
        self._timer: asyncio.TimerHandle | None = None
        self._next_idle_check_ms = 0
        self._next_tick_ms = 0
        self.is_stopping = False
        self._unneeded: asyncio.Event | None = None  # while leaderships are handed over
        self._is_working = False  # what takes long is about to have its next turn

    async def start(self) -> None:
        """Lock the directories, bind, load, open the logs, serve. Raises InvalidSetting or StartFailed."""
        self.loop = asyncio.get_running_loop()
        self.sockets = Sockets(self.loop, self.end_turn)
        try:
            await self._start()
        except BaseException:
            await self._let_go()
            raise

    async def _start(self) -> None:
        self._jobs = Jobs(self, self.loop)
        self.probe = PageProbe(self._jobs.readers, self.loop.call_soon_threadsafe)
        descriptors = Descriptors(descriptor_share())
        self._locks = DirectoryLocks(self.settings.words("log.dirs"))
        threads, call_soon = self._jobs.threads, self.loop.call_soon_threadsafe
        self.disk_space = DiskSpace(self._locks.paths, threads, call_soon, self.report.tell)
        directories = [LogDirectory(DiskDirectory(path, descriptors)) for path in self._locks.paths]
        self._sockets = [bind(listener, self.settings) for listener in self._listeners]
        pages = bind(self._probe_listener, self.settings, "probe.listener") if self._probe_listener else None
        self.addresses = advertised_of(self.settings, self._listeners, self._sockets)
        self.host, self.port = next(iter(self.addresses.values()))
        for event in start_events(self.settings, self._listeners, [each.path for each in directories]):
            self.report.tell(event)
        is_sharing = self._open_store is not None or self.settings.text(CONNECT) != ""
        self.broker = Broker(self.settings, directories, os.urandom, is_sharing, read_boot_id())
        self._answers = Answers(self.broker, self._transports, self.vitals.request_times, self.report.tell)
        self.report.level = lambda: self.broker.logger_level
        self._peer_links = Peers(self, self.loop, self.sockets, self._frame_size_max)
        self._store = await self._make_store(directories[0].path)
        self._is_store_open = True
        self._effects = Effects(self._store, self._peer_links, self._jobs)
        self._serving = asyncio.get_running_loop().create_future()
        self.set_time()
        if pages is not None:
            await self._watch(pages)
        self.broker.start(*self.addresses[self.settings.peer_listener], self.addresses)
        self.settle()
        await self._serving
        for sock, listener in zip(self._sockets, self._listeners, strict=True):
            self.loop.add_reader(sock.fileno(), self._on_acceptable, sock, listener.name)
        self.report.tell(info("ready", address=f"{self.host}:{self.port}", after_ms=self.uptime_ms))
        self._on_tick()

    async def _make_store(self, path: str) -> Store:
        def notify() -> None:
            self.loop.call_soon_threadsafe(self._on_store)

        if self._open_store is not None:
            return self._open_store(notify)
        if self.settings.text(CONNECT):
            return await connect(self.settings, notify)
        return EmbeddedStore(os.path.join(path, STORE_FILE), notify)

    async def _watch(self, listening: socket.socket) -> None:
        host, self.probe_port = listening.getsockname()[:2]
        self._watcher = Probe(self, self.report.tell)
        await self._watcher.start(listening)
        self.report.tell(info("probe serves /metrics and /health", address=f"{host}:{self.probe_port}"))

    # What the probe asks.

    @property
    def uptime_ms(self) -> int:
        return monotonic_ms() - self._started_ms

    @property
    def connection_counts(self) -> Mapping[str, int]:
        """By the listener that they came in by."""
        return Counter(connection.listener for connection in self._transports)

    @property
    def buffered_size(self) -> int:
        return self._buffered_size

    @property
    def unsent_size(self) -> int:
        return sum(transport.unsent_size for transport in self._transports.values())

    async def stop(self) -> None:
        """A clean stop: leaderships are handed over, connections are closed, everything is made durable, the
        sign of it is left."""
        if self.settings.flag("controlled.shutdown.enable"):
            await self._hand_over()
        await self._wind_down(clean=True)

    async def abort(self) -> None:
        """Drop everything as a crash would: nothing is flushed, no sign of a clean stop is left."""
        await self._wind_down(clean=False)

    async def _hand_over(self) -> None:
        """Let others lead before this broker goes, if there are any; not for ever."""
        self.set_time()
        self.broker.registration.announce_stop()
        self.settle()
        if self.broker.replicas.is_needed:
            self._unneeded = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._unneeded.wait(), HAND_OVER_S_MAX)

    async def _wind_down(self, clean: bool) -> None:
        self.is_stopping = True
        self.report.tell(info("stopping", is_clean=clean))
        if self._watcher is not None:
            await self._watcher.close()
        if self._timer is not None:
            self._timer.cancel()
        for sock in self._sockets:
            self.loop.remove_reader(sock.fileno())
            sock.close()
        for transport in list(self._transports.values()):
            transport.close()
        self._peer_links.close()
        self.broker.relocation.moves.stop()
        await self._jobs.stop()
        if clean:
            self.broker.stop(run_together)
            self._tell_events()
        await self._let_go()
        self.report.tell(info("stopped", after_ms=self.uptime_ms))

    async def _let_go(self) -> None:
        """Of everything that others could miss; also after a start that has failed."""
        self.is_stopping = True
        for sock in self._sockets:
            sock.close()
        self.sockets.close()
        if self._watcher is not None:
            await self._watcher.close()
        await self._jobs.stop()
        if self._is_store_open:
            await self.loop.run_in_executor(None, self._store.close)
        if self._locks is not None:
            self._locks.release()
        self.report.close()

    # Sockets.

    def _on_acceptable(self, listening: socket.socket, listener: str) -> None:
        try:
            accepted, address = listening.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as failure:  # out of descriptors: the client waits in the backlog
            self.report.tell(warning("connection not accepted", reason=failure.strerror))
            self.loop.remove_reader(listening.fileno())
            self.loop.call_later(PAUSE_S, self._accept_again, listening, listener)
            return
        peer = str(address[0])
        # Half of the descriptors are for the log: a client must not be able to take them.
        limit = min(self.settings.number("max.connections"), CONNECTIONS_MAX, descriptor_share())
        of_peer, limits = self._peers.get(peer, 0), self.settings.text("max.connections.per.ip.overrides")
        of_peer_max = read_address_limits(limits).get(peer, self.settings.number("max.connections.per.ip"))
        if len(self._transports) >= limit or of_peer >= of_peer_max:
            accepted.close()
            self.vitals.refused_count += 1
            open_count = len(self._transports)
            self.report.tell(warning("connection refused", peer=peer, of_peer=of_peer, open=open_count))
            return
        self.vitals.accepted_counts[listener] += 1
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, key in (
            (socket.SO_SNDBUF, "socket.send.buffer.bytes"),
            (socket.SO_RCVBUF, "socket.receive.buffer.bytes"),
        ):
            if self.settings.number(key) > 0:
                accepted.setsockopt(socket.SOL_SOCKET, option, self.settings.number(key))
        self._peers[peer] = of_peer + 1
        transport = Transport(self, accepted, (peer, int(address[1])), self._frame_size_max, listener)
        self._transports[transport.connection] = transport

    def _accept_again(self, listening: socket.socket, listener: str) -> None:
        if not self.is_stopping:
            self.loop.add_reader(listening.fileno(), self._on_acceptable, listening, listener)

    def on_frames(self, transport: Transport, frames: list[memoryview]) -> None:
        broker = self.broker
        begun_ns = before_ns = monotonic_ns()
        broker.set_time(time_ns() // MILLISECOND_NS, begun_ns // MILLISECOND_NS)
        transport.last_active_ms = transport.last_served_ms = broker.uptime_ms
        connection = transport.connection
        times = self.vitals.request_times
        is_kept = False
        try:
            for place, frame in enumerate(frames):
                if place and (before_ns - begun_ns >= TURN_NS_MAX or transport.is_choked):
                    transport.keep(frames[place:])
                    is_kept = True
                    break
                api_key = dispatch(broker, connection, frame)
                now_ns = monotonic_ns()
                if api_key >= 0:  # `Histogram.observe`, without the call
                    took_ns = now_ns - before_ns
                    histogram = times[api_key]
                    histogram.counts[bisect_left(DURATION_BOUNDS_NS, took_ns)] += 1
                    histogram.sum += took_ns
                before_ns = now_ns
                if len(connection.output) >= ANSWERS_PER_FLUSH:
                    transport.flush()
                    if transport.is_closed:
                        break
        except MalformedRequest as problem:
            transport.flush()
            transport.close(str(problem))
        except Exception as bug:
            transport.close(NOT_SERVED)
            self.report.tell(error("request failed", peer=transport.peer, traceback=trace_of(bug)))
        else:
            if connection.output or is_kept or len(connection.slots) >= PIPELINED_REQUESTS_MAX:
                transport.flush()
        if before_ns - begun_ns >= SLOW_NS:
            took_ms = (before_ns - begun_ns) // MILLISECOND_NS
            self.report.tell(debug("slow turn", peer=transport.peer, requests=len(frames), took_ms=took_ms))

    def end_turn(self) -> None:
        """Some clients have been served."""
        if not self.is_stopping:
            self.broker.coordinators.write()
            self.settle()

    def on_problem(self, transport: Transport, reason: str) -> None:
        self.vitals.broken_count += 1
        self.report.tell(warning("connection closed", peer=transport.peer, reason=reason))

    def on_unreadable(self, file: File, failure: OSError) -> None:
        self.broker.on_unreadable(file, failure)
        self.settle()

    def on_closed(self, transport: Transport) -> None:
        del self._transports[transport.connection]
        self._peers[transport.peer] -= 1
        if not self._peers[transport.peer]:
            del self._peers[transport.peer]
        self.broker.waiting.drop(transport.connection)
        self.broker.telemetry.drop(transport.connection)

    def on_buffered(self, change: int) -> None:
        """Frames half received or held back take that much more memory, or less. Too much: the one who
        has been sending its request, or not taking its answers, for longest goes."""
        self._buffered_size += change
        if change > 0 and self._buffered_size > FRAMES_BUFFERED_BYTES_MAX:
            idlest = min(
                (transport for transport in self._transports.values() if transport.buffered_size),
                key=lambda transport: transport.last_served_ms,
            )
            idlest.close("requests half received or held back take too much memory")

    # Other brokers.

    def on_peer_frame(self, node_id: int, lane: int, frame: memoryview) -> None:
        self.set_time()
        try:
            self.broker.on_peer_frame(node_id, lane, frame)
        except Exception as bug:
            self.report.tell(error("answer of a peer not taken", peer=node_id, traceback=trace_of(bug)))

    def on_peer_closed(self, node_id: int, lane: int) -> None:
        self.set_time()
        self.broker.on_peer_closed(node_id, lane)
        self.settle()

    # The broker's effects.

    def settle(self) -> None:
        """After any input: answer some of those who waited, run what the broker asked for."""
        broker = self.broker
        has_more = self._answers.send()
        if broker.effects:
            effects, broker.effects = broker.effects, []
            self._effects.carry_out(effects)
        if broker.flushes:
            flushes, broker.flushes = broker.flushes, []
            for partition, job in flushes:
                self._jobs.flush(partition, job)
        if broker.events:
            self._tell_events()
        if broker.is_failing and broker.has_failed:
            self._fail("every log directory is offline")
        if self._unneeded is not None and not broker.replicas.is_needed:
            self._unneeded.set()
        if (has_more or broker.has_work) and not self._is_working:
            self._is_working = True
            self.loop.call_soon(self._work)
        deadline_ms = None if has_more else broker.next_due_ms
        if deadline_ms is not None and deadline_ms < self._next_tick_ms and not self.is_stopping:
            self._tick_in(max(deadline_ms - broker.uptime_ms, 1))

    def _work(self) -> None:
        """One piece of what takes long, between the turns of clients."""
        self._is_working = False
        if not self.is_stopping:
            self.set_time()
            if self.broker.has_work:
                self.broker.work()
            self.settle()

    def _tell_events(self) -> None:
        for event in self.broker.events:
            self.report.tell(event)
        self.broker.events.clear()

    def _on_store(self) -> None:
        """For one turn: a hundred new topics are a hundred replies."""
        self.set_time()
        self._received += self._store.receive()
        until_ns = monotonic_ns() + STORE_TURN_NS_MAX
        while self._received and monotonic_ns() < until_ns and not self.failed.is_set():
            self._take_event(self._received.popleft())
        if not self.is_stopping:
            self.settle()
            if self._received and not self.failed.is_set():
                self.loop.call_soon(self._on_store)

    def _take_event(self, event: StoreEvent) -> None:
        if isinstance(event, StoreReply):
            self.vitals.store_times.observe(self._effects.took_ns(event.ticket))
        try:
            self.broker.on_store_event(event)
        except (StoreFailed, ForeignDirectory, InvalidSetting, OSError) as problem:
            if isinstance(problem, StoreFailed) and self._serving.done():
                self._fail(str(problem))
            else:
                self._on_bad_reply(str(problem))
        except Exception as bug:
            self._on_bad_reply(trace_of(bug))
        if self.broker.is_serving and not self._serving.done():
            self._serving.set_result(None)

    def _on_bad_reply(self, problem: str) -> None:
        """A reply that could not be acted on ends a start, and is told by a broker that serves."""
        if self._serving.done():
            self.report.tell(error("store not followed", traceback=problem))
        else:
            self._serving.set_exception(StartFailed(problem))

    def _fail(self, reason: str) -> None:
        """Whoever runs this broker shall end it; until then it hears no more of the store."""
        self.failure = reason
        self.failed.set()

    # Time.

    def set_time(self) -> None:
        self.broker.set_time(wall_ms(), monotonic_ms())

    def _tick_in(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_tick_ms = self.broker.uptime_ms + delay_ms
        self._timer = self.loop.call_later(delay_ms / 1_000, self._on_tick)

    def _on_tick(self) -> None:
        if self._timer is not None:
            late_s = self.loop.time() - self._timer.when()
            self.vitals.loop_lag.observe(max(int(late_s * SECOND_NS), 0))
        self.set_time()
        self._tick_in(TICK_MS)
        if (news := self._effects.store_news(self.vitals)) is not None:
            self.report.tell(news)
        self.broker.tick()
        self.settle()
        now_ms = self.broker.uptime_ms
        if now_ms >= self._next_idle_check_ms:
            self._next_idle_check_ms = now_ms + IDLE_CHECK_MS
            self._close_idle(now_ms)
            self._jobs.remove_due(now_ms)
            self.disk_space.tick(now_ms)
            self.frame_buffers.age()
            self.vitals.tick(now_ms)
            self.report.tick()

    def _close_idle(self, now_ms: int) -> None:
        if self._idle_ms < 0:
            return
        since_ms = now_ms - self._idle_ms
        for transport in list(self._transports.values()):
            if transport.is_idle(since_ms):
                transport.receive_rest()
                if transport.is_idle(since_ms):
                    transport.close()
