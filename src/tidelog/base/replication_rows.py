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
        "How long a follower may lag before it leaves the ISR.",
        1,
    ),
    Setting(
        "replica.fetch.wait.max.ms",
        _I,
        500,
        "How long a leader holds a follower's fetch to wait for records.",
    ),
    Setting("replica.fetch.min.bytes", _I, 1, "Bytes that a follower's fetch waits for."),
    Setting(
        "replica.fetch.max.bytes",
        _I,
        1_048_576,
        "The most bytes per partition in a follower's fetch; up to four times as many from a busy partition.",
        0,
    ),
    Setting(
        "replica.fetch.response.max.bytes", _I, 10_485_760, "The largest answer to a follower's fetch.", 0
    ),
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
            f"Bytes a second that {what}, counting the replicas that topics list as throttled.",
            0,
            change=Change.ANYWHERE,
        )
        for side, what in (
            ("follower", "this broker fetches for replicas that are not in sync"),
            ("leader", "this broker sends to replicas that are not in sync"),
        )
    ),
    Setting(
        "unclean.leader.election.enable",
        _B,
        False,
        "Elect a replica that lacks records when no other can lead; those records are lost.",
        change=Change.ANYWHERE,
    ),
    Setting(
        "unclean.recovery.strategy",
        Kind.STRING,
        "Balanced",
        "If no member of a partition is known to have all records. Balanced: the longest log leads once "
        "all members have answered. None: it stays offline. Aggressive: unclean.leader.election.enable=true.",
        choices=RECOVERY_STRATEGIES,
        change=Change.ANYWHERE,
    ),
    Setting("auto.leader.rebalance.enable", _B, True, "Move leadership back to the preferred replica."),
    Setting(
        "leader.imbalance.check.interval.seconds", Kind.LONG, 300, "How often leaderships are moved back.", 1
    ),
    Setting("controlled.shutdown.enable", _B, True, "Hand leaderships over before stopping."),
)
