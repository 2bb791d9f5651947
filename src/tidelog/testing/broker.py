"""A broker inside your test: in this process, on a thread of its own, with real sockets and real files.

    with Broker(num_partitions=3) as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers})

Settings have Kafka's names, with `_` for `.` where they are keyword arguments: `num_partitions=3`, or
`**{"num.partitions": 3}`. With several `listeners`, each that ends in `:0` gets a port, and `addresses` has
them all by name. By default the broker uses a free port and a temporary directory,
and keeps both over `kill` and `restart`; a new group does not wait for more members
(`group_initial_rebalance_delay_ms=0`).

**Invariant:** after the `with` block nothing is left: no thread, no port, no temporary directory.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from tidelog.cluster.store import Store
    from tidelog.server.serve import Server

START_TIMEOUT_S = 30.0


OpenStore = Callable[[Callable[[], None]], "Store"]


class Broker:
    """One broker; a context manager."""

    _open_store: OpenStore | None = None  # of a cluster

    def __init__(self, **properties: object) -> None:
        self._properties = {name.replace("_", "."): _text(value) for name, value in properties.items()}
        self.id = int(self._properties.setdefault("node.id", self._properties.pop("broker.id", "1")))
        self._properties.setdefault("listeners", "PLAINTEXT://127.0.0.1:0")
        # A test starts all its consumers itself: do not wait for more.
        self._properties.setdefault("group.initial.rebalance.delay.ms", "0")
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._life: _Life | None = None
        self.addresses: dict[str, str] = {}  # what clients of each listener connect to, by its name
        self.port = 0
        self._probe_port = 0

    @property
    def bootstrap_servers(self) -> str:
        """The value for a client's `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def probe_address(self) -> str:
        """Where /metrics and /health are, if the broker has `probe_listener="127.0.0.1:0"` or the like."""
        assert self._probe_port, "this broker has no probe.listener, or does not run"
        return f"127.0.0.1:{self._probe_port}"

    @property
    def directory(self) -> str:
        """Where the log is: the first of `log.dirs`."""
        return self._properties["log.dirs"].split(",")[0]

    @property
    def is_running(self) -> bool:
        return self._life is not None

    @property
    def known_ids(self) -> set[int]:
        """The brokers of its cluster, as far as this one has heard of them."""
        return self._life.known_ids if self._life is not None else set()

    def start(self) -> None:
        """Start, on the port and the directory of the last time if there was one."""
        assert self._life is None, "the broker is already running"
        if "log.dirs" not in self._properties:
            self._temporary = tempfile.TemporaryDirectory(prefix="tidelog-")
            self._properties["log.dirs"] = self._temporary.name
        life = _Life(self._properties, self._open_store)
        ports, self._probe_port = life.start()
        self._life = life
        self.port = next(iter(ports.values()))
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        listeners = self._properties["listeners"].split(",")
        self._properties["listeners"] = ",".join(_with_port(each.strip(), ports) for each in listeners)

    def stop(self) -> None:
        """A clean shutdown, as by SIGTERM; no error if it is not running."""
        self._end(is_clean=True)

    def kill(self, broker_id: int | None = None) -> None:
        """Drop everything at once, as a crash of the process would."""
        self._check(broker_id)
        self._end(is_clean=False)

    def restart(self, broker_id: int | None = None) -> None:
        """Stop cleanly if it runs, then start again with the same port and directory."""
        self._check(broker_id)
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._clean_up()

    def _check(self, broker_id: int | None) -> None:
        if broker_id is not None and broker_id != self.id:
            raise ValueError(f"no broker {broker_id} here: this one is {self.id}")

    def _end(self, *, is_clean: bool) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.end(is_clean=is_clean)

    def _clean_up(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()


class _Life:
    """One run of the server, from start to end, on a thread with its own loop."""

    def __init__(self, properties: dict[str, str], open_store: OpenStore | None) -> None:
        self._properties = dict(properties)
        self._open_store = open_store
        self._loop = asyncio.new_event_loop()
        self._ending: asyncio.Future[bool] = self._loop.create_future()
        self._started: Future[tuple[dict[str, int], int]] = Future()
        self._ended: Future[None] = Future()
        self._server: Server | None = None
        self._thread = threading.Thread(target=self._run, name="tidelog-broker", daemon=True)

    def start(self) -> tuple[dict[str, int], int]:
        """The port of each listener and the probe's, once it serves."""
        self._thread.start()
        try:
            return self._started.result(START_TIMEOUT_S)
        except BaseException:
            if self._started.done():  # it could not start: clean up before the error is raised
                self._thread.join()
            raise

    def end(self, *, is_clean: bool) -> None:
        self._loop.call_soon_threadsafe(self._ending.set_result, is_clean)
        self._thread.join()
        self._ended.result()

    @property
    def known_ids(self) -> set[int]:
        return set(self._server.broker.image.brokers) if self._server is not None else set()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
            self._ended.set_result(None)
        except BaseException as error:
            self._ended.set_exception(error)
            if not self._started.done():
                self._started.set_exception(error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        from tidelog.server.serve import Server

        server = self._server = Server(self._properties, open_shared=self._open_store)
        await server.start()
        ports = {name: port for name, (_, port) in server.addresses.items()}
        self._started.set_result((ports, server.probe_port))
        if await self._ending:
            await server.stop()
        else:
            await server.abort()


def _with_port(listener: str, ports: dict[str, int]) -> str:
    """The port that a listener got, to be its port the next time too."""
    port = ports.get(listener.partition("://")[0].upper())
    return f"{listener.removesuffix('0')}{port}" if port and listener.endswith(":0") else listener


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(part) for part in value)
    return str(value)
