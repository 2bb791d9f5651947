"""The texts of settings that have a grammar of their own.

Each reader takes a text and returns what it stands for, or raises a ValueError that says what was expected.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address

from tidelog.base.limits import CONNECTIONS_MAX

PLAINTEXT = "PLAINTEXT"  # a protocol, and the listener that is called so unless it has another name
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_COUNT = re.compile(r"[0-9]{1,10}")
_REPLICA = r"(?:[0-9]+:[0-9]+)?"  # partition:broker, or nothing
_REPLICAS = re.compile(rf",*\*,*|{_REPLICA}(?:,{_REPLICA})*")
_NUMBER = "[0-9]{1,14}"  # what cannot overflow 63 bits of seconds, whatever the unit
_TIME = rf"T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}(?:[.,][0-9]{{0,9}})?S)?"
_RESET = re.compile(rf"latest|earliest|by_duration:(?i:\+?P(?=[0-9T])(?:{_NUMBER}D)?(?:{_TIME})?)")


def read_replicas(text: str) -> str:
    """Those of a topic that are throttled: all of them, or some; there are no blanks around the commas."""
    if _REPLICAS.fullmatch(text) is None:
        raise ValueError("* alone, or partition:broker, …")
    return text


def read_offset_reset(text: str) -> str:
    """Where a share group begins."""
    if _RESET.fullmatch(text) is None:
        raise ValueError("latest, earliest or by_duration:PnDTnHnMn.nS")
    return text


@lru_cache(maxsize=8)
def read_address_limits(text: str) -> dict[str, int]:
    """How many connections some addresses may have; the last word about an address counts."""
    limits = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = word.rpartition(":")
        if _COUNT.fullmatch(count.strip()) is None:
            raise ValueError("address:number, …")
        try:
            limits[str(ip_address(host))] = min(int(count), CONNECTIONS_MAX)
        except ValueError:
            raise ValueError("address:number, …; the names of hosts are not looked up") from None
    return limits


def read_listener_protocols(text: str) -> dict[str, str]:
    """The protocol of each listener, by its name, which has no case."""
    protocols = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip() for part in word.rpartition(":"))
        if not colon or not name or protocol not in PROTOCOLS:
            raise ValueError(f"name:protocol, …, each protocol one of {', '.join(PROTOCOLS)}")
        protocols[name.upper()] = protocol
    return protocols


def read_distinct(text: str) -> list[str]:
    """A list with something in it, and nothing twice."""
    words = text.split(",")
    if "" in words or len({*words}) < len(words):
        raise ValueError("at least one word, and none twice")
    return words


def read_protocols(text: str) -> list[str]:
    """Those that groups may use; most clients know no other than the classic one."""
    words = read_distinct(text)
    if "classic" not in words:
        raise ValueError("classic among them")
    return words
