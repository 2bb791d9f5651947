"""The settings of replication and of the controller, as rows."""

from __future__ import annotations

from tidelog.base.setting import INT64_MAX, Change, Kind, Setting

_I, _B, _S = Kind.INT, Kind.BOOLEAN, Kind.STRING
RECOVERY_STRATEGIES = ("Balanced", "None", "Aggressive")
RACK_SELECTOR = "RackAwareReplicaSelector"
_SELECTORS = (RACK_SELECTOR, "LeaderSelector")
_SELECTOR_PACKAGE = "org.apache.kafka.common.replica."

REPLICATION_ROWS = (
    Setting(
        "replica.lag.time.max.ms",
        Kind.LONG,
        30_000,
        "How long a follower may be behind before it is not in sync any more.",
        1,
    ),
    Setting("replica.fetch.wait.max.ms", _I, 500, "How long a leader keeps a follower waiting for records."),
    Setting("replica.fetch.min.bytes", _I, 1, "How much a follower waits for, at most that long."),
    Setting(
        "replica.fetch.max.bytes",
        _I,
        1_048_576,
        "What is asked for of one partition at once; of one that gives much, up to four times that.",
        0,
    ),
    Setting("replica.fetch.response.max.bytes", _I, 10_485_760, "The most that a leader gives at once.", 0),
    Setting("replica.fetch.backoff.ms", _I, 1_000, "How long a follower waits after a failure.", 0),
    Setting("replica.socket.timeout.ms", _I, 30_000, "How long a follower waits for an answer.", 1),
    Setting(
        "replica.selector.class",
        _S,
        None,
        f"Which replica a consumer reads from: the leader, or with {RACK_SELECTOR} one in its rack.",
        choices=tuple(f"{package}{name}" for name in _SELECTORS for package in ("", _SELECTOR_PACKAGE)),
    ),
    *(
        Setting(
            f"{side}.replication.throttled.rate",
            Kind.LONG,
            INT64_MAX,
            f"Bytes a second that {what}, of those that topics name as throttled.",
            0,
            change=Change.ANYWHERE,
        )
        for side, what in (
            ("follower", "this broker takes for replicas that are not in sync"),
            ("leader", "this broker gives to replicas that are not in sync"),
        )
    ),
    Setting(
        "unclean.leader.election.enable",
        _B,
        False,
        "Let a replica that lacks records lead when no other can: what it lacks is lost.",
        change=Change.ANYWHERE,
    ),
    Setting(
        "unclean.recovery.strategy",
        Kind.STRING,
        "Balanced",
        "If no member of a partition is known to have all its records. Balanced: the longest log leads once "
        "all members have answered. None: it stays offline. Aggressive: unclean.leader.election.enable=true.",
        choices=RECOVERY_STRATEGIES,
        change=Change.ANYWHERE,
    ),
    Setting("auto.leader.rebalance.enable", _B, True, "Give leadership back to the preferred replica."),
    Setting("leader.imbalance.check.interval.seconds", Kind.LONG, 300, "How often that is looked at.", 1),
    Setting("controlled.shutdown.enable", _B, True, "Hand leaderships over before a stop."),
)
