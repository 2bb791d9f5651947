"""The settings of a broker for consumer groups and their offsets, under Kafka's names with Kafka's bounds.

A setting that groups may override (`resource_rows.GROUP_FALLBACKS`) is `group.<name>` here, with the minimum
and the maximum that a group may choose beside it. `config` checks them against each other.
"""

from __future__ import annotations

from tidelog.base.forms import read_distinct, read_protocols
from tidelog.base.setting import INT32_MAX, Change, Kind, Setting

ASSIGNORS = ("uniform", "range")
PROTOCOLS = ("classic", "consumer", "streams")
MIGRATIONS = ("bidirectional", "upgrade", "downgrade", "disabled")

_I, _L, _SHORT, _S, _LIST = Kind.INT, Kind.LONG, Kind.SHORT, Kind.STRING, Kind.LIST


def _bounded(
    name: str, meaning: str, default: int, low: int, high: int, change: Change = Change.NEVER
) -> tuple[Setting, ...]:
    """A number of consumer groups, with the bounds of a group's own number; 0 is allowed if `low` is 0."""
    minimum = min(low, 1)
    usual = f"{meaning}, unless the group has its own."
    return (
        Setting(f"group.consumer.{name}", _I, default, usual, minimum, change=change),
        Setting(f"group.consumer.min.{name}", _I, low, f"Minimum of a group's own {name}.", minimum),
        Setting(f"group.consumer.max.{name}", _I, high, f"Maximum of a group's own {name}.", minimum),
    )


_CLASSIC = (
    Setting(
        "group.initial.rebalance.delay.ms", _I, 3_000, "How long a new classic group waits for more members."
    ),
    Setting("group.min.session.timeout.ms", _I, 6_000, "Minimum session timeout of a classic member."),
    Setting("group.max.session.timeout.ms", _I, 1_800_000, "Maximum session timeout of a classic member."),
    Setting("group.max.size", _I, INT32_MAX, "Members of a classic group.", 1),
)
_CONSUMER = (
    *_bounded(
        "heartbeat.interval.ms",
        "How often a member of a consumer group sends heartbeats",
        5_000,
        5_000,
        15_000,
    ),
    *_bounded(
        "session.timeout.ms",
        "Silence after which a member of a consumer group is removed",
        45_000,
        45_000,
        60_000,
    ),
    *_bounded(
        "assignment.interval.ms",
        "The time between two assignments of a consumer group",
        1_000,
        0,
        15_000,
        Change.ANYWHERE,
    ),
    Setting("group.consumer.max.size", _I, INT32_MAX, "Members of a consumer group.", 1),
    Setting(
        "group.consumer.assignors",
        _LIST,
        ASSIGNORS,
        "The assignors that groups may use; the first is the default.",
        choices=ASSIGNORS,
        read=read_distinct,
    ),
    Setting(
        "group.consumer.migration.policy",
        _S,
        "bidirectional",
        "Ways in which a group with members may change its protocol; upgrade: classic to consumer.",
        choices=MIGRATIONS,
    ),
    Setting(
        "group.coordinator.rebalance.protocols",
        _LIST,
        PROTOCOLS,
        "The protocols that groups may use; must include classic. Streams groups are not served.",
        choices=PROTOCOLS,
        read=read_protocols,
    ),
)
_OFFSETS = (
    Setting("offset.metadata.max.bytes", _I, 4_096, "The longest metadata text of a committed offset."),
    Setting(
        "offsets.retention.minutes",
        _I,
        10_080,
        "How long offsets are kept after the group's last member left.",
        1,
    ),
    Setting("offsets.retention.check.interval.ms", _L, 600_000, "How often expired offsets are removed.", 1),
    Setting(
        "offsets.commit.timeout.ms",
        _I,
        5_000,
        "How long a commit or a group's change may take to be replicated.",
        1,
    ),
    Setting(
        "offsets.topic.num.partitions", _I, 50, "Partitions of __consumer_offsets when it is created.", 1
    ),
    Setting(
        "offsets.topic.replication.factor",
        _SHORT,
        3,
        "Replicas of __consumer_offsets, at most one on each broker.",
        1,
    ),
    # The minimum is that of any topic's segment.bytes; Kafka allows 1 and then cannot create the topic.
    Setting("offsets.topic.segment.bytes", _I, 104_857_600, "The segment size of __consumer_offsets.", 1024),
    Setting(
        "offsets.topic.compression.codec",
        _I,
        0,
        "Has no effect. The records of groups are stored uncompressed.",
        0,
        4,
        has_effect=False,
    ),
)
COORDINATOR_ROWS = (*_CLASSIC, *_CONSUMER, *_OFFSETS)
