"""The listening sockets: who may come in, by which listener and from which address.

**Invariant:** half of the process's descriptors are for the log: clients cannot take them. Where none are
left, clients wait in the backlog.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from tidelog.base.clock import monotonic_ms
from tidelog.base.config import BrokerSettings
from tidelog.base.events import Event, warning
from tidelog.base.forms import read_address_limits
from tidelog.base.limits import CONNECTIONS_MAX, THROTTLED_CONNECTIONS_MAX
from tidelog.broker.connections import ConnectionRates
from tidelog.server.listeners import Listener, advertised_of, bind
from tidelog.server.process import descriptor_share
from tidelog.server.transports import Transports
from tidelog.server.watch.vitals import Vitals

PAUSE_S = 1.0  # when there are no descriptors left
_BUFFER_SETTINGS = (
    (socket.SO_SNDBUF, "socket.send.buffer.bytes"),
    (socket.SO_RCVBUF, "socket.receive.buffer.bytes"),
)


class Acceptor:
    def __init__(
        self,
        settings: BrokerSettings,
        loop: asyncio.AbstractEventLoop,
        transports: Transports,
        rates: ConnectionRates,
        own_listener: str,
        vitals: Vitals,
        tell: Callable[[Event], None],
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._transports = transports
        self._vitals = vitals
        self._tell = tell
        self._rates = rates
        self._own_listener = own_listener  # between brokers
        self._throttled: dict[socket.socket, None] = {}  # not served, and to be closed when it is time
        self._listening: list[tuple[socket.socket, str]] = []  # with the names of their listeners
        self._is_closed = False

    def bind(self, listeners: Sequence[Listener]) -> dict[str, tuple[str, int]]:
        """What the clients of each are told. Raises InvalidSetting."""
        for listener in listeners:
            self._listening.append((bind(listener, self._settings), listener.name))
        return advertised_of(self._settings, listeners, [sock for sock, _ in self._listening])

    def start(self) -> None:
        for sock, listener in self._listening:
            self._accept_again(sock, listener)

    def close(self) -> None:
        self._is_closed = True
        for sock, _ in self._listening:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._listening.clear()
        for throttled in self._throttled:
            throttled.close()
        self._throttled.clear()

    def _accept_again(self, sock: socket.socket, listener: str) -> None:
        if not self._is_closed:
            self._loop.add_reader(sock.fileno(), self._on_acceptable, sock, listener)

    def _on_acceptable(self, sock: socket.socket, listener: str) -> None:
        try:
            accepted, address = sock.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as failure:  # out of descriptors: the client waits in the backlog
            self._tell(warning("accept failed", reason=failure.strerror))
            self._loop.remove_reader(sock.fileno())
            self._loop.call_later(PAUSE_S, self._accept_again, sock, listener)
            return
        peer = str(address[0])
        if not self._has_room_for(peer):
            accepted.close()
            self._vitals.refused_count += 1
            counts = {"of_peer": self._transports.count_of(peer), "open": self._transports.count}
            self._tell(warning("connection refused", peer=peer, **counts))
            return
        now_ms = monotonic_ms()
        delay_ms = self._rates.delay_ms(peer, now_ms)
        if delay_ms:
            self._refuse_later(accepted, delay_ms, peer)
        else:
            self._vitals.accepted_counts[listener] += 1
            self._set_up(accepted)
            self._transports.add(accepted, (peer, int(address[1])), listener)
        if listener != self._own_listener or len(self._listening) == 1:
            self._maybe_pause(self._rates.pause_ms(now_ms))

    def _refuse_later(self, accepted: socket.socket, delay_ms: int, peer: str) -> None:
        """Its address connects too often: it is closed after a while, so that it does not try again at once
        (KIP-612)."""
        self._vitals.refused_count += 1
        self._tell(warning("connection throttled", peer=peer, delay_ms=delay_ms))
        if len(self._throttled) >= THROTTLED_CONNECTIONS_MAX:
            self._throttled.popitem()[0].close()
        self._throttled[accepted] = None
        self._loop.call_later(delay_ms / 1_000, self._close_throttled, accepted)

    def _close_throttled(self, accepted: socket.socket) -> None:
        self._throttled.pop(accepted, None)
        accepted.close()

    def _maybe_pause(self, pause_ms: int) -> None:
        """Accept nobody for a while, if there is one, but for other brokers that have a listener of their
        own."""
        if not pause_ms or self._is_closed:
            return
        for sock, listener in self._listening:
            if listener != self._own_listener or len(self._listening) == 1:
                self._loop.remove_reader(sock.fileno())
                self._loop.call_later(pause_ms / 1_000, self._accept_again, sock, listener)

    def _has_room_for(self, peer: str) -> bool:
        """By settings that may change while the broker runs."""
        settings, transports = self._settings, self._transports
        limit = min(settings.number("max.connections"), CONNECTIONS_MAX, descriptor_share())
        limits = read_address_limits(settings.text("max.connections.per.ip.overrides"))
        of_peer_max = limits.get(peer, settings.number("max.connections.per.ip"))
        return transports.count + len(self._throttled) < limit and transports.count_of(peer) < of_peer_max

    def _set_up(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, key in _BUFFER_SETTINGS:
            if self._settings.number(key) > 0:
                accepted.setsockopt(socket.SOL_SOCKET, option, self._settings.number(key))
