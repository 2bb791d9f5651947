"""What happened, for the operator: a level, the name of the fact, and its particulars by name.

The core appends these to `Broker.events`; the shell writes them, one line for each. The name is the same
for all facts of a kind, because lines are counted and left out by it.

**Invariant:** a password, a key or the contents of a record never is a particular.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

Particular = str | int | float | bool | list[str] | None


class Level(IntEnum):
    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class Event(NamedTuple):
    level: Level
    name: str
    fields: dict[str, Particular]


def debug(name: str, **fields: Particular) -> Event:
    return Event(Level.DEBUG, name, fields)


def info(name: str, **fields: Particular) -> Event:
    return Event(Level.INFO, name, fields)


def warning(name: str, **fields: Particular) -> Event:
    return Event(Level.WARNING, name, fields)


def error(name: str, **fields: Particular) -> Event:
    return Event(Level.ERROR, name, fields)
