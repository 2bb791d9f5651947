"""The settings of a broker for consumer groups and their offsets, under Kafka's names with Kafka's bounds.

What a group may set for itself (`resource_rows.GROUP_FALLBACKS`) is named here behind `group.`, and beside it
the least and the most that a group may choose. `config` holds them to each other.
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
    """A number of consumer groups, and how far a group may depart from it; 0 is a number if `low` is."""
    minimum = min(low, 1)
    usual = f"{meaning}, unless the group has its own."
    return (
        Setting(f"group.consumer.{name}", _I, default, usual, minimum, change=change),
        Setting(f"group.consumer.min.{name}", _I, low, f"The least that a group's {name} may be.", minimum),
        Setting(f"group.consumer.max.{name}", _I, high, f"The most that a group's {name} may be.", minimum),
    )


_CLASSIC = (
    Setting(
        "group.initial.rebalance.delay.ms", _I, 3_000, "How long a new classic group waits for more members."
    ),
    Setting(
        "group.min.session.timeout.ms", _I, 6_000, "The least session that a classic member may ask for."
    ),
    Setting("group.max.session.timeout.ms", _I, 1_800_000, "The most that it may ask for."),
    Setting("group.max.size", _I, INT32_MAX, "Members of a classic group.", 1),
)
_CONSUMER = (
    *_bounded(
        "heartbeat.interval.ms", "How often a member of a consumer group is to call", 5_000, 5_000, 15_000
    ),
    *_bounded("session.timeout.ms", "How long such a member may be silent and stay", 45_000, 45_000, 60_000),
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
        "Who may divide the partitions; the first does where the members name none.",
        choices=ASSIGNORS,
        read=read_distinct,
    ),
    Setting(
        "group.consumer.migration.policy",
        _S,
        "bidirectional",
        "Which way a group with members may change its protocol: upgrade is from classic to consumer.",
        choices=MIGRATIONS,
    ),
    Setting(
        "group.coordinator.rebalance.protocols",
        _LIST,
        PROTOCOLS,
        "The protocols that groups may use; classic is always one. Groups of streams are not served.",
        choices=PROTOCOLS,
        read=read_protocols,
    ),
)
_OFFSETS = (
    Setting("offset.metadata.max.bytes", _I, 4_096, "The longest text kept with a committed offset."),
    Setting(
        "offsets.retention.minutes", _I, 10_080, "How long offsets outlive their group's last member.", 1
    ),
    Setting("offsets.retention.check.interval.ms", _L, 600_000, "How often that is looked at.", 1),
    Setting(
        "offsets.commit.timeout.ms", _I, 5_000, "How long a group's change may take to be replicated.", 1
    ),
    Setting("offsets.topic.num.partitions", _I, 50, "Partitions of __consumer_offsets when it is made.", 1),
    Setting("offsets.topic.replication.factor", _SHORT, 3, "Its replicas, or one on each broker.", 1),
    # The least is that of any topic's segment.bytes; Kafka has 1, and then cannot make the topic.
    Setting(
        "offsets.topic.segment.bytes", _I, 104_857_600, "The size at which its segments are rolled.", 1024
    ),
    Setting(
        "offsets.topic.compression.codec",
        _I,
        0,
        "Has no effect. The records of groups are kept as they are, which is 0.",
        0,
        4,
        has_effect=False,
    ),
)
COORDINATOR_ROWS = (*_CLASSIC, *_CONSUMER, *_OFFSETS)
