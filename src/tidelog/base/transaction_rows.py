"""The settings of a broker for transactions, under Kafka's names with Kafka's bounds."""

from __future__ import annotations

from tidelog.base.setting import Kind, Setting

_I, _SHORT, _B = Kind.INT, Kind.SHORT, Kind.BOOLEAN

TRANSACTION_ROWS = (
    Setting(
        "transaction.max.timeout.ms",
        _I,
        900_000,
        "The longest timeout that a transactional producer may ask for.",
        1,
    ),
    Setting(
        "transactional.id.expiration.ms",
        _I,
        604_800_000,
        "A transactional id that was not used for this long is forgotten.",
        1,
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _I,
        3_600_000,
        "How often expired transactional ids are removed.",
        1,
    ),
    Setting(
        "transaction.state.log.num.partitions",
        _I,
        50,
        "Partitions of __transaction_state when it is created.",
        1,
    ),
    Setting(
        "transaction.state.log.replication.factor",
        _SHORT,
        3,
        "Replicas of __transaction_state; a broker on its own has one.",
        1,
    ),
    Setting(
        "transaction.state.log.min.isr",
        _I,
        2,
        "The min.insync.replicas of __transaction_state when it is created.",
        1,
    ),
    # The minimum is that of any topic's segment.bytes.
    Setting(
        "transaction.state.log.segment.bytes",
        _I,
        104_857_600,
        "The segment size of __transaction_state.",
        1024,
    ),
)
