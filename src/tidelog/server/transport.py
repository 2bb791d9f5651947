"""One client: its frames in to the broker, answers out over its stream.

Reading stops while the client does not take its answers, while too many of its requests wait, and while it is
muted for being over a quota: a slow reader costs its own patience, and what was read of it by then counts as
half-received requests do.

**Invariant:** frames of one client are served in their order, also those that were kept back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidelog.base.clock import monotonic_ms
from tidelog.base.files import File
from tidelog.base.limits import MUTE_LOOK_MS, PIPELINED_REQUESTS_MAX, UNSENT_BYTES_MAX
from tidelog.broker.clients import Client
from tidelog.server.stream import Stream

_KEPT_FRAME_COST = 200  # what a memoryview takes besides the bytes it shows


class Timer(Protocol):
    def cancel(self) -> None: ...


class Host(Protocol):
    """What serves the clients."""

    def on_frames(self, transport: Transport, frames: list[memoryview]) -> None: ...

    def call_soon(self, act: Callable[[], None], /) -> object: ...

    def call_later(self, delay_s: float, act: Callable[[], None], /) -> Timer: ...

    def end_turn(self) -> None: ...

    def on_problem(self, transport: Transport, reason: str) -> None: ...

    def on_unreadable(self, file: File, failure: OSError) -> None: ...

    def on_closed(self, transport: Transport) -> None: ...

    def on_buffered(self, change: int) -> None: ...


class Transport:
    __slots__ = (
        "_buffered_size",
        "_host",
        "_is_serving_kept",
        "_kept",
        "_kept_size",
        "_mute",
        "_stream",
        "client",
        "connection",
        "is_closed",
        "last_active_ms",
        "last_served_ms",
        "peer",
    )

    def __init__(self, host: Host, stream: Stream, client: Client) -> None:
        self._host = host
        self._stream = stream
        self.client = client
        self.connection = client.connection
        self.peer = client.address
        self._kept: list[memoryview] = []  # frames that came while there was no room for their answers
        self._kept_size = 0
        self._buffered_size = 0  # of a half-received frame
        self._is_serving_kept = False
        self._mute: Timer | None = None  # while the client is muted
        self.is_closed = False
        self.last_active_ms = monotonic_ms()  # when bytes last came or went
        self.last_served_ms = self.last_active_ms  # when the last whole request had come
        stream.begin(self)

    def on_readable(self) -> None:
        connection = self.connection
        was_between = connection.partial is None
        frames = self._stream.receive(connection)
        if frames is None:
            return
        if not was_between or connection.partial is not None:
            self._note_partial()
        if frames and not self.is_closed:
            self._host.on_frames(self, frames)
            if not was_between:
                connection.end_frame()

    def is_idle(self, since_ms: int) -> bool:
        """No byte has come or gone since then, and the client waits for nothing."""
        is_waiting = bool(self.connection.slots or self.client.muted_until_ms)
        return self.last_active_ms < since_ms and not is_waiting and not self.is_closed

    def receive_rest(self) -> None:
        """Take what has come of a frame and is less than the socket was told to wait for."""
        if self._stream.low_water > 1 and self._stream.is_reading:
            self.on_readable()

    def _note_partial(self) -> None:
        """A frame has begun, grown or ended: what is kept of it counts."""
        self.last_active_ms = monotonic_ms()
        size = self.connection.buffered_size
        if self._buffered_size != size:
            change, self._buffered_size = size - self._buffered_size, size
            self._host.on_buffered(change)

    def flush(self) -> None:
        """Send what the connection has to say, as far as the socket takes it."""
        connection, stream = self.connection, self._stream
        output = connection.output
        if output:
            connection.output = []
            answer = output[0]
            if len(output) == 1 and not isinstance(answer, list):  # the usual case
                stream.send(answer)
            else:
                for answer in output:
                    stream.enqueue(answer)
                stream.write()
        if (
            stream.unsent_size
            or self._kept
            or not stream.is_reading
            or connection.held_size
            or len(connection.slots) >= PIPELINED_REQUESTS_MAX
            or self.client.muted_until_ms
        ):
            self._balance()

    @property
    def unsent_size(self) -> int:
        """Bytes of answers in memory or in files that the client has yet to take."""
        return self._stream.unsent_size

    @property
    def buffered_size(self) -> int:
        """Memory for requests that are not whole yet, or held back."""
        return self._buffered_size + self._kept_size

    @property
    def is_choked(self) -> bool:
        """The client has too much to take, or to wait for, to be given more, or is muted for its quotas."""
        connection = self.connection
        return (
            self.client.muted_until_ms > 0
            or self._stream.unsent_size + connection.held_size > UNSENT_BYTES_MAX
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
        if self.client.muted_until_ms and self._mute is None:
            self._stay_muted()
        if self.is_choked:
            self._stream.pause_reading()
        elif self._kept:
            self._stream.pause_reading()
            self._host.call_soon(self._serve_kept)
        else:
            self._stream.resume_reading()

    def _stay_muted(self) -> None:
        """Not to be read until its time. Whether it has gone is checked now and then: nothing else would
        show it before."""
        left_ms = self.client.muted_until_ms - monotonic_ms()
        self._mute = self._host.call_later(min(max(left_ms, 1), MUTE_LOOK_MS) / 1_000, self._on_muted)

    def _on_muted(self) -> None:
        self._mute = None
        if self.is_closed:
            return
        if monotonic_ms() >= self.client.muted_until_ms:
            self.client.muted_until_ms = 0
            self.last_active_ms = monotonic_ms()
            self._balance()
        elif not self._kept and self._stream.is_at_end():
            self.close()
        else:
            self._stay_muted()

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

    def on_progress(self) -> None:
        self.last_active_ms = monotonic_ms()
        self._balance()

    def on_unreadable(self, file: File, failure: OSError) -> None:
        self._host.on_unreadable(file, failure)

    def close(self, reason: str | None = None) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self._mute is not None:
            self._mute.cancel()
        self._stream.close()
        self._forget_kept()
        self._host.on_buffered(-self._buffered_size)
        if reason:
            self._host.on_problem(self, reason)
        self._host.on_closed(self)
        self.connection.drop_answers()
