"""Addresses to serve on: parsed, checked, and bound.

Until TLS and SASL are there, an address that other machines can reach is refused unless the operator says
`allow.insecure.listeners=true` (DESIGN 9).
"""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple

from tidelog.base.config import BrokerSettings
from tidelog.base.setting import InvalidSetting

LISTEN_BACKLOG = 1_024


class Listener(NamedTuple):
    host: str
    port: int


def parse_listener(key: str, text: str) -> Listener:
    protocol, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not _is_port(port):
        raise InvalidSetting(f"{key}={text}: expected PLAINTEXT://host:port")
    if protocol.upper() != "PLAINTEXT":
        raise InvalidSetting(f"{key}={text}: only PLAINTEXT listeners are served")
    return Listener(host.strip("[]"), int(port))


def probe_listener_of(settings: BrokerSettings) -> Listener | None:
    """Where /metrics and /health are served; None if nowhere."""
    text = settings.text("probe.listener")
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not _is_port(port):
        raise InvalidSetting(f"probe.listener={text}: expected host:port")
    listener = Listener(host.strip("[]"), int(port))
    _check_reach("probe.listener", listener, settings)
    return listener


def _is_port(text: str) -> bool:
    return len(text) <= 5 and text.isascii() and text.isdigit() and int(text) <= 65_535


def listeners_of(settings: BrokerSettings) -> list[Listener]:
    texts = settings.words("listeners")
    if not texts:
        raise InvalidSetting("listeners: at least one address is needed, as PLAINTEXT://127.0.0.1:9092")
    listeners = [parse_listener("listeners", text) for text in texts]
    for listener in listeners:
        _check_reach("listeners", listener, settings)
    return listeners


def _check_reach(key: str, listener: Listener, settings: BrokerSettings) -> None:
    if not is_loopback(listener.host) and not settings.flag("allow.insecure.listeners"):
        raise InvalidSetting(
            f"{key}={listener.host or '*'}:{listener.port}: reachable from other machines, without "
            "encryption or authentication; use 127.0.0.1, or set allow.insecure.listeners=true"
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(listener: Listener, key: str = "listeners") -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((listener.host, listener.port))
    except (OSError, UnicodeError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or "no such host"
        raise InvalidSetting(f"{key}={listener.host}:{listener.port}: {reason}") from None
    bound.listen(LISTEN_BACKLOG)
    bound.setblocking(False)
    return bound


def advertised_of(settings: BrokerSettings, bound_port: int) -> Listener:
    """What clients are told: `advertised.listeners`, else the first listener with its real port."""
    texts = settings.words("advertised.listeners")
    if texts:
        told = parse_listener("advertised.listeners", texts[0])
        return Listener(told.host, told.port or bound_port)
    first = parse_listener("listeners", settings.words("listeners")[0])
    return Listener(first.host or socket.gethostname(), bound_port)
