"""A socket that never blocks: frames in, buffers and slices of files out (L5).

The user of a stream says what is sent and when it is read on; the stream asks `Sockets` for readiness and
calls its user back. Before a slice of a file is sent its pages are probed, and cold ones are read by a
thread first, so that the loop never waits for a disk.

A stream of another kind (TLS) may have to write before it can read, or the other way round, may have frames
without a readable socket and cannot use `sendfile`. All three stay behind `receive`, `send` and `write`.

**Invariant:** a file that was cut under a slice to be sent, or cannot be read, closes the connection; other
bytes are never sent in place of those that were promised.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from typing import Protocol

from tidelog.base.files import File, FileSlice
from tidelog.base.limits import PROBE_SIZE, RECEIVE_BUFFER_SIZE, SEND_BUFFERS_MAX, SEND_CHUNK_SIZE
from tidelog.protocol.connection import Answer, Piece
from tidelog.protocol.errors import MalformedRequest
from tidelog.protocol.framing import FrameCutter
from tidelog.server.page_cache import PageCache
from tidelog.server.sockets import Sockets, set_low_water

_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_DISK_ERRORS = (errno.EIO, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO))  # of sendfile, not its socket


class StreamUser(Protocol):
    def on_readable(self) -> None:
        """There is something to receive."""

    def on_progress(self) -> None:
        """Some of what was queued may have gone."""

    def on_unreadable(self, file: File, failure: OSError) -> None:
        """The disk does not give the bytes that were promised."""

    def close(self, reason: str | None = None) -> None:
        """The stream cannot go on: it has ended, or for this reason."""


class Streams:
    """Makes streams; they share the buffer that small frames are received in and served from."""

    def __init__(self, sockets: Sockets, pages: PageCache) -> None:
        self._sockets = sockets
        self._pages = pages
        self._buffer = memoryview(bytearray(RECEIVE_BUFFER_SIZE))

    def open(self, sock: socket.socket) -> Stream:
        return Stream(sock, self._sockets, self._pages, self._buffer)


class Stream:
    __slots__ = (
        "_buffer",
        "_is_closed",
        "_is_warming",
        "_is_writing",
        "_pages",
        "_queue",
        "_sent",
        "_socket",
        "_sockets",
        "_user",
        "_warm_size",
        "is_reading",
        "low_water",
        "unsent_size",
    )

    def __init__(self, sock: socket.socket, sockets: Sockets, pages: PageCache, buffer: memoryview) -> None:
        self._socket = sock
        self._sockets = sockets
        self._pages = pages
        self._buffer = buffer
        self._user: StreamUser
        self._queue: deque[Piece | memoryview] = deque()
        self._sent = 0  # bytes of the first piece in the queue that are gone
        self._warm_size = 0  # how much of the first piece, if it is a slice, is known to be in memory
        self._is_writing = False
        self._is_warming = False
        self._is_closed = False
        self.is_reading = False
        self.low_water = 1  # what must have come before the socket is ready
        self.unsent_size = 0  # bytes in memory or in files that the other end has yet to take

    def begin(self, user: StreamUser) -> None:
        """Call this user from now on."""
        self._user = user
        self.resume_reading()

    def close(self) -> None:
        self._is_closed = True
        self.pause_reading()
        self._unwatch_writable()
        for piece in self._queue:
            if isinstance(piece, FileSlice):
                piece.release()
        self._queue.clear()
        self._socket.close()

    # In.

    def resume_reading(self) -> None:
        if not self.is_reading and not self._is_closed:
            self.is_reading = True
            self._sockets.add_reader(self._socket.fileno(), self._user.on_readable)

    def pause_reading(self) -> None:
        if self.is_reading:
            self.is_reading = False
            self._sockets.remove_reader(self._socket.fileno())

    def receive(self, frames: FrameCutter) -> list[memoryview] | None:
        """The frames that are whole now; None if nothing has come, or nothing more will."""
        try:
            target = None if frames.partial is None else frames.receive_target()
            if target is None:
                size = self._socket.recv_into(self._buffer)
                whole = frames.receive(self._buffer[:size]) if size else []
            else:
                size = self._socket.recv_into(target)
                frame = frames.received_in_target(size)
                whole = [] if frame is None else [frame]
        except BlockingIOError:
            return None
        except OSError:
            self._user.close()
            return None
        except MalformedRequest as problem:
            self._user.close(str(problem))
            return None
        if not size:
            self._user.close()
            return None
        if self.low_water > 1 or frames.partial is not None:  # the rest can come in large pieces
            self.low_water = set_low_water(self._socket, frames.missing_size, self.low_water)
        return whole

    def is_at_end(self) -> bool:
        """Whether the other end has gone, and nothing that it sent is left to be read."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    # Out.

    def send(self, data: bytes | bytearray) -> None:
        """Now if nothing is queued, as far as the socket takes it. What is left must stay as it is."""
        if self._queue:
            self.enqueue(data)
            self.write()
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._user.close()
            return
        if sent != len(data):
            self.enqueue(data)
            self._sent = sent
            self.unsent_size -= sent
            self._watch_writable()

    def enqueue(self, answer: Answer) -> None:
        """Have it sent by the next `write`, or when the socket can take more."""
        for piece in answer if isinstance(answer, list) else (answer,):
            self._queue.append(piece)
            self.unsent_size += piece.size if isinstance(piece, FileSlice) else len(piece)

    def write(self) -> None:
        if not self._is_writing and not self._is_warming:
            self._write()

    def _watch_writable(self) -> None:
        if not self._is_writing and not self._is_closed:
            self._is_writing = True
            self._sockets.add_writer(self._socket.fileno(), self._on_writable)

    def _unwatch_writable(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._sockets.remove_writer(self._socket.fileno())

    def _on_writable(self) -> None:
        if self._is_warming:  # `_on_warm` goes on; until then there is nothing to write
            self._unwatch_writable()
        else:
            self._write()
        self._user.on_progress()

    def _write(self) -> None:
        try:
            while self._queue:
                first = self._queue[0]
                went = self._send_slice(first) if isinstance(first, FileSlice) else self._send_buffers()
                if not went:
                    return
        except BlockingIOError:
            self._watch_writable()
        except OSError as failure:
            if failure.errno in _DISK_ERRORS:
                self._give_up(failure)
            self._user.close()
        else:
            self._unwatch_writable()

    def _send_buffers(self) -> bool:
        """Send the buffers at the head of the queue in one call."""
        buffers: list[bytes | bytearray | memoryview] = []
        more = 0
        for piece in self._queue:
            if isinstance(piece, FileSlice):
                more = _MSG_MORE
                break
            buffers.append(piece)
            if len(buffers) == SEND_BUFFERS_MAX:
                break
        if self._sent:
            buffers[0] = memoryview(buffers[0])[self._sent :]
        self._took(self._socket.sendmsg(buffers, (), more))
        return True

    def _took(self, size: int) -> None:
        """The socket has taken `size` bytes of the buffers at the head of the queue."""
        self.unsent_size -= size
        size += self._sent
        queue = self._queue
        while queue:
            piece = queue[0]
            if isinstance(piece, FileSlice) or size < len(piece):
                break
            size -= len(piece)
            queue.popleft()
        self._sent = size

    def _send_slice(self, piece: FileSlice) -> bool:
        """Send a part of a file; False if the pages must be warmed first or the connection is closed."""
        if not piece.is_valid():
            self._user.close("a file was cut while it was being sent")
            return False
        descriptor = piece.file.fileno()
        if self._sent >= self._warm_size:
            position = piece.position + self._sent
            size = min(piece.size - self._sent, PROBE_SIZE)
            if not self._pages.probe(descriptor, position, size):
                self._is_warming = True
                self._pages.warm(descriptor, position, size, self._on_warm)
                return False
            self._warm_size = self._sent + size
        return self._send_warm(piece, descriptor)

    def _send_warm(self, piece: FileSlice, descriptor: int) -> bool:
        target = self._socket.fileno()
        while self._sent < self._warm_size:
            wanted = min(self._warm_size - self._sent, SEND_CHUNK_SIZE)
            sent = os.sendfile(target, descriptor, piece.position + self._sent, wanted)
            if sent == 0:
                self._user.close("a file is shorter than it was")
                return False
            self._sent += sent
            self.unsent_size -= sent
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
        if self._is_closed:
            return
        if failure is not None:
            self._give_up(failure)
            self._user.close("a file could not be read")
            return
        first = self._queue[0]
        if isinstance(first, FileSlice):  # sent unprobed: where pages go at once they would be read for ever
            self._warm_size = self._sent + min(first.size - self._sent, PROBE_SIZE)
        self._write()
        self._user.on_progress()

    def _give_up(self, failure: OSError) -> None:
        """The next request is told that the disk does not give these bytes."""
        first = self._queue[0] if self._queue else None
        if isinstance(first, FileSlice):
            self._user.on_unreadable(first.file, failure)
