"""Brokers on simulated disks with one tree between them, and the shell's part done in one fixed order.

What brokers send each other and what the store tells them stands in one queue; `run` works it off to the end.
Time passes by `tick` alone. Nobody fsyncs but the brokers by their own rules, and a fsync ends at once.

**Invariant:** the same calls give the same events in the same order; nothing of an earlier life reaches a
later one, and nothing that was under way to or from a machine outlives its death.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from tests.jobs import run_job
from tests.log.making import NOW_MS
from tests.scenarios.recovery_words import told_answer, told_request
from tests.sim.disk import SimulatedDirectory, SimulatedDisk
from tests.wire.harness import joined
from tidelog.base.config import BrokerSettings
from tidelog.broker.broker import Broker
from tidelog.broker.clients import Client
from tidelog.broker.outbox import Job, Removal
from tidelog.broker.peers import REPLICATE, PeerClose, PeerSend
from tidelog.cluster.store import SessionEnded, StoreEvent, StoreReply, StoreRequest, Unknown, Watch
from tidelog.cluster.tree import Session, SharedTree
from tidelog.handlers.table import dispatch
from tidelog.log.directory import LogDirectory
from tidelog.protocol.connection import Connection
from tidelog.replication.partition import Partition

TICK_MS = 100
CLIENT = 0  # where it is, among the machines
Ends = tuple[int, int, int]  # who opened a connection, to whom, in which lane
STEPS_MAX = 1_000  # what the whole cluster does between two ticks
FRAME_SIZE_MAX = 1 << 24
SETTINGS = {
    "min.insync.replicas": "2",
    "leader.imbalance.check.interval.seconds": "10",
    "log.flush.offset.checkpoint.interval.ms": "1000",
}


class Link:
    """A connection to a machine, from another one or from the client."""

    def __init__(self, server: Machine) -> None:
        self.server = server
        self.connection = Connection(FRAME_SIZE_MAX)
        self.client = Client(self.connection)
        self.is_open = True


class Machine:
    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.disk = SimulatedDisk()
        self.broker: Broker | None = None
        self.session: Session | None = None
        self.unanswered: list[StoreRequest] = []  # what it has asked the store while that was away
        self.is_paused = False
        self.kept: list[Callable[[], None]] = []  # what came while it was paused

    @property
    def folder(self) -> SimulatedDirectory:
        return self.disk.root.folder("logs")

    def partition(self) -> Partition | None:
        return self.broker.partitions.find("t", 0) if self.broker is not None else None


class RecoveryCluster:
    def __init__(self, size: int) -> None:
        self.tree = SharedTree()
        self.machines = {node_id: Machine(node_id) for node_id in range(1, size + 1)}
        self.said: list[str] = []  # what happened since it was last asked for
        self.uptime_ms = 0
        self._entropy = Random(0)
        self._links: dict[Ends, Link] = {}
        self.answers: list[bytes] = []  # to the client
        self._queue: deque[tuple[Machine, Callable[[], None]]] = deque()

    # Lives.

    def start(self, node_id: int) -> None:
        machine = self.machines[node_id]
        directory = LogDirectory(machine.folder)
        settings = BrokerSettings(SETTINGS | {"node.id": str(node_id)})
        machine.broker = Broker(settings, [directory], self._entropy.randbytes, is_sharing=True)
        machine.session = self.tree.open_session()
        self._set_time(machine)
        machine.broker.start(f"host-{node_id}", 9092)
        self._settle(machine)

    def lose_power(self, node_id: int) -> None:
        """The machine is gone, and all connections with it; what the kernel had not written is the test's."""
        machine = self.machines[node_id]
        assert machine.session is not None
        session, machine.session, machine.broker = machine.session, None, None
        machine.kept.clear()
        for ends in [ends for ends in self._links if node_id in ends[:2]]:
            self._close(ends)
        self.tree.end_session(session)
        self._spread()

    def end_sessions(self) -> None:
        """The store was away for too long for all of them."""
        for machine in self.machines.values():
            session, machine.session = machine.session, None
            if session is not None:
                self.tree.end_session(session)

    def find_store(self, node_id: int) -> None:
        """A broker has a connection to the store again, and hears that its session has ended."""
        machine = self.machines[node_id]
        broker, machine.session = machine.broker, self.tree.open_session()
        assert broker is not None
        for asked in machine.unanswered:
            self._later(machine, _telling(broker, StoreReply(asked.ticket, Unknown("the session has ended"))))
        machine.unanswered.clear()
        self._later(machine, _telling(broker, SessionEnded()))

    def _close(self, ends: Ends) -> None:
        link = self._links.pop(ends)
        link.is_open = False
        if link.server.broker is not None:
            link.server.broker.waiting.drop(link.connection)
        owner = self.machines.get(ends[0])
        if owner is not None and owner.broker is not None:
            broker = owner.broker
            self._later(owner, lambda: broker.on_peer_closed(*ends[1:]))

    def resume(self, node_id: int) -> None:
        machine = self.machines[node_id]
        machine.is_paused = False
        kept, machine.kept = machine.kept, []
        self._queue.extend((machine, action) for action in kept)

    # Time, and what is under way.

    def tick(self, passed_ms: int) -> None:
        for _ in range(passed_ms // TICK_MS):
            self.uptime_ms += TICK_MS
            for machine in self.machines.values():
                if machine.broker is not None and not machine.is_paused:
                    self._set_time(machine)
                    machine.broker.tick()
                    self._settle(machine)
            self.run()

    def run(self) -> None:
        """Until nothing is under way any more."""
        for _ in range(STEPS_MAX):
            if not self._queue:
                return
            machine, action = self._queue.popleft()
            if machine.broker is None:
                continue
            if machine.is_paused:
                machine.kept.append(action)
                continue
            self._set_time(machine)
            action()
            self._settle(machine)
        raise AssertionError(f"they do not come to rest: {self.said[-4:]}")

    def _later(self, machine: Machine, action: Callable[[], None]) -> None:
        broker = machine.broker
        self._queue.append((machine, lambda: action() if machine.broker is broker else None))

    def _set_time(self, machine: Machine) -> None:
        assert machine.broker is not None
        machine.broker.clock.set(NOW_MS + self.uptime_ms, self.uptime_ms)

    # The shell's part.

    def _settle(self, machine: Machine) -> None:
        broker = machine.broker
        assert broker is not None
        broker.waiting.wake()
        answered, broker.waiting.answered = broker.waiting.answered, []
        woken = [parked.connection for parked in answered]
        for ends, link in list(self._links.items()):
            if link.connection in woken:
                self._send_answers(ends, link)
        cuts = broker.replicas.cuts
        while broker.outbox.effects or cuts.has_work:
            if cuts.has_work:
                cuts.work()
            self._run_effects(machine, broker)
        for event in broker.outbox.take_events():
            fields = " ".join(f"{name}={value}" for name, value in event.fields.items())
            self.said.append(f"{machine.node_id}: {event.name} {fields}".rstrip())

    def _run_effects(self, machine: Machine, broker: Broker) -> None:
        for effect in broker.outbox.take_effects():
            if isinstance(effect, StoreRequest | Watch):
                self._ask_store(machine, effect)
            elif isinstance(effect, PeerSend):
                self._send(machine, effect)
            elif isinstance(effect, PeerClose):
                given_up = self._links.pop((machine.node_id, effect.node_id, effect.lane), None)
                if given_up is not None:
                    given_up.is_open = False
            elif isinstance(effect, Job):
                run_job(effect)
            else:
                assert isinstance(effect, Removal)

    def _ask_store(self, machine: Machine, asked: StoreRequest | Watch) -> None:
        session, broker = machine.session, machine.broker
        assert broker is not None
        if session is None:
            machine.unanswered += [asked] if isinstance(asked, StoreRequest) else []
            return
        if isinstance(asked, Watch):
            session.watch(asked.path)
            return
        reply = StoreReply(asked.ticket, session.perform(asked.action))
        self._spread()
        self._later(machine, lambda: broker.on_store_event(reply))

    def _spread(self) -> None:
        """Everybody sees what has changed, each in his turn."""
        for machine in self.machines.values():
            session, broker = machine.session, machine.broker
            if session is not None and broker is not None:
                session.see()
                for change in session.take_changes():
                    self._later(machine, _telling(broker, change))

    # Between machines.

    def send(self, node_id: int, frame: bytes) -> None:
        """A request of the client's, without its size."""
        self._deliver((CLIENT, node_id, 0), frame)

    def _send(self, machine: Machine, effect: PeerSend) -> None:
        if effect.lane == REPLICATE:
            self.said += told_request(machine.node_id, effect.node_id, effect.frame)
        self._deliver((machine.node_id, effect.node_id, effect.lane), bytes(effect.frame)[4:])

    def _deliver(self, ends: Ends, frame: bytes) -> None:
        server = self.machines[ends[1]]
        link = self._links.setdefault(ends, Link(server))
        if server.broker is None:
            self._close(ends)
        else:
            self._later(server, lambda: self._serve(ends, link, frame))

    def _serve(self, ends: Ends, link: Link, frame: bytes) -> None:
        broker = link.server.broker
        if link.is_open and broker is not None:
            dispatch(broker, link.client, memoryview(bytearray(frame)))
            self._send_answers(ends, link)

    def _send_answers(self, ends: Ends, link: Link) -> None:
        owner_id, server_id, lane = ends
        output, link.connection.output = link.connection.output, []
        for frame in map(joined, output):
            if owner_id == CLIENT:
                self.answers.append(frame)
                continue
            if lane == REPLICATE:
                self.said += told_answer(server_id, owner_id, frame)
            self._later(self.machines[owner_id], _arriving(self.machines[owner_id], link, ends, frame))


def _telling(broker: Broker, event: StoreEvent) -> Callable[[], None]:
    return lambda: broker.on_store_event(event)


def _arriving(owner: Machine, link: Link, ends: Ends, frame: bytes) -> Callable[[], None]:
    def arrive() -> None:
        if link.is_open and owner.broker is not None:
            owner.broker.on_peer_frame(*ends[1:], memoryview(bytearray(frame))[4:])

    return arrive
