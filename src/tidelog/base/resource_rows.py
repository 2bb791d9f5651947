"""The settings of topics, groups and client metrics: what each falls back to, or its own default.

A topic's `segment.bytes` falls back to the broker's `log.segment.bytes`, its `retention.ms` to the first of
three that is set; the factor turns the broker's unit into the topic's.
"""

from __future__ import annotations

from tidelog.base.forms import read_offset_reset, read_replicas
from tidelog.base.setting import Kind, Setting

Fallbacks = tuple[tuple[str, int], ...]

# The first broker setting that has a value wins; the last one has the default.
TOPIC_FALLBACKS: dict[str, Fallbacks] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", 3_600_000),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
    "unclean.recovery.strategy": (("unclean.recovery.strategy", 1),),
}

_TIERED = "Has no effect. There is no tiered storage."
_THROTTLED = "Replicas, as partition:broker or *, that the rate of their {}s holds back while not in sync."

# Settings that exist only for topics.
TOPIC_ROWS = (
    *(
        Setting(
            f"{side}.replication.throttled.replicas",
            Kind.LIST,
            (),
            _THROTTLED.format(side),
            read=read_replicas,
        )
        for side in ("follower", "leader")
    ),
    Setting("remote.log.copy.disable", Kind.BOOLEAN, False, _TIERED, has_effect=False),
    Setting("remote.log.delete.on.disable", Kind.BOOLEAN, False, _TIERED, has_effect=False),
    Setting("remote.storage.enable", Kind.BOOLEAN, False, _TIERED, choices=("false",), has_effect=False),
)

# A group's setting falls back to the broker's setting `group.<name>`.
GROUP_FALLBACKS = (
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "share.assignment.interval.ms",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.session.timeout.ms",
    "streams.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas",
    "streams.session.timeout.ms",
)
_NO_SHARING = "Has no effect. Groups that share partitions are not served."
GROUP_ROWS = (
    Setting(
        "share.auto.offset.reset",
        Kind.STRING,
        "latest",
        _NO_SHARING,
        read=read_offset_reset,
        has_effect=False,
    ),
    Setting(
        "share.isolation.level",
        Kind.STRING,
        "read_uncommitted",
        _NO_SHARING,
        choices=("read_committed", "read_uncommitted"),
        has_effect=False,
    ),
    Setting("share.renew.acknowledge.enable", Kind.BOOLEAN, True, _NO_SHARING, has_effect=False),
)

CLIENT_METRICS_ROWS = (
    Setting("interval.ms", Kind.INT, 300_000, "How often clients push.", 100, 3_600_000),
    Setting("match", Kind.LIST, (), "Which clients: selector=pattern, …; none for all."),
    Setting("metrics", Kind.LIST, (), "Prefixes of the metrics wanted; * for all."),
)
