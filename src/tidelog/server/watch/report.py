"""The operator's log: one line for each fact, on stderr, as text or as JSON.

    2026-11-15T21:00:00.123Z INFO  topic created: topic=tides partitions=3
    {"time": "2026-11-15T21:00:00.123Z", "level": "info", "event": "topic created", "topic": "tides", …}

**Invariant:** whatever a client sent, a fact is one line of printable characters and of bounded length;
of one kind of line at most `EVENT_LINES_MAX` are written in `EVENT_WINDOW_MS`, and then how many were not.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import tidelog
from tidelog.base.clock import monotonic_ms, wall_ms
from tidelog.base.config import BROKER_SETTINGS, BrokerSettings
from tidelog.base.events import Event, Level, Particular, info, warning
from tidelog.base.limits import (
    EVENT_ITEMS_MAX,
    EVENT_LINES_MAX,
    EVENT_TEXT_LENGTH_MAX,
    EVENT_TRACEBACK_LENGTH_MAX,
    EVENT_WINDOW_MS,
)
from tidelog.server.listeners import Listener, is_loopback

TRACEBACK = "traceback"  # the one particular whose end says more than its beginning
HIDDEN = "[hidden]"
# The least that is written, as our setting and as Kafka's logger name it.
LEVELS = {
    "debug": Level.DEBUG,
    "info": Level.INFO,
    "warning": Level.WARNING,
    "error": Level.ERROR,
    "TRACE": Level.DEBUG,
    "DEBUG": Level.DEBUG,
    "INFO": Level.INFO,
    "WARN": Level.WARNING,
    "ERROR": Level.ERROR,
    "FATAL": Level.ERROR,
}
_MARKS = {Level.DEBUG: "DEBUG", Level.INFO: "INFO ", Level.WARNING: "WARN ", Level.ERROR: "ERROR"}


class _Window:
    """The lines of one kind in the last stretch of time."""

    __slots__ = ("begun_ms", "level", "suppressed_count", "written_count")

    def __init__(self, begun_ms: int) -> None:
        self.begun_ms = begun_ms
        self.level = Level.INFO
        self.written_count = 0
        self.suppressed_count = 0


class Report:
    """Writes events. `level` is asked for each of them, because it may be changed while the broker runs."""

    def __init__(
        self,
        write: Callable[[str], None] | None,
        level: Callable[[], str],
        is_json: bool,
        wall_ms: Callable[[], int],
        uptime_ms: Callable[[], int],
    ) -> None:
        self._write = write
        self.level = level
        self._is_json = is_json
        self._wall_ms = wall_ms
        self._uptime_ms = uptime_ms
        self._windows: dict[str, _Window] = {}

    def takes(self, level: Level) -> bool:
        """Whether a line of that level would be written: for what is dear to find out."""
        return self._write is not None and level >= LEVELS[self.level()]

    def tell(self, event: Event) -> None:
        if not self.takes(event.level):
            return
        now_ms = self._uptime_ms()
        window = self._windows.get(event.name)
        if window is None or now_ms - window.begun_ms >= EVENT_WINDOW_MS:
            self._close(event.name)
            window = self._windows[event.name] = _Window(now_ms)
        window.level = max(window.level, event.level)
        if window.written_count >= EVENT_LINES_MAX:
            window.suppressed_count += 1
            return
        window.written_count += 1
        self._put(event)

    def tick(self) -> None:
        """Report how many lines were suppressed when their window ends."""
        now_ms = self._uptime_ms()
        for name, window in list(self._windows.items()):
            if now_ms - window.begun_ms >= EVENT_WINDOW_MS:
                self._close(name)

    def close(self) -> None:
        for name in list(self._windows):
            self._close(name)

    def _close(self, name: str) -> None:
        window = self._windows.pop(name, None)
        if window is not None and window.suppressed_count:
            count = window.suppressed_count
            self._put(Event(window.level, "lines suppressed", {"of": name, "count": count}))

    def _put(self, event: Event) -> None:
        assert self._write is not None
        line = as_json if self._is_json else as_text
        try:
            self._write(line(event, self._wall_ms()))
        except OSError:
            pass  # the log has no reader any more, and that is no reason to stop serving


def report_of(settings: BrokerSettings, write: Callable[[str], None] | None) -> Report:
    """As this broker is set up."""
    is_json = settings.text("operator.log.format") == "json"
    return Report(write, lambda: settings.text("operator.log.level"), is_json, wall_ms, monotonic_ms)


def start_events(
    settings: BrokerSettings, listeners: Sequence[Listener], directories: list[str]
) -> Iterator[Event]:
    """What an operator wants to read first."""
    addresses = [str(listener) for listener in listeners]
    node = settings.number("node.id")
    yield info(
        "starting", version=tidelog.__version__, node=node, listeners=addresses, directories=directories
    )
    if not all(is_loopback(listener.host) for listener in listeners):
        problem = "other machines can connect, without encryption or authentication"
        yield warning("insecure listener opened", listeners=addresses, problem=problem)
    yield Event(Level.DEBUG, "settings loaded", settings_told(settings))
    idle = settings.idle()
    if idle:
        yield info("settings unused", names=idle)


def trace_of(bug: BaseException) -> str:
    return "".join(traceback.format_exception(bug)).strip()


def settings_told(settings: BrokerSettings) -> dict[str, Particular]:
    """What the operator has set; that a password is set, never which."""
    rows = [row for name, row in BROKER_SETTINGS.items() if settings.is_set(name)]
    return {
        row.name: HIDDEN if row.is_secret else row.format(value)
        for row in rows
        if (value := settings.value(row.name)) is not None
    }


def as_text(event: Event, wall_ms: int) -> str:
    fields = " ".join(f"{name}={_word(name, value)}" for name, value in event.fields.items())
    return f"{_time(wall_ms)} {_MARKS[event.level]} {event.name}{': ' if fields else ''}{fields}"


def as_json(event: Event, wall_ms: int) -> str:
    head = {"time": _time(wall_ms), "level": event.level.name.lower(), "event": event.name}
    said = {name: _bounded(name, value) for name, value in event.fields.items()}
    return json.dumps(head | said | head)  # first in order, and nobody's to change


def _time(wall_ms: int) -> str:
    moment = datetime.fromtimestamp(wall_ms / 1_000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _word(name: str, value: Particular) -> str:
    """One word of printable characters: in quotes, with escapes, if it would not be one by itself."""
    value = _bounded(name, value)
    if isinstance(value, list):
        value = ",".join(value)
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    is_plain = value.isprintable() and not any(mark in value for mark in ' "=\\') and value != ""
    return value if is_plain else json.dumps(value, ensure_ascii=not value.isprintable())


def _bounded(name: str, value: Particular) -> Particular:
    if isinstance(value, list):
        shown = [_cut(item) for item in value[:EVENT_ITEMS_MAX]]
        return shown if len(value) <= EVENT_ITEMS_MAX else [*shown, f"… {len(value) - EVENT_ITEMS_MAX} more"]
    if not isinstance(value, str):
        return value
    if name == TRACEBACK and len(value) > EVENT_TRACEBACK_LENGTH_MAX:
        return "…" + value[-EVENT_TRACEBACK_LENGTH_MAX:]
    return value if name == TRACEBACK else _cut(value)


def _cut(text: str) -> str:
    return text if len(text) <= EVENT_TEXT_LENGTH_MAX else text[:EVENT_TEXT_LENGTH_MAX] + "…"
