"""Addresses to serve on, and those that are told: parsed, checked together by Kafka's rules, and bound.

| setting                      | must be                                                                  |
|------------------------------|--------------------------------------------------------------------------|
| listeners                    | each with a name and a port of its own; a port may have two listeners if |
|                              | one has an IPv4 address and the other an IPv6 one                        |
| listener.security.protocol.map | PLAINTEXT for each of them                                             |
| advertised.listeners         | some of those names, with addresses that one can connect to              |
| inter.broker.listener.name   | one of the advertised                                                    |

Until TLS and SASL are there, an address that other machines can reach is refused unless the operator says
`allow.insecure.listeners=true` (O2).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.base.config import BrokerSettings
from tidelog.base.forms import PLAINTEXT, read_listener_protocols
from tidelog.base.setting import InvalidSetting

LISTENERS, ADVERTISED, PROTOCOL_MAP = "listeners", "advertised.listeners", "listener.security.protocol.map"
PEER_NAME, PEER_PROTOCOL = "inter.broker.listener.name", "security.inter.broker.protocol"


class Listener(NamedTuple):
    host: str
    port: int
    name: str = PLAINTEXT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host or "*"
        return f"{self.name}://{host}:{self.port}"


def parse_listener(key: str, text: str, protocols: Mapping[str, str]) -> Listener:
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not name:
        raise InvalidSetting(f"{key}={text}: the listener has no name; write PLAINTEXT://host:port")
    if not colon or not port:
        raise InvalidSetting(f"{key}={text}: the address has no port; write {name}://host:port")
    if not _is_port(port):
        raise InvalidSetting(f"{key}={text}: {port} is not a port; use 0 to 65535, where 0 picks a free one")
    name = name.upper()
    if name not in protocols:
        raise InvalidSetting(f"{key}={text}: {PROTOCOL_MAP} has no protocol for {name}; add {name}:PLAINTEXT")
    if protocols[name] != PLAINTEXT:
        raise InvalidSetting(
            f"{key}={text}: {protocols[name]} is not served yet; write {PLAINTEXT}://{address}, "
            "and put a proxy in front where clients need TLS or a password"
        )
    return Listener(host.strip("[]"), int(port), name)


def probe_listener_of(settings: BrokerSettings) -> Listener | None:
    """Where /metrics and /health are served; None if nowhere."""
    text = settings.text("probe.listener")
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not _is_port(port):
        raise InvalidSetting(f"probe.listener={text}: expected host:port, with a port from 0 to 65535")
    listener = Listener(host.strip("[]"), int(port))
    _check_reach("probe.listener", listener, settings)
    return listener


def _is_port(text: str) -> bool:
    return len(text) <= 5 and text.isascii() and text.isdigit() and int(text) <= 65_535


def listeners_of(settings: BrokerSettings) -> list[Listener]:
    """Where to serve, once all that is said of listeners fits together."""
    if not settings.words(LISTENERS):
        raise InvalidSetting("listeners: at least one address is needed, as PLAINTEXT://127.0.0.1:9092")
    listeners = _parse(settings, LISTENERS)
    _check_ports(settings, listeners)
    for listener in listeners:
        _check_reach(LISTENERS, listener, settings)
    told = _told(settings)
    _check_told(listeners, told)
    _check_peers(settings, told)
    return listeners


def _parse(settings: BrokerSettings, key: str) -> list[Listener]:
    protocols = read_listener_protocols(settings.text(PROTOCOL_MAP))
    listeners = [parse_listener(key, text, protocols) for text in settings.words(key)]
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            said = ",".join(settings.words(key))
            raise InvalidSetting(f"{key}={said}: listener names must be unique; {name} is there twice")
    return listeners


def _check_ports(settings: BrokerSettings, listeners: Sequence[Listener]) -> None:
    for port in {listener.port: None for listener in listeners if listener.port}:
        families = sorted(_family(listener.host) for listener in listeners if listener.port == port)
        if len(families) > 1 and families != [4, 6]:
            said = ",".join(settings.words(LISTENERS))
            raise InvalidSetting(
                f"{LISTENERS}={said}: each listener needs a port of its own, unless of two one has an IPv4 "
                f"address and the other an IPv6 one; {port} is there {len(families)} times"
            )


def _family(host: str) -> int:
    """4 or 6 for an address, 0 for a name or for nothing."""
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def _told(settings: BrokerSettings) -> list[Listener]:
    return _parse(settings, ADVERTISED if settings.words(ADVERTISED) else LISTENERS)


def _check_told(listeners: Sequence[Listener], told: Sequence[Listener]) -> None:
    names = [listener.name for listener in listeners]
    for listener in told:
        if listener.name not in names:
            raise InvalidSetting(
                f"{ADVERTISED}={listener}: {LISTENERS} has no {listener.name}; it has {', '.join(names)}"
            )
        if _family(listener.host) and ipaddress.ip_address(listener.host).is_unspecified:
            example = Listener("host", listener.port, listener.name)
            raise InvalidSetting(
                f"{ADVERTISED}: {listener.host} stands for all addresses of a machine, clients cannot "
                f"connect to it; set {ADVERTISED}={example}"
            )


def _check_peers(settings: BrokerSettings, told: Sequence[Listener]) -> None:
    if settings.text(PEER_NAME) and settings.is_set(PEER_PROTOCOL):
        raise InvalidSetting(
            f"{PEER_NAME} and {PEER_PROTOCOL} are both set; one of them says what brokers use"
        )
    if settings.text(PEER_PROTOCOL) != PLAINTEXT:
        said = settings.text(PEER_PROTOCOL)
        raise InvalidSetting(f"{PEER_PROTOCOL}={said}: only PLAINTEXT is served")
    name, names = settings.peer_listener, [listener.name for listener in told]
    if name not in names:
        raise InvalidSetting(
            f"{PEER_NAME}={name}: no listener of that name is advertised; set it to one of {', '.join(names)}"
        )


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


def bind(listener: Listener, settings: BrokerSettings, key: str = LISTENERS) -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((listener.host, listener.port))
    except (OSError, UnicodeError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or "no such host"
        raise InvalidSetting(f"{key}={listener.host}:{listener.port}: {reason}") from None
    bound.listen(settings.number("socket.listen.backlog.size"))
    bound.setblocking(False)
    return bound


def advertised_of(
    settings: BrokerSettings, listeners: Sequence[Listener], sockets: Sequence[socket.socket]
) -> dict[str, tuple[str, int]]:
    """What the clients of each listener are told; a port that was left open is the one that was bound."""
    bound = {each.name: sock.getsockname()[1] for each, sock in zip(listeners, sockets, strict=True)}
    return {name: (host or socket.gethostname(), port or bound[name]) for host, port, name in _told(settings)}
