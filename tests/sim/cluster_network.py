"""The network of a simulated cluster: connections between brokers, and from clients to them.

Inside a connection order holds; between two it does not. A connection may be cut at any frame; its two ends
hear of it at different times, so that there may be two of the same lane at the server for a while.

| fault        | meaning                                                                                 |
|--------------|-----------------------------------------------------------------------------------------|
| slow         | a frame takes long, and with it all behind it                                           |
| cut          | neither end gets anything more that was not there yet                                   |
| block        | what is sent from one to the other waits until it is over; perhaps the connection breaks |

**Invariant:** every connection that ends is reported to who opened it once, if that still lives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.cluster_node import ClusterNode
from tidelog.broker.clients import Client
from tidelog.broker.peers import PeerClose, PeerSend
from tidelog.protocol.connection import Connection

if TYPE_CHECKING:
    from tests.sim.cluster import World

CLIENTS = 0  # where they are, among the nodes
CONNECT_TIMEOUT_MS = 5_000
FRAME_SIZE_MAX = 1 << 24


class NetworkFaults:
    def __init__(self) -> None:
        self.delay_ms_max = 3
        self.slow = 0.0
        self.slow_ms_max = 400
        self.cut = 0.0


class Link:
    """One connection from a broker to another. Bytes between the two keep their order, both ways."""

    def __init__(self, network: Network, owner: ClusterNode, server: ClusterNode, lane: int) -> None:
        self._network = network
        self._owner = owner
        self._owner_life = owner.life
        self._server = server
        self._server_life = server.life
        self.lane = lane
        self.client = Client(Connection(FRAME_SIZE_MAX))
        self.is_open = True  # for who opened it
        self.is_served = True
        self.is_dead = False  # the other end is gone, which nobody has told
        self._there_ms = 0
        self._back_ms = 0

    @property
    def nodes(self) -> tuple[int, int]:
        return self._owner.node_id, self._server.node_id

    def send(self, frame: bytes) -> None:
        network, clock = self._network, self._network.clock
        if self.is_dead or clock.chance(network.faults.cut):
            self.cut()
        owner_id, server_id = self.nodes
        self._there_ms = max(self._there_ms, network.arrival_ms(owner_id, server_id))
        server_life = self._server_life

        def arrive() -> None:
            if self.is_served:
                clock.note_frame(frame)
                self._server.serve(self, self.client, frame)

        clock.at(self._there_ms, lambda: self._server.receive(server_life, arrive))

    def on_answer(self, frame: bytes) -> None:
        network, clock = self._network, self._network.clock
        if clock.chance(network.faults.cut):
            self.cut()
        owner_id, server_id = self.nodes
        self._back_ms = max(self._back_ms, network.arrival_ms(server_id, owner_id))

        def arrive() -> None:
            broker = self._owner.broker
            if self.is_open and broker is not None:
                clock.note_frame(frame)
                broker.on_peer_frame(server_id, self.lane, memoryview(bytearray(frame))[4:])

        clock.at(self._back_ms, lambda: self._owner.receive(self._owner_life, arrive))

    def on_refused(self) -> None:
        self.cut()

    def cut(self, delay_ms_max: int = 50) -> None:
        """Both ends will hear of it, each in its time. What is under way may still arrive before."""
        clock = self._network.clock
        clock.counts["connections cut"] += 1
        clock.after(clock.random.randint(0, delay_ms_max), self.end_for_owner)
        clock.after(clock.random.randint(0, 2 * delay_ms_max), self.end_for_server)

    def end_for_owner(self) -> None:
        def end() -> None:
            if self.is_open:
                self.is_open = False
                self._network.forget(self)
                if self._owner.broker is not None:
                    self._owner.broker.on_peer_closed(self._server.node_id, self.lane)

        self._owner.receive(self._owner_life, end)

    def end_for_server(self) -> None:
        def end() -> None:
            if self.is_served:
                self.is_served = False
                self._server.drop(self.client)

        self._server.receive(self._server_life, end)


class Call:
    """A client's request on a connection of its own."""

    def __init__(self, network: Network, server: ClusterNode, on_end: Callable[[bytes | None], None]) -> None:
        self._network = network
        self._server = server
        self._on_end = on_end
        self._client = Client(Connection(FRAME_SIZE_MAX))
        self._is_over = False

    def send(self, frame: bytes, timeout_ms: int) -> None:
        network, server, life = self._network, self._server, self._server.life
        clock = network.clock
        clock.after(timeout_ms, lambda: self._end(None))
        if clock.chance(network.faults.cut):
            return

        def arrive() -> None:
            clock.note_frame(frame)
            server.serve(self, self._client, frame)

        clock.at(network.arrival_ms(CLIENTS, server.node_id), lambda: server.receive(life, arrive))

    def on_answer(self, frame: bytes) -> None:
        network = self._network
        server_id = self._server.node_id
        self._server.drop(self._client)
        if not network.clock.chance(network.faults.cut):
            network.clock.at(network.arrival_ms(server_id, CLIENTS), lambda: self._end(frame))

    def on_refused(self) -> None:
        self._network.clock.after(1, lambda: self._end(None))

    def _end(self, frame: bytes | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._on_end(frame)


class PatientCall(Call):
    """A client's request that is waited for until its connection ends: then it was carried out, or never will
    be."""

    def send_patiently(self, frame: bytes) -> None:
        server, network = self._server, self._network
        life, clock = server.life, network.clock
        if not server.is_running or clock.chance(network.faults.cut):
            clock.after(1, lambda: self._end(None))
            return
        network.patient[self] = server.node_id

        def arrive() -> None:
            clock.note_frame(frame)
            server.serve(self, self._client, frame)

        clock.at(network.arrival_ms(CLIENTS, server.node_id), lambda: server.receive(life, arrive))

    def on_answer(self, frame: bytes) -> None:
        network = self._network
        self._server.drop(self._client)
        got = None if network.clock.chance(network.faults.cut) else frame
        network.clock.at(network.arrival_ms(self._server.node_id, CLIENTS), lambda: self._end(got))

    def _end(self, frame: bytes | None) -> None:
        self._network.patient.pop(self, None)
        super()._end(frame)

    def break_off(self) -> None:
        self._network.clock.after(1, lambda: self._end(None))


class Network:
    def __init__(self, world: World) -> None:
        self._world = world
        self.clock = world.clock
        self.faults = NetworkFaults()
        self._links: dict[tuple[int, int, int], Link] = {}  # from, to, lane
        self._blocked: dict[tuple[int, int], int] = {}  # from, to: until when
        self.patient: dict[PatientCall, int] = {}  # by whom they are to be answered

    def arrival_ms(self, sender: int, receiver: int) -> int:
        random, faults = self.clock.random, self.faults
        delay_ms = random.randint(
            0, faults.slow_ms_max if random.random() < faults.slow else faults.delay_ms_max
        )
        return max(self.clock.now_ms, self._blocked.get((sender, receiver), 0)) + delay_ms

    def is_blocked(self, one: int, other: int) -> bool:
        return max(self._blocked.get((one, other), 0), self._blocked.get((other, one), 0)) > self.clock.now_ms

    def block(self, sender: int, receiver: int, until_ms: int, breaks: bool) -> None:
        self._blocked[sender, receiver] = until_ms
        if breaks:
            for link in list(self._links.values()):
                if sorted(link.nodes) == sorted((sender, receiver)):
                    link.cut(3_000)

    def cut_some(self) -> None:
        """Each connection with one chance in three."""
        for link in list(self._links.values()):
            if self.clock.chance(0.3):
                link.cut()

    def heal(self) -> None:
        self._blocked.clear()

    def send(self, owner: ClusterNode, effect: PeerSend) -> None:
        key = (owner.node_id, effect.node_id, effect.lane)
        server = self._world.nodes[effect.node_id]
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = Link(self, owner, server, effect.lane)
            if not server.is_running:
                self.clock.after(self.clock.random.randint(1, 20), link.end_for_owner)
            elif self.is_blocked(owner.node_id, effect.node_id):
                self.clock.after(CONNECT_TIMEOUT_MS, link.end_for_owner)
                return
        link.send(bytes(effect.frame[4:]))

    def call(
        self, server: ClusterNode, frame: bytes, timeout_ms: int, on_end: Callable[[bytes | None], None]
    ) -> None:
        """A client's request, without its size; `on_end` hears the answer with its size, or None."""
        Call(self, server, on_end).send(frame, timeout_ms)

    def call_patiently(
        self, server: ClusterNode, frame: bytes, on_end: Callable[[bytes | None], None]
    ) -> None:
        """The same without a timeout: `on_end` hears None when the connection has ended."""
        PatientCall(self, server, on_end).send_patiently(frame)

    def close(self, owner: ClusterNode, effect: PeerClose) -> None:
        """Who opened the connection gives it up; the other end hears of it when it can."""
        link = self._links.get((owner.node_id, effect.node_id, effect.lane))
        if link is not None:
            self.clock.counts["connections given up"] += 1
            link.is_open = False
            self.forget(link)
            link.cut(1_000)

    def forget(self, link: Link) -> None:
        key = (*link.nodes, link.lane)
        if self._links.get(key) is link:
            del self._links[key]

    def on_process_end(self, node_id: int, is_silent: bool) -> None:
        """All connections from and to it end. The others hear of it soon or, where nobody was left to say so,
        when they next send something."""
        for call in [call for call, server_id in self.patient.items() if server_id == node_id]:
            call.break_off()
        for link in list(self._links.values()):
            if node_id in link.nodes:
                if link.nodes[0] == node_id:
                    self.forget(link)
                if is_silent and link.nodes[1] == node_id:
                    self.clock.counts["silent ends"] += 1
                    link.is_dead = True
                else:
                    link.cut(1_000)
