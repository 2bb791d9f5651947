"""What clients use of their quotas, and how long they were throttled, under the names that the JMX exporter's
usual rules give Kafka's metrics of them.

**Invariant:** a piece is made of at most as many series as the caller says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelog.base.metrics import Family, labels_of
from tidelog.broker.quotas import RESOURCES
from tidelog.broker.uses import Use
from tidelog.cluster.quotas import CONSUMER_RATE, MUTATION_RATE, PRODUCER_RATE, REQUEST_PERCENTAGE

_QUOTA = "kafka_server_quota_"


def _rate(use: Use, now_ms: int) -> float:
    return use.rate.per_second(now_ms)


def _tokens(use: Use, now_ms: int) -> float:
    return use.bucket.tokens(use.limit, now_ms) if use.bucket is not None else 0.0


_FAMILIES: tuple[tuple[str, str, tuple[str, ...], Callable[[Use, int], float]], ...] = (
    ("byte_rate", "Bytes a second, of the last windows.", (PRODUCER_RATE, CONSUMER_RATE), _rate),
    ("request_time", "Percent of the loop's time, of the last windows.", (REQUEST_PERCENTAGE,), _rate),
    ("mutation_rate", "Partitions made and deleted a second.", (MUTATION_RATE,), _rate),
    ("tokens", "Partitions that may be made or deleted at once.", (MUTATION_RATE,), _tokens),
    (
        "throttle_time",
        "Milliseconds that answers told their clients to wait, on average of the last windows.",
        tuple(RESOURCES),
        Use.throttle_time_ms,
    ),
)


def quota_pieces(uses: list[Use], now_ms: int, series_max: int) -> Iterator[str]:
    for name, meaning, keys, value in _FAMILIES:
        of_family = [use for use in uses if use.owner.key in keys]
        if not of_family:
            continue
        family = Family(f"{_QUOTA}{name}", "gauge", meaning)
        yield family.head()
        for start in range(0, len(of_family), series_max):
            some = of_family[start : start + series_max]
            yield "".join([family.sample(round(value(use, now_ms), 3), _labels(use)) for use in some])


def _labels(use: Use) -> str:
    owner = use.owner
    resource = RESOURCES[owner.key]
    return labels_of(("resource", resource), ("user", owner.user), ("clientId", owner.client_id))
