"""Kafka's client properties, by their Java names, as numbers, switches and addresses.

**Invariant:** an invalid value raises `BadProperty` with the property's name and value.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.errors import BadProperty

Properties = Mapping[str, str]
Address = tuple[str, int]


def read_number(properties: Properties, name: str, default: int, least: int = 0) -> int:
    text = properties.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise BadProperty(f"{name}={text!r}: expected a whole number") from None
    if value < least:
        raise BadProperty(f"{name}={value}: expected at least {least}")
    return value


def read_switch(properties: Properties, name: str, default: bool) -> bool:
    text = properties.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise BadProperty(f"{name}={text!r}: expected true or false")
    return text.strip().lower() == "true"


def read_addresses(properties: Properties) -> list[Address]:
    """`bootstrap.servers`, in the given order."""
    text = properties.get("bootstrap.servers", "")
    addresses = [_read_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise BadProperty("bootstrap.servers is missing; name at least one broker as host:port")
    return addresses


def _read_address(text: str) -> Address:
    host, _, port = text.rpartition("://")[2].rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise BadProperty(f"bootstrap.servers: {text!r} is not of the form host:port")
    return host, int(port)
