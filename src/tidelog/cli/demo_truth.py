"""The expected results of the demo's pipelines, computed in plain Python from the records that were sent.

It shares nothing with the pipelines but the rules: a session ends after half an hour of silence, a stream
drops records that are more than ten minutes late, and its windows close when a record arrives whose time is a
quarter of an hour after their end.

**Invariant:** no Spark.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.spark.pipelines.generated import Record

MINUTE_MS = 60_000
PAUSE_MS = 30 * MINUTE_MS
LATE_MS = 10 * MINUTE_MS
WATERMARK_MS = 15 * MINUTE_MS
FUNNEL_STEP = {
    "activity.page-views": 1,
    "activity.clicks": 2,
    "activity.searches": 2,
    "activity.orders": 3,
}


@dataclass(frozen=True, slots=True)
class Event:
    """A record that can be parsed."""

    topic: str
    time_ms: int
    is_late: bool
    value: Mapping[str, Any]


@dataclass
class Sent:
    """All records of one pipeline: the valid ones, and the invalid ones by topic."""

    events: list[Event] = field(default_factory=list)
    unreadable: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, records: Iterable[Record]) -> Sent:
        sent = cls()
        for topic, _, text, arrived_ms in records:
            try:
                value = json.loads(text)
            except ValueError:
                sent.unreadable[topic] += 1
                continue
            is_late = arrived_ms - value["time"] > LATE_MS
            sent.events.append(Event(topic, value["time"], is_late, value))
        return sent

    @property
    def by_topic(self) -> Counter[str]:
        return Counter(event.topic for event in self.events)

    @property
    def punctual(self) -> list[Event]:
        return [event for event in self.events if not event.is_late]

    @property
    def late_count(self) -> int:
        return sum(event.is_late for event in self.events)

    @property
    def watermark_ms(self) -> int:
        """Windows that end here or earlier are closed when a stream has read everything."""
        return max(event.time_ms for event in self.punctual) - WATERMARK_MS


@dataclass(frozen=True, slots=True)
class Session:
    user: str
    start_ms: int
    end_ms: int
    step: int
    revenue: int


def sessions(events: Iterable[Event]) -> list[Session]:
    """The events of each user without a pause of half an hour."""
    by_user: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_user[event.value["user"]].append(event)
    found = []
    for user, theirs in by_user.items():
        gathered: list[Event] = []
        for event in sorted(theirs, key=lambda event: (event.time_ms, FUNNEL_STEP[event.topic])):
            if gathered and event.time_ms - gathered[-1].time_ms > PAUSE_MS:
                found.append(session_of(user, gathered))
                gathered = []
            gathered.append(event)
        found.append(session_of(user, gathered))
    return found


def session_of(user: str, events: list[Event]) -> Session:
    step = 0
    for event in events:
        step += FUNNEL_STEP[event.topic] == step + 1
    revenue = sum(event.value.get("total", 0) for event in events)
    return Session(user, events[0].time_ms, events[-1].time_ms, step, revenue)


def closed(found: Iterable[Session], watermark_ms: int) -> list[Session]:
    return [session for session in found if session.end_ms + PAUSE_MS <= watermark_ms]


Window = tuple[str, int]
"""A series and the start of its minute."""


def windows(events: Iterable[Event]) -> dict[Window, list[float]]:
    """The values of every series in every minute."""
    found: dict[Window, list[float]] = defaultdict(list)
    for event in events:
        found[series_of(event.value), event.time_ms // MINUTE_MS * MINUTE_MS].append(event.value["value"])
    return found


def series_of(value: Mapping[str, Any]) -> str:
    tags = ",".join(f"{tag}={text}" for tag, text in sorted(value["tags"].items()))
    return f"{value['name']}{{{tags}}}"


def closed_windows(found: Mapping[Window, list[float]], watermark_ms: int) -> dict[Window, list[float]]:
    return {place: values for place, values in found.items() if place[1] + MINUTE_MS <= watermark_ms}


def percentile(values: list[float], share: float) -> float:
    """The smallest value that this share of the values does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]
