"""Settings as rows: name, type, default, scope and meaning, under Kafka's names.

A topic's setting falls back to the broker's setting of another name (`segment.bytes` to
`log.segment.bytes`), and that one to its default. `TopicSettings` and `BrokerSettings` are the resolved
values as plain attributes, because the hot path reads them.

**Invariant:** a value that is out of range or of the wrong type never gets past this file; the error
names the key, the value and what would be right.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
DAY_MS = 24 * 60 * 60 * 1_000

Value = int | str | bool | tuple[str, ...]


class InvalidSetting(Exception):
    """A key or value that cannot be used; the message is fit to print."""


class Kind(Enum):
    INT = "int"
    LONG = "long"
    BOOLEAN = "boolean"
    STRING = "string"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    kind: Kind
    default: Value | None
    meaning: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()

    def parse(self, text: str) -> Value:
        text = text.strip()
        if self.kind is Kind.STRING:
            return self._checked_choice(text)
        if self.kind is Kind.LIST:
            return tuple(self._checked_choice(part.strip()) for part in text.split(",") if part.strip())
        if self.kind is Kind.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise InvalidSetting(f"{self.name}={text}: expected true or false")
            return text.lower() == "true"
        return self._parse_number(text)

    def _checked_choice(self, text: str) -> str:
        if self.choices and text not in self.choices:
            raise InvalidSetting(f"{self.name}={text}: expected one of {', '.join(self.choices)}")
        return text

    def _parse_number(self, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise InvalidSetting(f"{self.name}={text}: expected a whole number") from None
        ceiling = INT32_MAX if self.kind is Kind.INT else INT64_MAX
        low = -ceiling - 1 if self.minimum is None else self.minimum
        high = ceiling if self.maximum is None else self.maximum
        if not low <= number <= high:
            raise InvalidSetting(f"{self.name}={text}: expected a number from {low} to {high}")
        return number


CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
POLICIES = ("delete", "compact")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

_I, _L, _B, _S, _LIST = Kind.INT, Kind.LONG, Kind.BOOLEAN, Kind.STRING, Kind.LIST

BROKER_ROWS = (
    Setting("node.id", _I, 1, "This broker's number in the cluster.", 0),
    Setting("listeners", _LIST, ("PLAINTEXT://127.0.0.1:9092",), "Addresses to serve on."),
    Setting("advertised.listeners", _LIST, (), "Addresses told to clients; by default the listeners."),
    Setting("allow.insecure.listeners", _B, False, "Serve in plain text on addresses others can reach."),
    Setting("log.dirs", _LIST, ("tidelog-data",), "Folders that hold the partitions."),
    Setting("broker.rack", _S, "", "The rack of this broker."),
    Setting("num.partitions", _I, 1, "Partitions of a topic created without a number.", 1),
    Setting("default.replication.factor", _I, 1, "Replicas of a topic created without a number.", 1),
    Setting("auto.create.topics.enable", _B, True, "Create a topic when a client first names it."),
    Setting("delete.topic.enable", _B, True, "Let clients delete topics."),
    Setting("socket.request.max.bytes", _I, 104_857_600, "The largest request.", 1),
    Setting("socket.send.buffer.bytes", _I, -1, "SO_SNDBUF; -1 leaves it to the OS.", -1),
    Setting("socket.receive.buffer.bytes", _I, -1, "SO_RCVBUF; -1 leaves it to the OS.", -1),
    Setting("max.connections", _I, INT32_MAX, "Connections at a time, up to the process's own bound.", 0),
    Setting("max.connections.per.ip", _I, INT32_MAX, "Connections at a time from one address.", 0),
    Setting("connections.max.idle.ms", _L, 600_000, "Close a connection that is idle this long; -1 never."),
    Setting("fetch.max.bytes", _I, 57_671_680, "The most bytes one fetch is answered with.", 1024),
    Setting("max.incremental.fetch.session.cache.slots", _I, 1_000, "Fetch sessions kept.", 0),
    Setting("log.segment.bytes", _I, 1_073_741_824, "Size at which a segment is rolled.", 1024),
    Setting("log.roll.ms", _L, None, "Age at which a segment is rolled.", 1),
    Setting("log.roll.hours", _I, 168, "The same in hours.", 1),
    Setting("log.roll.jitter.ms", _L, None, "How much the age is varied.", 0),
    Setting("log.roll.jitter.hours", _I, 0, "The same in hours.", 0),
    Setting("log.index.size.max.bytes", _I, 10_485_760, "The largest index file.", 4),
    Setting("log.index.interval.bytes", _I, 4_096, "Log bytes between two index entries.", 0),
    Setting("log.retention.ms", _L, None, "Age at which records may go; -1 never.", -1),
    Setting("log.retention.minutes", _I, None, "The same in minutes.", -1),
    Setting("log.retention.hours", _I, 168, "The same in hours.", -1),
    Setting("log.retention.bytes", _L, -1, "Size of a partition beyond which its oldest segments go.", -1),
    Setting("log.retention.check.interval.ms", _L, 300_000, "How often retention looks.", 1),
    Setting("log.segment.delete.delay.ms", _L, 60_000, "How long a deleted file stays.", 0),
    Setting("log.cleanup.policy", _LIST, ("delete",), "How old records go.", choices=POLICIES),
    Setting("log.cleaner.delete.retention.ms", _L, DAY_MS, "How long a tombstone stays.", 0),
    Setting("log.cleaner.min.compaction.lag.ms", _L, 0, "Age before which a record is not compacted.", 0),
    Setting("log.cleaner.min.cleanable.ratio", _S, "0.5", "Dirty share of a log that calls for compaction."),
    Setting("log.flush.interval.messages", _L, INT64_MAX, "Records after which the log is fsynced.", 1),
    Setting("log.flush.interval.ms", _L, None, "Time after which the log is fsynced.", 0),
    Setting("log.flush.scheduler.interval.ms", _L, INT64_MAX, "The same, where that is not set.", 0),
    Setting("log.flush.offset.checkpoint.interval.ms", _I, 60_000, "How often recovery points are kept.", 0),
    Setting("log.message.timestamp.type", _S, "CreateTime", "Whose clock counts.", choices=TIMESTAMP_TYPES),
    Setting("log.message.timestamp.before.max.ms", _L, INT64_MAX, "How old a timestamp may be.", 0),
    Setting("log.message.timestamp.after.max.ms", _L, 3_600_000, "How far ahead a timestamp may be.", 0),
    Setting("message.max.bytes", _I, 1_048_588, "The largest record batch.", 0),
    Setting("compression.type", _S, "producer", "The codec batches are kept in.", choices=CODECS),
    Setting("min.insync.replicas", _I, 1, "Replicas that must have a record before acks=all is answered.", 1),
    Setting("unclean.leader.election.enable", _B, False, "Let a replica that lacks records lead."),
    Setting("producer.id.expiration.ms", _I, DAY_MS, "How long an idle producer is remembered.", 1),
    Setting("producer.id.expiration.check.interval.ms", _I, 600_000, "How often that is looked at.", 1),
)

# Topic settings: name, the broker's settings it falls back to with the factor to our unit, and meaning.
# The first broker setting that is set wins; the last one has the default.
TOPIC_ROWS: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = (
    ("cleanup.policy", (("log.cleanup.policy", 1),)),
    ("compression.type", (("compression.type", 1),)),
    ("delete.retention.ms", (("log.cleaner.delete.retention.ms", 1),)),
    ("file.delete.delay.ms", (("log.segment.delete.delay.ms", 1),)),
    ("flush.messages", (("log.flush.interval.messages", 1),)),
    ("flush.ms", (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1))),
    ("index.interval.bytes", (("log.index.interval.bytes", 1),)),
    ("max.message.bytes", (("message.max.bytes", 1),)),
    ("message.timestamp.after.max.ms", (("log.message.timestamp.after.max.ms", 1),)),
    ("message.timestamp.before.max.ms", (("log.message.timestamp.before.max.ms", 1),)),
    ("message.timestamp.type", (("log.message.timestamp.type", 1),)),
    ("min.cleanable.dirty.ratio", (("log.cleaner.min.cleanable.ratio", 1),)),
    ("min.compaction.lag.ms", (("log.cleaner.min.compaction.lag.ms", 1),)),
    ("min.insync.replicas", (("min.insync.replicas", 1),)),
    ("retention.bytes", (("log.retention.bytes", 1),)),
    (
        "retention.ms",
        (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    ),
    ("segment.bytes", (("log.segment.bytes", 1),)),
    ("segment.index.bytes", (("log.index.size.max.bytes", 1),)),
    ("segment.jitter.ms", (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000))),
    ("segment.ms", (("log.roll.ms", 1), ("log.roll.hours", 3_600_000))),
    ("unclean.leader.election.enable", (("unclean.leader.election.enable", 1),)),
)

ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
_BROKER = {row.name: row for row in BROKER_ROWS}
_TOPIC = dict(TOPIC_ROWS)


def nearest_name(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


class BrokerSettings:
    """The settings of one broker, parsed and checked."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._values: dict[str, Value] = {}
        for key, text in properties.items():
            row = _BROKER.get(ALIASES.get(key, key))
            if row is None:
                raise InvalidSetting(f"{key}: no such setting{nearest_name(key, _BROKER)}")
            self._values[row.name] = row.parse(text)

    def value(self, name: str) -> Value | None:
        """What was set, or the default."""
        found = self._values.get(name)
        return _BROKER[name].default if found is None else found

    def is_set(self, name: str) -> bool:
        return name in self._values

    def number(self, name: str) -> int:
        value = self.value(name)
        assert isinstance(value, int), name
        return value

    def text(self, name: str) -> str:
        value = self.value(name)
        assert isinstance(value, str), name
        return value

    def flag(self, name: str) -> bool:
        return bool(self.value(name))

    def words(self, name: str) -> tuple[str, ...]:
        value = self.value(name)
        assert isinstance(value, tuple), name
        return value


def check_topic_setting(name: str, text: str) -> Value:
    """The parsed value of a topic's own setting, or InvalidSetting."""
    fallbacks = _TOPIC.get(name)
    if fallbacks is None:
        raise InvalidSetting(f"Unknown topic config name: {name}{nearest_name(name, _TOPIC)}")
    row = _BROKER[fallbacks[0][0]]
    named = Setting(name, row.kind, None, row.meaning, row.minimum, row.maximum, row.choices)
    return named.parse(text)


class TopicSettings:
    """A topic's settings resolved to plain attributes: its own, else the broker's, else the default."""

    __slots__ = (
        "codec_name",
        "file_delete_delay_ms",
        "flush_messages",
        "flush_ms",
        "index_interval_bytes",
        "is_compacted",
        "is_deleted",
        "max_message_bytes",
        "min_insync_replicas",
        "overrides",
        "producer_expiration_ms",
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

    def __init__(self, broker: BrokerSettings, overrides: Mapping[str, str]) -> None:
        values = {name: resolve_topic_setting(broker, overrides, name) for name, _ in TOPIC_ROWS}

        def number(name: str) -> int:
            value = values[name]
            assert isinstance(value, int), name
            return value

        policies = values["cleanup.policy"]
        assert isinstance(policies, tuple)
        self.overrides = dict(overrides)
        self.is_deleted = "delete" in policies
        self.is_compacted = "compact" in policies
        codec_name = str(values["compression.type"])
        self.codec_name = "none" if codec_name == "uncompressed" else codec_name
        self.uses_append_time = values["message.timestamp.type"] == "LogAppendTime"
        self.file_delete_delay_ms = number("file.delete.delay.ms")
        self.flush_messages = number("flush.messages")
        self.flush_ms = number("flush.ms")
        self.index_interval_bytes = number("index.interval.bytes")
        self.max_message_bytes = number("max.message.bytes")
        self.min_insync_replicas = number("min.insync.replicas")
        self.retention_bytes = number("retention.bytes")
        self.retention_ms = number("retention.ms")
        self.segment_bytes = number("segment.bytes")
        self.segment_index_bytes = number("segment.index.bytes")
        self.segment_jitter_ms = number("segment.jitter.ms")
        self.segment_ms = number("segment.ms")
        self.timestamp_after_max_ms = number("message.timestamp.after.max.ms")
        self.timestamp_before_max_ms = number("message.timestamp.before.max.ms")
        self.producer_expiration_ms = broker.number("producer.id.expiration.ms")


def resolve_topic_setting(broker: BrokerSettings, overrides: Mapping[str, str], name: str) -> Value:
    if name in overrides:
        return check_topic_setting(name, overrides[name])
    fallbacks = _TOPIC[name]
    chosen, factor = next(((key, by) for key, by in fallbacks if broker.is_set(key)), fallbacks[-1])
    value = broker.value(chosen)
    assert value is not None, name
    if factor != 1:
        assert isinstance(value, int)
        return value * factor if value >= 0 else value
    return value
