"""What has settings: topics, brokers, the broker's logger, groups and client metrics, by Kafka's numbers."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from tidelog.base.config import (
    ALIASES,
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    Source,
    Synonym,
    resolve_topic_setting,
)
from tidelog.base.resource_rows import TOPIC_FALLBACKS
from tidelog.base.setting import Change, Kind, Setting
from tidelog.broker.broker import Broker
from tidelog.cluster.image import BROKER_CONFIG, DEFAULT_BROKER
from tidelog.protocol.errors import ErrorCode

ROOT_LOGGER = "root"


class Resource(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Problem(NamedTuple):
    error: ErrorCode
    message: str


class Entry(NamedTuple):
    """One setting of a resource as clients are told."""

    name: str
    text: str | None
    source: Source
    is_read_only: bool
    is_secret: bool
    kind: Kind | None
    meaning: str
    synonyms: list[Synonym]


def _entry(row: Setting, text: str | None, synonyms: list[Synonym], is_read_only: bool = False) -> Entry:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return Entry(row.name, text, source, is_read_only, row.is_secret, row.kind, row.meaning, synonyms)


def topic_entries(broker: Broker, overrides: dict[str, str]) -> Iterator[Entry]:
    for name, row in TOPIC_SETTINGS.items():
        text = row.format(resolve_topic_setting(broker.settings, overrides, name))
        tried = TOPIC_FALLBACKS.get(name)
        synonyms = broker.settings.synonyms(tried[0][0]) if tried else []
        if name in overrides:
            synonyms.insert(0, Synonym(name, text, Source.TOPIC))
        yield _entry(row, text, synonyms)


def broker_entries(broker: Broker) -> Iterator[Entry]:
    settings = broker.settings
    for name, row in BROKER_SETTINGS.items():
        text = row.format(settings.value(name))
        yield _entry(row, text, settings.synonyms(name), row.change is Change.NEVER)
    for alias, name in ALIASES.items():
        row = BROKER_SETTINGS[name]
        entry = _entry(row, row.format(settings.value(name)), [], True)
        yield entry._replace(name=alias, meaning=f"The old name of {name}. {row.meaning}")


def default_broker_entries(broker: Broker) -> Iterator[Entry]:
    """What was set for all brokers at once, and nothing else."""
    for name, text in broker.image.configs[BROKER_CONFIG].get(DEFAULT_BROKER, {}).items():
        row = BROKER_SETTINGS.get(name)
        if row is not None:
            shown = row.format(row.parse(text))
            yield _entry(row, shown, [Synonym(name, shown, Source.DYNAMIC_DEFAULT)])


def group_entries(broker: Broker, overrides: dict[str, str]) -> Iterator[Entry]:
    for name, row in GROUP_SETTINGS.items():
        behind = f"group.{name}"
        if behind in BROKER_SETTINGS:
            value, synonyms = broker.settings.value(behind), broker.settings.synonyms(behind)
        else:
            value, synonyms = row.default, [Synonym(name, row.format(row.default), Source.DEFAULT)]
        text = row.format(row.parse(overrides[name]) if name in overrides else value)
        if name in overrides:
            synonyms.insert(0, Synonym(name, text, Source.GROUP))
        yield _entry(row, text, synonyms)


def client_metrics_entries(overrides: dict[str, str]) -> Iterator[Entry]:
    for name, row in CLIENT_METRICS_SETTINGS.items():
        text = row.format(row.parse(overrides[name]) if name in overrides else row.default)
        synonyms = [Synonym(name, text, Source.CLIENT_METRICS)] if name in overrides else []
        yield _entry(row, text, synonyms)


def logger_entries(broker: Broker) -> Iterator[Entry]:
    level = broker.logger_level
    yield Entry(ROOT_LOGGER, level, Source.LOGGER, False, False, None, "", [])


def node_problem(broker: Broker, name: str, what: str) -> Problem | None:
    """A broker can speak only for itself."""
    digits = name.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 10:
        return Problem(ErrorCode.invalid_request, f"{what} id must be an integer, but it is: {name}")
    if int(name) != broker.node_id:
        return Problem(
            ErrorCode.invalid_request, f"Unexpected broker id, expected {broker.node_id}, but received {name}"
        )
    return None
