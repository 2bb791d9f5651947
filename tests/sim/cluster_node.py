"""One broker of a simulated cluster: its process, its disk, its clocks, and the shell's part done by events.

| what befalls it    | what is left                                                                       |
|--------------------|------------------------------------------------------------------------------------|
| `kill`             | the process is gone, all that it wrote is there: nothing is lost                   |
| `lose_power`       | the machine is gone; of what was not synced only a part is there                   |
| `stop`             | a clean stop, after others lead                                                    |
| `pause`            | nothing: what comes meanwhile waits, and the clocks run on                         |

**Invariant:** nothing of an earlier life reaches a later one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tests.jobs import outcome_of, run_job
from tests.log.making import NOW_MS
from tests.sim.disk import Killed, SimulatedDisk
from tests.sim.store import SimulatedConnection
from tests.wire.harness import joined
from tidelog.base.config import BrokerSettings
from tidelog.broker.broker import Broker, StoreFailed
from tidelog.broker.clients import Client
from tidelog.broker.data_plane.checkpoints import Checkpoint
from tidelog.broker.data_plane.compacting import Round, SwapSync
from tidelog.broker.data_plane.disks import NextNotes, NoteRemoval, NoteSync
from tidelog.broker.data_plane.flushing import Flush
from tidelog.broker.outbox import Effect, Job, Removal
from tidelog.broker.peers import PeerClose, PeerSend
from tidelog.cluster.store import StoreRequest, Watch
from tidelog.handlers.table import dispatch
from tidelog.log.directory import LogDirectory
from tidelog.protocol.connection import Connection
from tidelog.protocol.errors import MalformedRequest

if TYPE_CHECKING:
    from tests.sim.cluster import World

TICK_MS = 100
PORT = 9092
HAND_OVER_MS = 5_000


class Answered(Protocol):
    """The far end of a connection to this broker."""

    def on_answer(self, frame: bytes) -> None: ...

    def on_refused(self) -> None: ...


class ClusterNode:
    def __init__(self, world: World, node_id: int, properties: Mapping[str, str], folders: list[str]) -> None:
        self.world = world
        self.node_id = node_id
        self.properties = dict(properties)
        self.folders = folders
        self.disk = SimulatedDisk(on_fault=lambda: world.on_fault(self))
        self.is_full = False  # the disk; that loses nothing
        self.broker: Broker | None = None
        self.connection: SimulatedConnection | None = None
        self.life = 0
        self.boot_count = 1  # of the machine
        self.clock_offset_ms = 0
        self.started_ms = 0
        self.paused_until_ms = 0
        self.is_stopping = False
        self.was_stopped = False  # the last life ended cleanly
        self.failed_folders: list[str] = []  # log directories that have failed in the last life, and said so
        self.on_request: Callable[[StoreRequest], None] = lambda request: None  # is told what is asked
        self._inbox: deque[tuple[int, Callable[[], None]]] = deque()
        self._ends: dict[Connection, tuple[Client, Answered]] = {}
        self._checkpoints: dict[LogDirectory, Checkpoint | None] = {}
        self._tick_ms = 0

    @property
    def is_running(self) -> bool:
        return self.broker is not None

    @property
    def is_paused(self) -> bool:
        return self.paused_until_ms > self.world.clock.now_ms

    # Lives.

    def start(self) -> None:
        assert self.broker is None
        clock = self.world.clock
        self.life += 1
        self.is_stopping = self.was_stopped = False
        self.started_ms = clock.now_ms
        root = self.disk.root
        directories = [LogDirectory(root.folder(name)) for name in self.folders]
        if self.life == 1:
            root.sync()  # the operator made the log directories long ago
        settings = BrokerSettings(dict(self.properties))
        self.broker = Broker(
            settings, directories, clock.random.randbytes, is_sharing=True, boot_id=f"boot {self.boot_count}"
        )
        self.connection = self.world.store.connect(self.node_id)
        clock.note(f"{self.node_id} starts")
        self.set_time()
        self.broker.start(self.properties.get("host", f"b{self.node_id}"), PORT)
        self.settle()
        self._plan_tick(clock.now_ms + TICK_MS)

    def kill(self, is_silent: bool = False) -> None:
        """The process ends, whatever it was doing."""
        assert self.connection is not None
        self.connection.kill(self.world.clock.now_ms)
        self.failed_folders = [name for name in self.folders if self._has_failed(name)]
        self._end(is_silent)

    @property
    def has_failed_directory(self) -> bool:
        return any(self._has_failed(name) for name in self.folders)

    def _has_failed(self, name: str) -> bool:
        """Whether this process has seen that a log directory of its has lost something."""
        assert self.broker is not None
        homes = self.broker.disks.directories
        return any(home.is_lost and home.path.endswith(f"/{name}") for home in homes)

    def lose_power(self) -> None:
        """The machine goes down, with the process if there is one."""
        if self.is_running:
            self.kill(is_silent=self.world.clock.chance(0.5))
        self.boot_count += 1
        self.disk.kills_writing = False
        self.disk.crash(self.world.clock.random)

    def remount(self) -> None:
        """The machine goes down once all that was written is on the disk, or the disk is mounted again."""
        assert self.broker is None
        if self.world.clock.chance(0.5):
            self.boot_count += 1
        else:
            self.disk.mount_count += 1
        self.disk.remount()

    def stop(self) -> None:
        """Hand over, then stop."""
        assert self.broker is not None
        self.is_stopping = True
        self.set_time()
        self.broker.registration.announce_stop()
        self.settle()
        self._stop_when_unneeded(self.world.clock.now_ms + HAND_OVER_MS)

    def _stop_when_unneeded(self, until_ms: int) -> None:
        broker, clock = self.broker, self.world.clock
        assert broker is not None and self.connection is not None
        if broker.replicas.is_needed and clock.now_ms < until_ms:
            self.plan(50, lambda: self._stop_when_unneeded(until_ms))
            return
        broker.stop()
        self.connection.close(clock.now_ms)
        self.world.clock.note(f"{self.node_id} has stopped")
        self._end()
        self.was_stopped = True

    def _end(self, is_silent: bool = False) -> None:
        self.broker = None
        self.connection = None
        self.life += 1
        self.paused_until_ms = 0
        self._inbox.clear()
        self._ends.clear()
        self._checkpoints.clear()
        self.world.network.on_process_end(self.node_id, is_silent)

    def pause(self, until_ms: int) -> None:
        self.paused_until_ms = until_ms
        self.plan_at(until_ms, lambda: None)

    # Events.

    def plan(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.plan_at(self.world.clock.now_ms + delay_ms, action)

    def plan_at(self, time_ms: int, action: Callable[[], None]) -> None:
        """Let something happen in this life."""
        life = self.life
        self.world.clock.at(time_ms, lambda: self.receive(life, action))

    def receive(self, life: int, action: Callable[[], None]) -> None:
        if life != self.life or self.broker is None:
            return
        self._inbox.append((life, action))
        if self.is_paused:
            return
        while self._inbox and self.broker is not None:
            came_in, waiting = self._inbox.popleft()
            if came_in == self.life:
                self._carry_out(waiting)

    def _carry_out(self, action: Callable[[], None]) -> None:
        """In the process, which may end by that."""
        try:
            self.set_time()
            action()
            self.settle()
        except Killed:
            self.world.clock.count("killed while it writes")
            self.world.on_ended(self)
        except (StoreFailed, OSError) as problem:
            if isinstance(problem, OSError) and (self.broker is None or self.broker.standing.has_registered):
                raise
            self.world.clock.count("start refused")
            self.world.clock.note(f"{self.node_id} ends: {problem}")
            self.world.on_ended(self)

    def set_time(self) -> None:
        if self.broker is not None:
            now_ms = self.world.clock.now_ms
            self.broker.clock.set(NOW_MS + now_ms + self.clock_offset_ms, now_ms - self.started_ms)

    def poll_store(self) -> None:
        """Take what has come from the store by now."""
        assert self.connection is not None
        broker = self.broker
        for event in self.connection.due(self.world.clock.now_ms):
            assert broker is not None
            self.receive(self.life, lambda event=event: broker.on_store_event(event))  # type: ignore[misc]
            if self.broker is None:
                return

    def _plan_tick(self, time_ms: int) -> None:
        self._tick_ms = time_ms

        def tick() -> None:
            if self._tick_ms == time_ms and self.broker is not None:
                if self.broker.is_serving:
                    self.broker.tick()
                self._plan_tick(self.world.clock.now_ms + TICK_MS)

        self.plan_at(time_ms, tick)

    # The shell's part.

    def serve(self, end: Answered, client: Client, frame: bytes) -> None:
        """A request comes on a connection."""
        assert self.broker is not None
        self._ends[client.connection] = client, end
        try:
            dispatch(self.broker, client, memoryview(bytearray(frame)))
        except MalformedRequest as problem:
            self.world.clock.note(f"{self.node_id} closes a connection: {problem}")
            self.drop(client)
            end.on_refused()
            return
        self._send_answers(client.connection)

    def drop(self, client: Client) -> None:
        connection = client.connection
        self._ends.pop(connection, None)
        if self.broker is not None:
            self.broker.waiting.drop(connection)
            self.broker.telemetry.drop(client)
            connection.drop_answers()

    def _send_answers(self, connection: Connection) -> None:
        if connection not in self._ends:
            connection.drop_answers()
            return
        client, end = self._ends[connection]
        output, connection.output = connection.output, []
        for answer in output:
            try:
                frame = joined(answer)
            except OSError:  # the file cannot be read: the answer breaks off
                self.drop(client)
                end.on_refused()
                return
            end.on_answer(frame)

    def settle(self) -> None:
        broker = self.broker
        if broker is None:
            return
        broker.waiting.wake()
        answered, broker.waiting.answered = broker.waiting.answered, []
        for parked in answered:
            assert parked.connection is not None
            self._send_answers(parked.connection)
        # In the simulation's order: flushes last, so that a seed stays the story that it was.
        effects = broker.outbox.take_effects()
        for effect in effects:
            if not isinstance(effect, Flush):
                self._run(effect)
        for effect in effects:
            if isinstance(effect, Flush):
                self._flush(effect)
        self.world.note_events(self, broker)
        if broker.has_failed:
            self.world.clock.count("directory failures that end a broker")
            self.world.on_failed(self)
            return
        if broker.has_work:
            self.plan(0, self._work)
        deadline_ms = broker.waiting.first_deadline_ms if broker.is_serving else None
        if deadline_ms is not None and self.started_ms + deadline_ms < self._tick_ms:
            self._plan_tick(max(self.started_ms + deadline_ms, self.world.clock.now_ms + 1))

    def _work(self) -> None:
        if self.broker is not None and self.broker.has_work:
            self.broker.work()

    def _run(self, effect: Effect) -> None:
        now_ms = self.world.clock.now_ms
        if isinstance(effect, StoreRequest | Watch):
            assert self.connection is not None
            self.connection.submit(effect, now_ms)
            if isinstance(effect, StoreRequest):
                self.on_request(effect)
        elif isinstance(effect, PeerSend):
            self.world.network.send(self, effect)
        elif isinstance(effect, PeerClose):
            self.world.network.close(self, effect)
        elif isinstance(effect, Checkpoint):
            self._checkpoint(effect)
        elif isinstance(effect, Round | SwapSync):
            self._run_later(effect)
        elif isinstance(effect, Removal):
            self.plan_at(self.started_ms + effect.due_ms, lambda: _remove(effect))
        else:
            is_note = isinstance(effect, NoteRemoval | NextNotes | NoteSync)
            assert is_note, "nobody asked for a move between directories"
            self.plan(
                self.world.clock.random.randint(0, self.world.plan.flush_ms_max), partial(run_job, effect)
            )

    def _checkpoint(self, checkpoint: Checkpoint) -> None:
        """One at a time in each directory; of those that come meanwhile the last one is written next."""
        directory = checkpoint.directory
        if directory in self._checkpoints:
            self._checkpoints[directory] = checkpoint
            return
        self._checkpoints[directory] = None

        def write() -> None:
            failure = outcome_of(checkpoint)
            following = self._checkpoints.pop(directory)
            checkpoint.on_done(failure)
            if following is not None:
                self._checkpoint(following)

        self.plan(self.world.clock.random.randint(0, self.world.plan.flush_ms_max), write)

    def _run_later(self, job: Job) -> None:
        """After a while; and the broker hears of it after a while."""
        random = self.world.clock.random

        def run() -> None:
            failure = outcome_of(job)
            self.plan(random.randint(0, 2 * self.world.plan.flush_ms_max), lambda: job.on_done(failure))

        self.plan(random.randint(0, 2 * self.world.plan.flush_ms_max), run)

    def _flush(self, flush: Flush) -> None:
        random = self.world.clock.random

        def run() -> None:
            failure = outcome_of(flush)
            self.plan(random.randint(0, self.world.plan.flush_ms_max), lambda: flush.on_done(failure))

        self.plan(random.randint(0, self.world.plan.flush_ms_max), run)


def _remove(removal: Removal) -> None:
    for name in removal.names:
        removal.directory.remove(name)
