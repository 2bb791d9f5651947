"""The server: its parts, their start and their end, and what is done as time passes.

**Invariant:** after a stop, and after a start that has failed, nothing is left that others could miss: no
lock, no port, no thread, no session with the store.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial

from tidelog.base.config import BrokerSettings
from tidelog.base.events import info
from tidelog.base.limits import DISK_SPACE_INTERVAL_MS
from tidelog.base.schedule import EACH_TICK, Row, Schedule
from tidelog.broker.broker import Broker
from tidelog.server.cleaner.cleaner import Cleaner, ProcessCleaner, ThreadCleaner
from tidelog.server.disk_space import DiskSpace
from tidelog.server.effects import Effects
from tidelog.server.jobs import Jobs, run_together
from tidelog.server.life import Life
from tidelog.server.listeners import bind, listeners_of, probe_listener_of
from tidelog.server.locks import DirectoryLocks, StartFailed
from tidelog.server.loop import BrokerLoop
from tidelog.server.network import Network
from tidelog.server.process import read_boot_id
from tidelog.server.removals import Removals
from tidelog.server.store_link import OpenStore, StoreLink, is_shared
from tidelog.server.watch.probe import Probe
from tidelog.server.watch.report import report_of, start_events
from tidelog.server.watch.scrape import Watched
from tidelog.server.watch.vitals import TURN_MS, Vitals

CHECK_MS = 1_000  # how often idle clients, files to remove and spare memory are looked at


class Server:
    """One broker in this process: `start`, then `stop` (clean) or `abort` (as a crash would)."""

    def __init__(
        self,
        properties: Mapping[str, str],
        write: Callable[[str], None] | None = None,
        open_shared: OpenStore | None = None,
        has_cleaner_process: bool = False,
    ) -> None:
        """`open_shared` gives a store that is shared with other brokers; it calls what it is given whenever
        there is something to receive. Without a process of the cleaner's own, a thread compacts."""
        self.settings = BrokerSettings(properties)
        self._open_shared = open_shared
        self._has_cleaner_process = has_cleaner_process
        self._listeners = listeners_of(self.settings)
        self._probe_listener = probe_listener_of(self.settings)
        self.report = report_of(self.settings, write)
        self.vitals = Vitals(listener.name for listener in self._listeners)
        self.life = Life()
        self.addresses: dict[str, tuple[str, int]] = {}  # what clients are told, by listener
        self.probe_port = 0
        self._probe: Probe | None = None
        self._left = AsyncExitStack()  # what is to be let go of at the end

    @property
    def node_id(self) -> int:
        return self.settings.number("node.id")

    @property
    def address(self) -> tuple[str, int]:
        """Of the first listener, as its clients are told."""
        return next(iter(self.addresses.values()))

    @property
    def port(self) -> int:
        return self.address[1]

    async def start(self) -> None:
        """Lock the directories, bind, load, open the logs, serve. Raises InvalidSetting or StartFailed."""
        try:
            self._make_parts()
            await self._start()
        except BaseException:
            self.life.is_stopping = True
            await self._left.aclose()
            raise

    def _make_parts(self) -> None:
        settings, life, vitals, tell = self.settings, self.life, self.vitals, self.report.tell
        loop, left = asyncio.get_running_loop(), self._left
        left.callback(self.report.close)
        locks = DirectoryLocks(settings.words("log.dirs"))
        left.callback(locks.release)
        self.disk_space = DiskSpace(locks.paths, loop.call_soon_threadsafe, tell)
        is_sharing = self._open_shared is not None or is_shared(settings)
        directories = locks.open_directories()
        self.cleaner = self._make_cleaner(loop)
        left.callback(self.cleaner.close)
        broker = self.broker = Broker(
            settings, directories, os.urandom, is_sharing, read_boot_id(), self.cleaner.clean
        )
        self.report.level = lambda: broker.logger_level
        self.loop = BrokerLoop(broker, life, loop, vitals.loop_lag, tell)
        self.jobs = Jobs(self.loop, life, loop, vitals.job_times, tell)
        left.push_async_callback(self.jobs.stop)
        self.removals = Removals(self.jobs.background)
        self.network = Network(settings, broker, self.loop, loop, self.jobs.cold, vitals, tell)
        left.callback(self.network.close)
        self.store = StoreLink(broker, self.loop, life, loop, vitals.store_times, tell)
        effects = Effects(self.store, self.network.peers, self.jobs, self.removals)
        self.loop.connect(self.network.answers.send, effects.carry_out)

    def _make_cleaner(self, loop: asyncio.AbstractEventLoop) -> Cleaner:
        if not self._has_cleaner_process:
            return ThreadCleaner()
        tell = self.report.tell
        return ProcessCleaner(lambda event: loop.call_soon_threadsafe(partial(tell, event)))

    async def _start(self) -> None:
        self.addresses = self.network.acceptor.bind(self._listeners)
        listening = None
        if self._probe_listener:
            listening = bind(self._probe_listener, self.settings, "probe.listener")
            self._left.callback(listening.close)
        paths = [directory.path for directory in self.broker.disks.directories]
        for event in start_events(self.settings, self._listeners, paths):
            self.report.tell(event)
        await self.store.open(self.settings, paths[0], self._open_shared)
        self._left.push_async_callback(self.store.close)
        self.loop.set_time()
        if listening is not None:
            await self._watch(listening)
        self.broker.start(*self.addresses[self.settings.peer_listener], self.addresses)
        self.loop.settle()
        await self._until_serving()
        self.network.acceptor.start()
        host, port = self.address
        self.report.tell(info("ready", address=f"{host}:{port}", after_ms=self.vitals.uptime_ms))
        self.loop.start(self._make_schedule())

    async def _until_serving(self) -> None:
        """Raises StartFailed, also if every disk fails first: the store's events are not acted on then."""
        serving, failed = self.store.serving, asyncio.ensure_future(self.life.failed.wait())
        try:
            await asyncio.wait((serving, failed), return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                raise StartFailed(self.life.failure)
            await serving
        finally:
            failed.cancel()
            serving.cancel()

    async def _watch(self, listening: socket.socket) -> None:
        host, self.probe_port = listening.getsockname()[:2]
        watched = Watched(self.broker, self.vitals, self.network.transports, self.disk_space)
        self._probe = Probe(watched, self.report.tell)
        self._left.push_async_callback(self._probe.close)
        await self._probe.start(listening)
        self.report.tell(info("probe started", address=f"{host}:{self.probe_port}"))

    def _make_schedule(self) -> Schedule:
        """What is done as time passes, in this order."""
        clock, transports = self.broker.clock, self.network.transports
        return Schedule(
            Row(EACH_TICK, self.store.check),
            Row(EACH_TICK, self.broker.tick),
            Row(EACH_TICK, self.loop.settle),
            Row(CHECK_MS, lambda: transports.close_idle(clock.uptime_ms), is_due_at_first=True),
            Row(CHECK_MS, lambda: self.removals.remove_due(clock.uptime_ms), is_due_at_first=True),
            Row(DISK_SPACE_INTERVAL_MS, self.disk_space.look, is_due_at_first=True),
            Row(CHECK_MS, transports.buffers.age, is_due_at_first=True),
            Row(TURN_MS, self.vitals.turn, is_due_at_first=True),
            Row(CHECK_MS, self.report.tick, is_due_at_first=True),
            Row(CHECK_MS, self.cleaner.age, is_due_at_first=True),
        )

    async def stop(self) -> None:
        """A clean stop: leaderships are handed over, connections are closed, everything is made durable, the
        sign of it is left."""
        if self.settings.flag("controlled.shutdown.enable"):
            await self.loop.hand_over()
        await self._wind_down(clean=True)

    async def abort(self) -> None:
        """Drop everything as a crash would: nothing is flushed, no sign of a clean stop is left."""
        await self._wind_down(clean=False)

    async def _wind_down(self, clean: bool) -> None:
        async with self._left:
            self.life.is_stopping = True
            self.report.tell(info("stopping", is_clean=clean))
            if self._probe is not None:
                await self._probe.close()
            self.loop.stop()
            self.network.hang_up()
            self.broker.relocation.moves.stop()
            self.broker.compacting.stop()
            await self.jobs.stop()
            if clean:
                self.broker.stop(run_together)
                self.loop.tell_events()
        self.report.tell(info("stopped", after_ms=self.vitals.uptime_ms))
