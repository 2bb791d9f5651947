"""The targets over sockets: a whole server on loopback, whose loop runs on the fuzzer's own thread.

After each input the loop is turned until there is nothing left to read, so what an input breaks shows with
that input. Every thousand inputs a stranger asks for ApiVersions and must be answered at once, and so must
who asks the probe for the broker's health; after some
thousands the server is dropped as by a crash, its logs must be whole, and a new one takes over.

| first byte | the rest is                                                                               |
|------------|-------------------------------------------------------------------------------------------|
| 0x80 set   | one frame, which gets its size prefix (the probe's: what ends a head of HTTP); the        |
|            | connection stays for the next input                                                       |
| 0x80 clear | a raw stream; afterwards the client hangs up, or with 0x40 vanishes with a reset          |
| 0x20       | answers are not read                                                                      |
| 0x1f       | the bytes go out in so many pieces more                                                   |

**Invariant:** the server never reports a bug of its own, never stops answering, never loses what it took.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Callable, Iterable
from struct import Struct

from tests.fuzz.surroundings import PARTITION_COUNT, TOPICS, Modesty, Numbered
from tests.wire.harness import (
    API_VERSIONS,
    CREATE_TOPICS,
    FIND_COORDINATOR,
    START_MS,
    parts,
    request_frame,
    seconds,
)
from tidelog.base.clock import monotonic_ms, wall_ms
from tidelog.base.events import Event, Level
from tidelog.cluster.store import Store, StoreEvent, StoreReply, StoreRequest, Watch
from tidelog.log.recovery import open_log
from tidelog.server.serve import Server
from tidelog.server.watch.report import Report

LIVES = 20_000  # inputs of one server
LIVENESS_INTERVAL = 1_000
IDLE_TURNS = 2
TURNS_MAX = 200  # of the loop, for any one thing that must happen at once
FRAME_SIZE_MAX = 1024 * 1024
CONNECTIONS_LEFT_MAX = 20
IS_FRAME, IS_RESET, IS_DEAF, PIECES = 0x80, 0x40, 0x20, 0x1F

_SIZE = Struct(">i")
_LINGER_NOT = Struct("ii").pack(1, 0)
_HEAD_END = b"\r\n\r\n"
_HEALTH = b"GET /health HTTP/1.1" + _HEAD_END
_PING = request_frame(API_VERSIONS, 3, 7, client_software_name="x", client_software_version="1")


def _framed(frame: bytes) -> bytes:
    return _SIZE.pack(len(frame)) + frame


class ModestStore:
    """The server's own store, asked for little."""

    def __init__(self, store: Store, notify: Callable[[], object]) -> None:
        self._store = store
        self._notify = notify
        self._objections: list[StoreEvent] = []
        self.modesty = Modesty()
        self.close = store.close
        self.is_connected = True

    def submit(self, request: StoreRequest | Watch) -> None:
        objection = self.modesty.objection(request.action) if isinstance(request, StoreRequest) else None
        if isinstance(request, Watch) or objection is None:
            self._store.submit(request)
        else:
            self._objections.append(StoreReply(request.ticket, objection))
            self._notify()

    def receive(self) -> list[StoreEvent]:
        objections, self._objections = self._objections, []
        return self._store.receive() + objections


class AttentiveReport(Report):
    """The operator's log, of which every error is kept: nothing that a client sends may cause one."""

    def __init__(self) -> None:
        super().__init__(lambda line: None, lambda: "info", False, wall_ms, monotonic_ms)
        self.errors: list[str] = []

    def tell(self, event: Event) -> None:
        if event.level >= Level.ERROR:
            self.errors.append(f"{event.name}: {event.fields}")
        super().tell(event)


class ModestServer(Server):
    """Asks little of its store and listens to itself."""

    def __init__(self, folder: str) -> None:
        properties = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": folder,
            "socket.request.max.bytes": str(FRAME_SIZE_MAX),
            "auto.create.topics.enable": "false",
            "probe.listener": "127.0.0.1:0",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
        }
        super().__init__(properties)
        self.report = self.attentive = AttentiveReport()

    def become_modest(self, topics: Iterable[str]) -> None:
        self.store._store = store = ModestStore(self.store._store, self.store.notify)
        store.modesty.protect([self.broker.image.topics[name].topic_id for name in topics])

    @property
    def connection_count(self) -> int:
        return self.network.transports.count


class Life:
    """One server and its one client of the moment."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tidelog-fuzz-")
        self._loop = asyncio.new_event_loop()
        self.server = ModestServer(self._folder.name)
        self._loop.set_exception_handler(lambda _, context: self.server.attentive.errors.append(str(context)))
        self._loop.run_until_complete(self.server.start())
        self._client: socket.socket | None = None
        self.count = 0
        self._create_topics()

    def _create_topics(self) -> None:
        self.server.broker.kernel.entropy = Numbered()
        part = parts(CREATE_TOPICS, 7)
        topics = tuple(
            part.CreatableTopic(
                name=name,
                num_partitions=PARTITION_COUNT,
                replication_factor=-1,
                assignments=(),
                configs=tuple(part.CreatableTopicConfig(name=key, value=value) for key, value in own.items()),
            )
            for name, own in TOPICS.items()
        )
        asked = request_frame(CREATE_TOPICS, 7, 1, topics=topics, timeout=seconds(60), validate_only=False)
        assert self._ask(_framed(asked), self.server.port, turns_max=1_000_000)
        for kind in (0, 1):  # makes the topics that keep groups and transactional ids
            asked = request_frame(FIND_COORDINATOR, 1, 1, key="kept", key_type=kind)
            assert self._ask(_framed(asked), self.server.port, turns_max=1_000_000)
        self.server.become_modest(TOPICS)

    def turn(self) -> None:
        """Run what the loop has ready, without waiting for more."""
        self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()
        assert not self.server.attentive.errors, self.server.attentive.errors[0]

    def offer(self, flags: int, stream: bytes, port: int) -> None:
        self.count += 1
        client = self._client or self._connect(port)
        self._client = client
        piece_size = len(stream) // (flags % (PIECES + 1) + 1) + 1
        for start in range(0, len(stream), piece_size):
            if not self._send(client, stream[start : start + piece_size]):
                self._hang_up(client)
                return
        is_open = flags & IS_DEAF or self._drain(client)
        if not flags & IS_FRAME or not is_open:
            if flags & IS_RESET:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            self._hang_up(client)

    def _connect(self, port: int) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", port))
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is sent is there to be read
        self.turn()
        return client

    def _hang_up(self, client: socket.socket) -> None:
        client.close()
        self._client = None
        self.turn()

    def _send(self, client: socket.socket, piece: bytes) -> bool:
        """False if the server has had enough of this client, or takes no more for now."""
        try:
            sent = client.send(piece)
        except (BlockingIOError, ConnectionError):
            return False
        self.turn()
        return sent == len(piece)

    def _drain(self, client: socket.socket) -> bool:
        """Read all there is, until nothing more comes; False if the server has closed the connection."""
        idle_turns = 0
        while idle_turns < IDLE_TURNS:
            try:
                if not client.recv(FRAME_SIZE_MAX):
                    return False
                idle_turns = 0
            except BlockingIOError:
                idle_turns += 1
            except ConnectionError:
                return False
            self.turn()
        return True

    def check_liveness(self) -> None:
        assert self._ask(_framed(_PING), self.server.port, TURNS_MAX), "the server does not answer"
        assert self._ask(_HEALTH, self.server.probe_port, TURNS_MAX), "the probe does not answer"
        assert self.server.connection_count <= CONNECTIONS_LEFT_MAX, "closed connections are kept"

    def _ask(self, asked: bytes, port: int, turns_max: int) -> bool:
        """Whether a stranger is answered within so many turns of the loop."""
        with self._connect(port) as stranger:
            stranger.send(asked)
            for _ in range(turns_max):
                self.turn()
                try:
                    return len(stranger.recv(FRAME_SIZE_MAX)) > 8
                except BlockingIOError:
                    continue
        return False

    def end(self) -> None:
        self.check_liveness()
        if self._client is not None:
            self._hang_up(self._client)
        partitions = [*self.server.broker.partitions.all()]
        self._loop.run_until_complete(self.server.abort())
        for partition in partitions:
            folder = partition.directory.directory.folder(f"{partition.topic}-{partition.index}")
            log, report = open_log(folder, partition.log.settings, START_MS)
            assert (report.cut_bytes, report.problems) == (0, []), report
            assert log.end_offset == partition.log.end_offset
            log.close(clean=False)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._folder.cleanup()


_life: Life | None = None


def fuzz_socket(data: bytes) -> None:
    """A client's bytes; see the table above."""
    if data:
        stream = _framed(data[1:]) if data[0] & IS_FRAME else data[1:]
        life = _server()
        life.offer(data[0], stream, life.server.port)


def fuzz_probe(data: bytes) -> None:
    """What somebody sends where /metrics and /health are."""
    if data:
        stream = data[1:] + _HEAD_END if data[0] & IS_FRAME else data[1:]
        life = _server()
        life.offer(data[0], stream, life.server.probe_port)


def _server() -> Life:
    global _life  # noqa: PLW0603  the fuzzer calls a function and nothing else
    if _life is not None and _life.count >= LIVES:
        check_what_is_left()
    _life = _life or Life()
    if _life.count % LIVENESS_INTERVAL == LIVENESS_INTERVAL - 1:
        _life.check_liveness()
    return _life


def check_what_is_left() -> None:
    """The server still answers, and what it leaves behind is whole."""
    global _life  # noqa: PLW0603
    if _life is not None:
        _life.end()
        _life = None
