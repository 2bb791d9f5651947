"""Readers for settings whose text has a grammar of its own.

Each reader returns the parsed value, or raises a ValueError that says what was expected.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address

from tidelog.base.limits import CONNECTIONS_MAX

PLAINTEXT = "PLAINTEXT"  # a protocol, and the default name of its listener
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_COUNT = re.compile(r"[0-9]{1,10}")
_REPLICA = r"(?:[0-9]+:[0-9]+)?"  # partition:broker, or nothing
_REPLICAS = re.compile(rf",*\*,*|{_REPLICA}(?:,{_REPLICA})*")
_NUMBER = "[0-9]{1,14}"  # so that seconds never overflow 63 bits, whatever the unit
_TIME = rf"T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}(?:[.,][0-9]{{0,9}})?S)?"
_RESET = re.compile(rf"latest|earliest|by_duration:(?i:\+?P(?=[0-9T])(?:{_NUMBER}D)?(?:{_TIME})?)")


def read_replicas(text: str) -> str:
    """The throttled replicas of a topic: all, or a list of partition:broker without blanks."""
    if _REPLICAS.fullmatch(text) is None:
        raise ValueError("* alone, or partition:broker, …")
    return text


def read_offset_reset(text: str) -> str:
    """The offset at which a share group begins."""
    if _RESET.fullmatch(text) is None:
        raise ValueError("latest, earliest or by_duration:PnDTnHnMn.nS")
    return text


@lru_cache(maxsize=8)
def read_address_limits(text: str) -> dict[str, int]:
    """The connection limit of some addresses; the last entry for an address wins."""
    limits = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = word.rpartition(":")
        if _COUNT.fullmatch(count.strip()) is None:
            raise ValueError("address:number, …")
        try:
            limits[str(ip_address(host))] = min(int(count), CONNECTIONS_MAX)
        except ValueError:
            raise ValueError("address:number, …; host names are not resolved") from None
    return limits


def read_listener_protocols(text: str) -> dict[str, str]:
    """The protocol of each listener; listener names are not case-sensitive."""
    protocols = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip() for part in word.rpartition(":"))
        if not colon or not name or protocol not in PROTOCOLS:
            raise ValueError(f"name:protocol, …, each protocol one of {', '.join(PROTOCOLS)}")
        protocols[name.upper()] = protocol
    return protocols


def read_distinct(text: str) -> list[str]:
    """A list that is not empty and has no duplicates."""
    words = text.split(",")
    if "" in words or len({*words}) < len(words):
        raise ValueError("at least one value, without duplicates")
    return words


def read_protocols(text: str) -> list[str]:
    """The protocols that groups may use; must include classic, the only one that most clients know."""
    words = read_distinct(text)
    if "classic" not in words:
        raise ValueError("classic among them")
    return words
