"""One socket of one client: bytes in to the broker, answers out, file ranges by sendfile (L5).

Reading stops while the client does not take its answers, or while too many of its requests wait: a slow
reader costs its own patience, and what was read of it by then counts as half-received requests do.
Before a range of a file is sent, its pages are probed; cold ones are read by a thread first, so that the
loop never waits for a disk.

**Invariant:** a file that was cut under a range to be sent, or cannot be read, closes the connection; other
bytes are never sent in place of those that were promised.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from typing import Protocol

from tidelog.base.clock import monotonic_ms
from tidelog.base.files import File, FileSlice
from tidelog.base.forms import PLAINTEXT
from tidelog.base.limits import PIPELINED_REQUESTS_MAX, PROBE_SIZE, SEND_CHUNK_SIZE, UNSENT_BYTES_MAX
from tidelog.protocol.connection import Answer, Connection, Piece
from tidelog.protocol.errors import MalformedRequest
from tidelog.server.buffers import FrameBuffers
from tidelog.server.pages import PageProbe
from tidelog.server.sockets import Sockets, set_low_water

_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_IOV_MAX = 64
_KEPT_FRAME_COST = 200  # what a memoryview takes besides the bytes it shows


class Host(Protocol):
    """What a transport needs of the server it belongs to."""

    loop: asyncio.AbstractEventLoop
    sockets: Sockets
    receive_buffer: memoryview
    frame_buffers: FrameBuffers
    probe: PageProbe

    def on_frames(self, transport: Transport, frames: list[memoryview]) -> None: ...

    def end_turn(self) -> None: ...

    def on_problem(self, transport: Transport, reason: str) -> None: ...

    def on_unreadable(self, file: File, failure: OSError) -> None: ...

    def on_closed(self, transport: Transport) -> None: ...

    def on_buffered(self, change: int) -> None: ...


class Transport:
    __slots__ = (
        "_buffered_size",
        "_host",
        "_is_reading",
        "_is_serving_kept",
        "_is_warming",
        "_is_writing",
        "_kept",
        "_kept_size",
        "_low_water",
        "_queue",
        "_sent",
        "_socket",
        "_unsent_size",
        "_warm_size",
        "connection",
        "is_closed",
        "last_active_ms",
        "last_served_ms",
        "peer",
    )

    def __init__(
        self,
        host: Host,
        sock: socket.socket,
        peer: tuple[str, int],
        frame_size_max: int,
        listener: str = PLAINTEXT,
    ) -> None:
        self._host = host
        self._socket = sock
        self.peer = peer[0]
        self.connection = Connection(frame_size_max, peer, listener, host.frame_buffers)
        self._queue: deque[Piece] = deque()
        self._kept: list[memoryview] = []  # frames that came while there was no room for their answers
        self._kept_size = 0
        self._sent = 0  # bytes of the first piece in the queue that are gone
        self._unsent_size = 0
        self._warm_size = 0  # how much of the first piece, if it is a slice, is known to be in memory
        self._buffered_size = 0  # of a half-received frame
        self._low_water = 1  # what must have come before the socket is ready
        self._is_reading = False
        self._is_serving_kept = False
        self._is_writing = False
        self._is_warming = False
        self.is_closed = False
        self.last_active_ms = monotonic_ms()  # when bytes last came or went
        self.last_served_ms = self.last_active_ms  # when the last whole request had come
        self._resume_reading()

    def _resume_reading(self) -> None:
        if not self._is_reading and not self.is_closed:
            self._is_reading = True
            self._host.sockets.add_reader(self._socket.fileno(), self._on_readable)

    def _pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._host.sockets.remove_reader(self._socket.fileno())

    def _on_readable(self) -> None:
        connection = self.connection
        was_between = connection.partial is None
        try:
            target = None if was_between else connection.receive_target()
            if target is None:
                buffer = self._host.receive_buffer
                size = self._socket.recv_into(buffer)
                frames = connection.receive(buffer[:size])
            else:
                size = self._socket.recv_into(target)
                frame = connection.received_in_target(size)
                frames = [] if frame is None else [frame]
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        except MalformedRequest as problem:
            self.close(str(problem))
            return
        if size == 0:
            self.close()
            return
        if not was_between or connection.partial is not None:
            self._note_partial()
        if frames and not self.is_closed:
            self._host.on_frames(self, frames)
            if target is not None:
                connection.end_frame()

    def is_idle(self, since_ms: int) -> bool:
        """No byte has come or gone since then, and the client waits for nothing."""
        return self.last_active_ms < since_ms and not self.connection.slots and not self.is_closed

    def receive_rest(self) -> None:
        """Take what has come of a frame and is less than the socket was told to wait for."""
        if self._low_water > 1 and self._is_reading:
            self._on_readable()

    def _note_partial(self) -> None:
        """A frame has begun, grown or ended: what is kept of it counts, the rest can come in large pieces."""
        self.last_active_ms = monotonic_ms()
        connection = self.connection
        missing_size = connection.missing_size
        if missing_size or self._low_water > 1:
            self._low_water = set_low_water(self._socket, missing_size, self._low_water)
        if self._buffered_size != connection.buffered_size:
            change = connection.buffered_size - self._buffered_size
            self._buffered_size = connection.buffered_size
            self._host.on_buffered(change)

    def flush(self) -> None:
        """Send what the connection has to say, as far as the socket takes it."""
        output = self.connection.output
        if output:
            self.connection.output = []
            if not self._queue and len(output) == 1 and not isinstance(output[0], list):
                self._send_one(output[0])
            else:
                for answer in output:
                    self._enqueue(answer)
                if not self._is_writing and not self._is_warming:
                    self._write()
        connection = self.connection
        if (
            self._unsent_size
            or self._kept
            or not self._is_reading
            or connection.held_size
            or len(connection.slots) >= PIPELINED_REQUESTS_MAX
        ):
            self._balance()

    def _send_one(self, answer: bytes | bytearray) -> None:
        """The usual case: nothing is queued and there is one small answer."""
        try:
            sent = self._socket.send(answer)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        if sent != len(answer):
            self._enqueue(answer)
            self._sent = sent
            self._unsent_size -= sent
            self._watch_writable()

    def _enqueue(self, answer: Answer) -> None:
        for piece in answer if isinstance(answer, list) else (answer,):
            self._queue.append(piece)
            self._unsent_size += piece.size if isinstance(piece, FileSlice) else len(piece)

    @property
    def unsent_size(self) -> int:
        """Bytes of answers in memory or in files that the client has yet to take."""
        return self._unsent_size

    @property
    def buffered_size(self) -> int:
        """Memory for requests that are not whole yet, or held back."""
        return self._buffered_size + self._kept_size

    @property
    def is_choked(self) -> bool:
        """The client has too much to take, or to wait for, to be given more."""
        connection = self.connection
        return (
            self._unsent_size + connection.held_size > UNSENT_BYTES_MAX
            or len(connection.slots) >= PIPELINED_REQUESTS_MAX
        )

    def keep(self, frames: list[memoryview]) -> None:
        """Hold frames back until the client has taken what it has; their memory is the shared buffer's."""
        if self._is_serving_kept:  # they are copies already, and counted until the last of them is served
            self._kept = frames
            return
        copy = memoryview(bytearray().join(frames))
        end = 0
        for frame in frames:
            start, end = end, end + len(frame)
            self._kept.append(copy[start:end])
        self._kept_size = end + _KEPT_FRAME_COST * len(frames)
        self._host.on_buffered(self._kept_size)

    def _balance(self) -> None:
        """Read on, or not, by what the client has still to take and what it waits for."""
        if self.is_choked:
            self._pause_reading()
        elif self._kept:
            self._pause_reading()
            self._host.loop.call_soon(self._serve_kept)
        else:
            self._resume_reading()

    def _serve_kept(self) -> None:
        frames, self._kept = self._kept, []
        if frames and not self.is_closed:
            self._is_serving_kept = True
            self._host.on_frames(self, frames)
            self._is_serving_kept = False
            if not self._kept and not self.is_closed:
                self._forget_kept()
                self._balance()
            self._host.end_turn()

    def _forget_kept(self) -> None:
        self._kept = []
        self._host.on_buffered(-self._kept_size)
        self._kept_size = 0

    def _watch_writable(self) -> None:
        if not self._is_writing and not self.is_closed:
            self._is_writing = True
            self._host.sockets.add_writer(self._socket.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        self.last_active_ms = monotonic_ms()
        if self._is_warming:  # `_on_warm` goes on; until then there is nothing to write
            self._is_writing = False
            self._host.sockets.remove_writer(self._socket.fileno())
            return
        self._write()
        self._balance()

    def _write(self) -> None:
        try:
            while self._queue:
                first = self._queue[0]
                went = self._send_slice(first) if isinstance(first, FileSlice) else self._send_buffers()
                if not went:
                    return
        except BlockingIOError:
            self._watch_writable()
            return
        except OSError as failure:
            if failure.errno == errno.EIO:
                self._give_up(failure)
            self.close()
            return
        if self._is_writing:
            self._is_writing = False
            self._host.sockets.remove_writer(self._socket.fileno())

    def _send_buffers(self) -> bool:
        """Send the buffers at the head of the queue in one call."""
        buffers: list[bytes | bytearray | memoryview] = []
        more = 0
        for piece in self._queue:
            if isinstance(piece, FileSlice):
                more = _MSG_MORE
                break
            buffers.append(piece)
            if len(buffers) == _IOV_MAX:
                break
        if self._sent:
            buffers[0] = memoryview(buffers[0])[self._sent :]
        self._took(self._socket.sendmsg(buffers, (), more))
        return True

    def _send_slice(self, piece: FileSlice) -> bool:
        """Send a part of a file; False if the pages must be warmed first or the connection is closed."""
        if not piece.is_valid():
            self.close("a file was cut while it was being sent")
            return False
        descriptor = piece.file.fileno()
        if self._sent >= self._warm_size:
            position = piece.position + self._sent
            size = min(piece.size - self._sent, PROBE_SIZE)
            if not self._host.probe.is_warm(descriptor, position, size):
                self._is_warming = True
                self._host.probe.warm(descriptor, position, size, self._on_warm)
                return False
            self._warm_size = self._sent + size
        return self._send_warm(piece, descriptor)

    def _send_warm(self, piece: FileSlice, descriptor: int) -> bool:
        target = self._socket.fileno()
        while self._sent < self._warm_size:
            wanted = min(self._warm_size - self._sent, SEND_CHUNK_SIZE)
            sent = os.sendfile(target, descriptor, piece.position + self._sent, wanted)
            if sent == 0:
                self.close("a file is shorter than it was")
                return False
            self._sent += sent
            self._unsent_size -= sent
            if sent < wanted:  # the socket is full: asking again would only say so
                self._watch_writable()
                return False
        if self._sent == piece.size:
            self._queue.popleft()
            piece.release()
            self._sent = self._warm_size = 0
        return True

    def _on_warm(self, failure: OSError | None) -> None:
        self._is_warming = False
        self.last_active_ms = monotonic_ms()
        if self.is_closed:
            return
        if failure is not None:
            self._give_up(failure)
            self.close("a file could not be read")
            return
        self._write()
        self._balance()

    def _give_up(self, failure: OSError) -> None:
        """The disk does not give the bytes that were promised: whoever asks again is told so."""
        first = self._queue[0] if self._queue else None
        if isinstance(first, FileSlice):
            self._host.on_unreadable(first.file, failure)

    def _took(self, size: int) -> None:
        """The socket has taken `size` bytes of the buffers at the head of the queue."""
        self._unsent_size -= size
        size += self._sent
        queue = self._queue
        while queue:
            piece = queue[0]
            if isinstance(piece, FileSlice) or size < len(piece):
                break
            size -= len(piece)
            queue.popleft()
        self._sent = size

    def close(self, reason: str | None = None) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._pause_reading()
        if self._is_writing:
            self._host.sockets.remove_writer(self._socket.fileno())
        for piece in self._queue:
            if isinstance(piece, FileSlice):
                piece.release()
        self._queue.clear()
        self._forget_kept()
        self._host.on_buffered(-self._buffered_size)
        self._socket.close()
        if reason:
            self._host.on_problem(self, reason)
        self._host.on_closed(self)
        self.connection.drop_answers()
