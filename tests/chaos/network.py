"""Ways between the machines of a test, through proxies of which each direction can be held.

    way = network.open("broker-2", port)      # whoever comes by that port is on the way to broker 2
    network.hold(("broker-1", "broker-2"))    # what broker 1 says to broker 2 does not arrive
    network.heal()                            # and now it does, late

What is held is not lost: bytes wait as they do in a network that is cut, and come when it is healed, even if
who sent them has long given up. While either direction is held nobody new gets through. Who comes is told by
`whose`, from the ports of its connection.

**Invariant:** bytes of a connection arrive in order and whole, or the connection is ended.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

PIECE_SIZE = 65_536
Direction = tuple[str, str]
"""Who speaks, and to whom."""
Whose = Callable[[int, int], str]
"""From the port of who comes, and the port it came to, to its name."""
_Result = TypeVar("_Result")


class Network:
    """Runs on a thread of its own; what it is asked, it has done when it returns."""

    def __init__(self, whose: Whose) -> None:
        self._whose = whose
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._held: frozenset[Direction] = frozenset()
        self._targets: dict[int, int] = {}  # the port that is listened to, to where it leads
        self._servers: list[asyncio.Server] = []
        self._open: dict[asyncio.StreamWriter, Direction] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()

    def open(self, target: str, port: int = 0, source: str = "") -> int:
        """A new way; without a `source`, `whose` says who comes. The port to come by."""
        return self._do(self._listen(target, port, source))

    def lead(self, way: int, port: int) -> None:
        """Where the way leads from now on."""
        self._targets[way] = port

    def hold(self, *directions: Direction) -> None:
        """These, besides those that are held already."""
        self._do(self._set(self._held | set(directions)))

    def heal(self) -> None:
        self._do(self._set(frozenset()))

    def drop(self, directions: Iterable[Direction]) -> None:
        """End every connection on which these are spoken."""
        self._do(self._drop(frozenset(directions)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # On the network's own thread.

    def _do(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self, target: str, port: int, source: str) -> int:
        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.CancelledError):
                await self._join(reader, writer, target, source)
            writer.close()
            self._open.pop(writer, None)

        server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
        way: int = server.sockets[0].getsockname()[1]
        self._servers.append(server)
        self._targets[way] = port
        return way

    async def _join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str, source: str
    ) -> None:
        near: int = writer.get_extra_info("peername")[1]
        way: int = writer.get_extra_info("sockname")[1]
        if not source:
            source = await self._loop.run_in_executor(None, self._whose, near, way)
        there = (source, target)
        back = (there[1], there[0])
        self._open[writer] = there
        await self._until_passable(there)
        await self._until_passable(back)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._targets[way])
        try:
            for each in (writer, far_writer):  # who came may be gone by now
                each.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, far_writer, there))
                group.create_task(self._pass_on(far_reader, writer, back))
        except* OSError:
            pass
        finally:
            far_writer.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        """Until who speaks has ended, and all of it has arrived."""
        while piece := await reader.read(PIECE_SIZE):
            await self._until_passable(direction)
            writer.write(piece)
            await writer.drain()
        await self._until_passable(direction)
        raise ConnectionResetError  # and so the other direction ends as well

    async def _until_passable(self, direction: Direction) -> None:
        while direction in self._held:
            await self._changed.wait()

    async def _set(self, held: frozenset[Direction]) -> None:
        self._held = held
        self._changed.set()
        self._changed = asyncio.Event()

    async def _drop(self, directions: frozenset[Direction]) -> None:
        for writer, (source, target) in list(self._open.items()):
            if {(source, target), (target, source)} & directions:
                writer.transport.abort()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        await asyncio.sleep(0)  # who has just come is joined before it is sent away
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
