"""Believable measurements: a few hosts, each with latency, load and queue, over days.

Every series has its own level and follows the day; there is noise, and now and then an outlier, as real
ones have. Tags come in any order, some measurements late, a few cut off in the middle.

**Invariant:** exactly `events` records, the same for the same arguments, in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np

from tidelog.spark.pipelines.generated import (
    Arrivals,
    Batch,
    DayCurve,
    Floats,
    Integers,
    Record,
    blocks_of,
    in_order_of_arrival,
    intensity,
    millis,
    objects,
)
from tidelog.spark.pipelines.metrics.topics import MEASUREMENTS

NAMES = [b"http.request.ms", b"cpu.percent", b"queue.depth"]
LEVELS = np.array([45.0, 30.0, 12.0])
SWING = np.array([0.6, 1.0, 2.5])
"""How much the day moves each."""
MOST = np.array([np.inf, 100.0, np.inf])
NOISE = np.array([0.45, 0.12, 0.35])
SHARES = np.array([0.6, 0.8])
SERVICES = [b"shop", b"search", b"payment", b"mail"]
REGIONS = [b"eu", b"us", b"asia"]
SHARE_OUTLIERS = 0.003
SHARE_BROKEN = 0.0005


def generate(
    seed: int,
    users: int,
    events: int,
    start: datetime,
    duration: timedelta,
    arrivals: Arrivals = Arrivals(),  # noqa: B008  (frozen)
) -> Iterator[Record]:
    """Measurements of `users` hosts."""
    curve = DayCurve(millis(start), int(duration / timedelta(milliseconds=1)))
    levels = np.exp(np.random.default_rng([seed, 1]).normal(0, 0.25, users))

    def blocks() -> Iterator[tuple[int, Batch]]:
        for number, count, begin, end in blocks_of(events):
            random = np.random.default_rng([seed, 2, number])
            times_ms = curve.times_ms(np.sort(random.uniform(begin, end, count)))
            yield int(curve.times_ms(np.array([end]))[0]), written(random, times_ms, levels, arrivals)

    return in_order_of_arrival(blocks())


def measured(random: np.random.Generator, times_ms: Integers, name: Integers, level: Floats) -> Floats:
    day = intensity(times_ms.astype(np.float64)) / 1.5
    noise = np.exp(random.normal(0, 1, len(name)) * NOISE[name])
    values: Floats = LEVELS[name] * level * (1 + SWING[name] * day) * noise
    outlier = random.random(len(name)) < SHARE_OUTLIERS
    far = np.where(outlier, values * random.uniform(5, 20, len(name)), values)
    bounded: Floats = np.minimum(far, MOST[name])
    return bounded


def written(random: np.random.Generator, times_ms: Integers, levels: Floats, arrivals: Arrivals) -> Batch:
    count = len(times_ms)
    name = np.searchsorted(SHARES, random.random(count), side="right")
    host = random.integers(len(levels), size=count)
    values = measured(random, times_ms, name, levels[host])
    told = zip(
        name.tolist(),
        host.tolist(),
        random.integers(2, size=count).tolist(),
        values.tolist(),
        times_ms.tolist(),
        strict=True,
    )
    tags = tag_texts(len(levels))
    form = b'{"name":"%b","tags":{%b},"value":%.4f,"time":%d}'
    records = objects(
        [form % (NAMES[n], tags[order][h], value, time) for n, h, order, value, time in told],
    )
    for broken in np.flatnonzero(random.random(count) < SHARE_BROKEN).tolist():
        records[broken] = records[broken][: len(records[broken]) // 2]
    keys = objects([series_key(n, h) for n, h in zip(name.tolist(), host.tolist(), strict=True)])
    topics = objects([MEASUREMENTS] * count)
    return Batch(times_ms + arrivals.lags_ms(random, count), topics, keys, records)


def tags_of(host: int) -> dict[str, str]:
    service, region = SERVICES[host % len(SERVICES)], REGIONS[host % len(REGIONS)]
    return {"host": f"host-{host}", "region": region.decode(), "service": service.decode()}


def tag_texts(hosts: int) -> tuple[list[bytes], list[bytes]]:
    """The tags of each host as JSON, in one order and in the other."""
    pairs = [[b'"%b":"%b"' % (k.encode(), v.encode()) for k, v in tags_of(h).items()] for h in range(hosts)]
    return [b",".join(pair) for pair in pairs], [b",".join(reversed(pair)) for pair in pairs]


def series_key(name: int, host: int) -> bytes:
    return b"%b{host=host-%d}" % (NAMES[name], host)
