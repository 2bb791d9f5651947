"""Facts for the operator's log: a level, the name of the event, and its particulars by name.

The core appends events to the `Outbox`; the shell writes them, one line each. The name is an API: alerts
match it, lines are counted and suppressed by it, and `docs/operations.md` lists it. It is a noun and a past
participle (`replica distrusted`), the same for all events of a kind.

**Invariant:** a password, a key or the contents of a record is never among the particulars.
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
