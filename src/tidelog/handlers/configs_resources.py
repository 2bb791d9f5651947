"""What has settings: topics, brokers, the broker's logger, groups and client metrics, by Kafka's numbers.

**Invariant:** whatever the store has, each of its resources can be described: a value that this version does
not take is not in force, and not told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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
from tidelog.base.setting import InvalidSetting, Kind, Setting, Value
from tidelog.broker.broker import Broker
from tidelog.protocol.errors import ErrorCode, Problem

ROOT_LOGGER = "root"


class Resource(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


Overrides = Mapping[str, str]
_NAMES: dict[int, Collection[str]] = {
    Resource.TOPIC: TOPIC_SETTINGS,
    Resource.BROKER: {**BROKER_SETTINGS, **ALIASES},
    Resource.GROUP: GROUP_SETTINGS,
    Resource.CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
    Resource.BROKER_LOGGER: (ROOT_LOGGER,),
}


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


def setting_names(kind: int, resource_name: str, overrides: Overrides) -> Collection[str]:
    """The settings that a resource is described with; for all brokers at once, what was set and no more."""
    if kind == Resource.BROKER and not resource_name:
        return [name for name, text in overrides.items() if _is_default(name, text)]
    return _NAMES[kind]


def entry_of(broker: Broker, kind: int, name: str, own: str | None) -> Entry:
    """One setting of a resource that has set it to `own`, or has not."""
    match kind:
        case Resource.TOPIC:
            return topic_entry(broker, name, own)
        case Resource.BROKER:
            return _broker_entry(broker, name) if own is None else _default_entry(name, own)
        case Resource.BROKER_LOGGER:
            return Entry(ROOT_LOGGER, broker.logger_level, Source.LOGGER, False, False, None, "", [])
        case Resource.GROUP:
            return _group_entry(broker, name, own)
        case _:
            return _client_metrics_entry(name, own)


def _entry(row: Setting, value: Value | None, synonyms: list[Synonym], is_read_only: bool = False) -> Entry:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    text = row.format(value)
    return Entry(row.name, text, source, is_read_only, row.is_secret, row.kind, row.meaning, synonyms)


def _taken(row: Setting, text: str | None) -> Value | None:
    """A resource's own value, unless another version of this program took it and this one does not."""
    try:
        return None if text is None else row.parse(text)
    except InvalidSetting:
        return None


def _first(row: Setting, value: Value, source: Source, others: list[Synonym]) -> list[Synonym]:
    return [Synonym(row.name, row.format(value), source), *others]


def topic_entry(broker: Broker, name: str, own: str | None) -> Entry:
    row, tried = TOPIC_SETTINGS[name], TOPIC_FALLBACKS.get(name)
    synonyms = broker.settings.synonyms(tried[0][0]) if tried else []
    value = _taken(row, own)
    if value is None:
        return _entry(row, resolve_topic_setting(broker.settings, {}, name), synonyms)
    return _entry(row, value, _first(row, value, Source.TOPIC, synonyms))


def topic_entries(broker: Broker, overrides: Overrides) -> Iterator[Entry]:
    return (topic_entry(broker, name, overrides.get(name)) for name in TOPIC_SETTINGS)


def _broker_entry(broker: Broker, name: str) -> Entry:
    settings, named = broker.settings, ALIASES.get(name, name)
    row = BROKER_SETTINGS[named]
    if name == named:
        return _entry(row, settings.value(name), settings.synonyms(name), not row.is_dynamic)
    entry = _entry(row, settings.value(named), [], True)
    return entry._replace(name=name, meaning=f"The old name of {named}. {row.meaning}")


def _is_default(name: str, text: str) -> bool:
    row = BROKER_SETTINGS.get(name)
    return row is not None and row.is_dynamic and _taken(row, text) is not None


def _default_entry(name: str, own: str) -> Entry:
    row = BROKER_SETTINGS[name]
    value = row.parse(own)
    return _entry(row, value, _first(row, value, Source.DYNAMIC_DEFAULT, []))


def _group_entry(broker: Broker, name: str, own: str | None) -> Entry:
    row, behind = GROUP_SETTINGS[name], f"group.{name}"
    if behind in BROKER_SETTINGS:
        usual, synonyms = broker.settings.value(behind), broker.settings.synonyms(behind)
    else:
        usual, synonyms = row.default, [Synonym(name, row.format(row.default), Source.DEFAULT)]
    value = _taken(row, own)
    if value is None:
        return _entry(row, usual, synonyms)
    return _entry(row, value, _first(row, value, Source.GROUP, synonyms))


def _client_metrics_entry(name: str, own: str | None) -> Entry:
    row = CLIENT_METRICS_SETTINGS[name]
    value = _taken(row, own)
    if value is None:
        return _entry(row, row.default, [])
    return _entry(row, value, _first(row, value, Source.CLIENT_METRICS, []))


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
