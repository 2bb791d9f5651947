"""What the activity pipeline should find, in plain Python."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.spark.pipelines.inputs import Row, placed
from tidelog.spark.pipelines.activity.events import KINDS
from tidelog.spark.pipelines.activity.generator import generate
from tidelog.spark.pipelines.activity.sessions import SESSION_ITEMS_MAX
from tidelog.spark.pipelines.generated import Arrivals

START = datetime(2026, 3, 2, 18, tzinfo=UTC)
PAUSE_MS = 30 * 60_000
HOUR_MS = 3_600_000
LATE_MS = 10 * 60_000
STEP = {"view": 1, "click": 2, "search": 2, "order": 3}


def some_rows(seed: int, events: int = 2_000, hours: int = 12) -> list[Row]:
    """An evening and the morning after, with more delays and more damage than usual."""
    arrivals = Arrivals(delayed=0.05, very_late=0.01)
    rows = placed(generate(seed, 60, events, START, timedelta(hours=hours), arrivals))
    broken = Row(rows[7].topic, 1, 999_999, b"user-1", b'{"user":"user-1","time":', rows[7].timestamp_ms)
    return [*rows[:8], broken, *rows[8:]]


@dataclass(frozen=True)
class Event:
    kind: str
    time: int
    value: dict[str, Any]
    row: Row

    @property
    def user(self) -> str:
        return str(self.value["user"])

    @property
    def late(self) -> bool:
        return self.row.timestamp_ms - self.time > LATE_MS


def read(rows: Iterable[Row]) -> tuple[list[Event], list[Row]]:
    """Events, and the rows that cannot be read (the generator only ever cuts records off)."""
    events, broken = [], []
    for row in rows:
        try:
            value = json.loads(row.value or b"")
            events.append(Event(KINDS[row.topic], value["time"], value, row))
        except ValueError:
            broken.append(row)
    return events, broken


@dataclass(frozen=True)
class Session:
    user: str
    events: tuple[Event, ...]

    @property
    def start(self) -> int:
        return self.events[0].time

    @property
    def end(self) -> int:
        return self.events[-1].time

    @property
    def hour(self) -> int:
        """The window in which it closed; the last moment of a session is before its end."""
        return (self.end + PAUSE_MS - 1) // HOUR_MS * HOUR_MS

    @property
    def step(self) -> int:
        step = 0
        for event in self.events:
            step += STEP[event.kind] == step + 1
        return step

    @property
    def items(self) -> list[str]:
        viewed = [
            event.value["item"] for event in self.events if event.kind == "view" and event.value["item"]
        ]
        return list(dict.fromkeys(viewed))[:SESSION_ITEMS_MAX]

    def count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.events)

    @property
    def revenue(self) -> int:
        return sum(event.value.get("total", 0) for event in self.events)


def sessions(events: Iterable[Event]) -> list[Session]:
    by_user: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_user[event.user].append(event)
    found = []
    for user, theirs in by_user.items():
        ordered = sorted(theirs, key=lambda e: (e.time, STEP[e.kind], e.kind, e.value.get("item") or ""))
        cuts = [i for i, event in enumerate(ordered) if i == 0 or event.time - ordered[i - 1].time > PAUSE_MS]
        found += [
            Session(user, tuple(ordered[begin:end]))
            for begin, end in zip(cuts, [*cuts[1:], None], strict=True)
        ]
    return found


def funnel(found: Iterable[Session]) -> set[tuple[int, int, int, int, int]]:
    hours: dict[int, list[int]] = defaultdict(list)
    for session in found:
        hours[session.hour].append(session.step)
    return {
        (hour, len(steps), *(sum(step >= least for step in steps) for least in (1, 2, 3)))  # type: ignore[misc]
        for hour, steps in hours.items()
    }


def top_pages(events: Iterable[Event], count: int) -> dict[int, list[tuple[str, int]]]:
    hours: dict[int, Counter[str]] = defaultdict(Counter)
    for event in events:
        if event.kind == "view":
            hours[event.time // HOUR_MS * HOUR_MS][event.value["page"]] += 1
    return {hour: sorted(pages.items(), key=lambda p: (-p[1], p[0]))[:count] for hour, pages in hours.items()}


def pairs(sets: Iterable[tuple[int, Sequence[str]]]) -> Counter[tuple[int, str, str]]:
    """(hour, item, other) of every item with every item of the same set, itself too."""
    return Counter((hour, a, b) for hour, items in sets for a in items for b in items)


def viewed(found: Iterable[Session]) -> Counter[tuple[int, str, str]]:
    return pairs((session.hour, session.items) for session in found)


def bought(events: Iterable[Event]) -> Counter[tuple[int, str, str]]:
    return pairs(
        (event.time // HOUR_MS * HOUR_MS, [line["item"] for line in event.value["items"]])
        for event in events
        if event.kind == "order"
    )


def best(counts: Counter[tuple[int, str, str]], per_item: int) -> dict[str, list[tuple[str, int, float]]]:
    merged: Counter[tuple[str, str]] = Counter()
    for (_, item, other), count in counts.items():
        merged[item, other] += count
    found: dict[str, list[tuple[str, int, float]]] = defaultdict(list)
    for (item, other), count in sorted(merged.items(), key=lambda p: (-p[1], p[0][1])):
        if item != other and len(found[item]) < per_item:
            found[item].append((other, count, count / merged[item, item]))
    return {item: others for item, others in found.items() if others}
