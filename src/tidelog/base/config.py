"""The settings in force: the resolved settings of a broker, and a topic's settings as plain attributes.

A broker setting resolves in this order: its dynamic value, the cluster's dynamic default, its configuration
file, Kafka's default. A topic's own setting falls back to the broker's. `TopicSettings` has the resolved
values as plain attributes, because the hot path reads them.

**Invariant:** a value in force was parsed and is within its bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from tidelog.base.broker_rows import BROKER_ROWS
from tidelog.base.group_rows import COORDINATOR_ROWS
from tidelog.base.replication_rows import REPLICATION_ROWS
from tidelog.base.resource_rows import (
    CLIENT_METRICS_ROWS,
    GROUP_FALLBACKS,
    GROUP_ROWS,
    TOPIC_FALLBACKS,
    TOPIC_ROWS,
)
from tidelog.base.setting import InvalidSetting, Setting, UnknownSetting, Value, nearest_name
from tidelog.base.transaction_rows import TRANSACTION_ROWS
from tidelog.base.unused_rows import UNUSED_ROWS

ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
BROKER_SETTINGS = {
    row.name: row
    for row in (*BROKER_ROWS, *COORDINATOR_ROWS, *TRANSACTION_ROWS, *REPLICATION_ROWS, *UNUSED_ROWS)
}
_LISTENER_PREFIX = "listener.name."

TOPIC_SETTINGS = {
    row.name: row
    for row in (
        *(replace(BROKER_SETTINGS[tried[0][0]], name=name) for name, tried in TOPIC_FALLBACKS.items()),
        *TOPIC_ROWS,
    )
}
TOPIC_SETTINGS["retention.ms"] = replace(TOPIC_SETTINGS["retention.ms"], minimum=-1, excluded=())
GROUP_SETTINGS = {
    row.name: row
    for row in (
        *(replace(BROKER_SETTINGS[f"group.{name}"], name=name) for name in GROUP_FALLBACKS),
        *GROUP_ROWS,
    )
}
CLIENT_METRICS_SETTINGS = {row.name: row for row in CLIENT_METRICS_ROWS}
# Broker settings that stand in for a setting that is not set (hours for ms), the finest unit first.
_ANSWERING = {tried[0][0]: tuple(name for name, _ in tried) for tried in TOPIC_FALLBACKS.values()}

_HEARTBEAT, _SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
_BOUNDED = (_HEARTBEAT, _SESSION, "consumer.assignment.interval.ms")


class Source(Enum):
    """Where a value comes from, by Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    STATIC = 4
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """One of the places that a setting's value may come from, and the value there."""

    name: str
    text: str | None
    source: Source


_DEFAULTS = {name: row.default for name, row in BROKER_SETTINGS.items()}


class BrokerSettings:
    """The settings of one broker, parsed and checked."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._static = _parse_broker(properties)
        self._dynamic: dict[str, Value] = {}
        self._dynamic_default: dict[str, Value] = {}
        self.values = self._all_values()
        _check_coordinator(self)

    def set_dynamic(self, own: Mapping[str, str], default: Mapping[str, str]) -> None:
        """Replace the settings changed at run time, of this broker and of all; InvalidSetting changes
        nothing."""
        dynamic, dynamic_default = _parse_dynamic(own), _parse_dynamic(default)
        self._dynamic, self._dynamic_default = dynamic, dynamic_default
        self.values = self._all_values()

    def _all_values(self) -> Mapping[str, Value | None]:
        """Every setting's value, set or default; a new object whenever a setting has changed."""
        return {**_DEFAULTS, **self._static, **self._dynamic_default, **self._dynamic}

    def value(self, name: str) -> Value | None:
        return self.values[name]

    def is_set(self, name: str) -> bool:
        return name in self._static or name in self._dynamic or name in self._dynamic_default

    def number(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int), name
        return value

    def rate(self, name: str) -> float:
        value = self.value(name)
        assert isinstance(value, float), name
        return value

    def text(self, name: str) -> str:
        value = self.value(name)
        assert isinstance(value, str | None), name
        return value or ""

    def flag(self, name: str) -> bool:
        return bool(self.value(name))

    @property
    def peer_listener(self) -> str:
        """The name of the listener that other brokers use."""
        return (
            self.text("inter.broker.listener.name") or self.text("security.inter.broker.protocol")
        ).upper()

    def words(self, name: str) -> tuple[str, ...]:
        value = self.value(name)
        assert isinstance(value, tuple | None), name
        return value or ()

    def synonyms(self, name: str) -> list[Synonym]:
        """Where the value of a setting may come from, the winning place first.

        A setting that stands in for others (`log.retention.hours`) is listed only as the source of those
        others.
        """
        names = _ANSWERING.get(name, (name,))
        found = [
            Synonym(other, BROKER_SETTINGS[other].format(values[other]), source)
            for values, source in (
                (self._dynamic, Source.DYNAMIC_BROKER),
                (self._dynamic_default, Source.DYNAMIC_DEFAULT),
                (self._static, Source.STATIC),
            )
            for other in names
            if other in values
        ]
        for row in (BROKER_SETTINGS[other] for other in names):
            if row.default is not None:
                found.append(Synonym(row.name, row.format(row.default), Source.DEFAULT))
        first = next((place for place, synonym in enumerate(found) if synonym.name == name), len(found))
        return found[first:]

    def idle(self) -> list[str]:
        """The settings that were given and have no effect."""
        return [name for name in self._static if not BROKER_SETTINGS[name].has_effect]


def _parse_broker(properties: Mapping[str, str]) -> dict[str, Value]:
    parsed = {}
    for key, text in properties.items():
        row = broker_setting(key)
        if row is not None:
            parsed[row.name] = row.parse(text)
    return parsed


def _parse_dynamic(properties: Mapping[str, str]) -> dict[str, Value]:
    """The parsed values, without settings read only at startup: they would be shown but not be in force."""
    parsed = _parse_broker(properties)
    return {name: value for name, value in parsed.items() if BROKER_SETTINGS[name].is_dynamic}


def broker_setting(key: str) -> Setting | None:
    """The row of a broker's key; None for a key prefixed with a listener name, which is not supported."""
    row = BROKER_SETTINGS.get(ALIASES.get(key, key))
    if row is None and not is_of_listener(key):
        raise UnknownSetting(f"{key}: no such setting{nearest_name(key, BROKER_SETTINGS)}", key)
    return row


def is_of_listener(key: str) -> bool:
    return key.startswith(_LISTENER_PREFIX) and key.count(".") > 2


def check_topic_setting(name: str, text: str) -> Value:
    """The parsed value of a topic's own setting, or InvalidSetting."""
    row = TOPIC_SETTINGS.get(name)
    if row is None:
        raise UnknownSetting(f"Unknown topic config name: {name}{nearest_name(name, TOPIC_SETTINGS)}")
    return row.parse(text)


def check_topic_settings(overrides: Mapping[str, str]) -> None:
    """Raise InvalidSetting if a topic's settings contradict each other."""
    values = {name: check_topic_setting(name, text) for name, text in overrides.items()}
    least, most = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise InvalidSetting(f"min.compaction.lag.ms={least}: expected at most max.compaction.lag.ms={most}")


def group_number(settings: BrokerSettings, own: Mapping[str, str], key: str) -> int:
    """The number in force for a group: its own, else the broker's, clamped to the broker's present bounds.
    The bounds may have changed since the number was set."""
    value = settings.number(f"group.{key}")
    try:
        taken = GROUP_SETTINGS[key].parse(own[key]) if key in own else value
    except InvalidSetting:  # accepted by another version of this program
        taken = value
    assert isinstance(taken, int), key
    least, most = (settings.number(name) for name in _bounds_of(key))
    return min(max(taken, least), most)


def _bounds_of(key: str) -> tuple[str, str]:
    kind, _, rest = key.partition(".")
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


def check_group_settings(settings: BrokerSettings, own: Mapping[str, str]) -> None:
    """Raise InvalidSetting if a group's numbers exceed the broker's bounds or contradict each other."""
    check_within_bounds(settings, own)
    beat, session = (int(own.get(key, settings.number(f"group.{key}"))) for key in (_HEARTBEAT, _SESSION))
    if session <= beat:
        raise InvalidSetting(f"{_SESSION}={session}: expected more than {_HEARTBEAT}={beat}")


def check_within_bounds(settings: BrokerSettings, own: Mapping[str, str], prefix: str = "") -> None:
    """Raise InvalidSetting if a number of a group (or a `group.…` number of the broker) exceeds the broker's
    bounds."""
    for key in _BOUNDED:
        if prefix + key in own:
            _check_bounds(settings, key, prefix + key, int(own[prefix + key]))


def _check_coordinator(settings: BrokerSettings) -> None:
    """Raise InvalidSetting if the broker's group settings contradict each other."""
    _check_order(settings, "group.min.session.timeout.ms", "group.max.session.timeout.ms")
    for key in _BOUNDED:
        _check_order(settings, *_bounds_of(key))
        _check_bounds(settings, key, f"group.{key}", settings.number(f"group.{key}"))
    beat, session = settings.number(f"group.{_HEARTBEAT}"), settings.number(f"group.{_SESSION}")
    if session <= beat:
        raise InvalidSetting(f"group.{_SESSION}={session}: expected more than group.{_HEARTBEAT}={beat}")


def _check_order(settings: BrokerSettings, low: str, high: str) -> None:
    least, most = settings.number(low), settings.number(high)
    if least > most:
        raise InvalidSetting(f"{low}={least}: expected at most {high}={most}")


def _check_bounds(settings: BrokerSettings, key: str, name: str, number: int) -> None:
    low, high = _bounds_of(key)
    least, most = settings.number(low), settings.number(high)
    if number < least:
        raise InvalidSetting(f"{name}={number}: expected at least {low}={least}")
    if number > most:
        raise InvalidSetting(f"{name}={number}: expected at most {high}={most}")


class Compaction(NamedTuple):
    """When a log is compacted, and how."""

    cleanable_ratio: float  # of dirty bytes, above which it is due
    min_lag_ms: int
    max_lag_ms: int
    delete_retention_ms: int


class TopicSettings:
    """A topic's settings resolved to plain attributes: its own, else the broker's, else the default."""

    __slots__ = (
        "codec_level",
        "codec_name",
        "compaction",
        "file_delete_delay_ms",
        "flush_messages",
        "flush_ms",
        "index_interval_bytes",
        "is_deleted",
        "is_unclean_election_allowed",
        "max_message_bytes",
        "may_have_gaps",
        "min_insync_replicas",
        "overrides",
        "producer_expiration_ms",
        "recovers_balanced",
        "retention_bytes",
        "retention_ms",
        "segment_bytes",
        "segment_index_bytes",
        "segment_jitter_ms",
        "segment_ms",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
        "uses_append_time",
    )

    def __init__(
        self, broker: BrokerSettings, overrides: Mapping[str, str], was_compacted: bool = False
    ) -> None:
        values = {name: resolve_topic_setting(broker, overrides, name) for name in TOPIC_FALLBACKS}

        def number(name: str) -> int:
            value = values[name]
            assert isinstance(value, int), name
            return value

        policies = values["cleanup.policy"]
        assert isinstance(policies, tuple)
        self.overrides = dict(overrides)
        self.is_deleted = "delete" in policies
        self.compaction: Compaction | None = None
        if "compact" in policies:
            ratio = values["min.cleanable.dirty.ratio"]
            assert isinstance(ratio, float)
            lags = number("min.compaction.lag.ms"), number("max.compaction.lag.ms")
            self.compaction = Compaction(ratio, *lags, number("delete.retention.ms"))
        self.may_have_gaps = self.is_compacted or was_compacted  # compaction removed records
        codec_name = str(values["compression.type"])
        self.codec_name = "none" if codec_name == "uncompressed" else codec_name
        level = values.get(f"compression.{codec_name}.level")
        self.codec_level = level if isinstance(level, int) else None
        self.uses_append_time = values["message.timestamp.type"] == "LogAppendTime"
        self.file_delete_delay_ms = number("file.delete.delay.ms")
        self.flush_messages = number("flush.messages")
        self.flush_ms = number("flush.ms")
        self.index_interval_bytes = number("index.interval.bytes")
        self.max_message_bytes = number("max.message.bytes")
        self.min_insync_replicas = number("min.insync.replicas")
        strategy = values["unclean.recovery.strategy"]
        self.recovers_balanced = strategy == "Balanced"
        is_unclean = bool(values["unclean.leader.election.enable"])
        self.is_unclean_election_allowed = is_unclean or strategy == "Aggressive"
        self.retention_bytes = number("retention.bytes")
        self.retention_ms = number("retention.ms")
        self.segment_bytes = number("segment.bytes")
        self.segment_index_bytes = number("segment.index.bytes")
        self.segment_jitter_ms = number("segment.jitter.ms")
        self.segment_ms = number("segment.ms")
        if self.compaction is not None:  # the active segment is not compacted
            self.segment_ms = min(self.segment_ms, self.compaction.max_lag_ms)
        self.timestamp_after_max_ms = number("message.timestamp.after.max.ms")
        self.timestamp_before_max_ms = number("message.timestamp.before.max.ms")
        self.producer_expiration_ms = broker.number("producer.id.expiration.ms")

    @property
    def is_compacted(self) -> bool:
        return self.compaction is not None

    @property
    def recovers_alone(self) -> bool:
        """Whether a partition may recover from its only member, whatever that member may have lost."""
        return self.recovers_balanced or self.is_unclean_election_allowed


def resolve_topic_setting(broker: BrokerSettings, overrides: Mapping[str, str], name: str) -> Value:
    if name in overrides:
        return check_topic_setting(name, overrides[name])
    tried = TOPIC_FALLBACKS.get(name)
    if tried is None:
        default = TOPIC_SETTINGS[name].default
        assert default is not None, name
        return default
    chosen, factor = next(((key, by) for key, by in tried if broker.is_set(key)), tried[-1])
    value = broker.value(chosen)
    assert value is not None, name
    if factor != 1:
        assert isinstance(value, int)
        return value * factor if value >= 0 else value
    return value
