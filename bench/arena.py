"""The two brokers, kept so that one runs while the other is paused.

**Invariant:** outside of a `turn`, every broker is paused; inside, exactly one runs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from bench.load.admin import Admin
from bench.load.pipeline import Span
from bench.peers.process import RunningBroker, machine_cpu_seconds

FILES_GONE_SECONDS_MAX = 60.0
_topic_numbers = itertools.count()


@dataclass(frozen=True)
class Sample:
    """One measurement: a value, and how busy client, broker and all others were (1.0 is one core)."""

    value: float
    client_share: float = 0.0
    broker_share: float = 0.0
    others_share: float = 0.0


@dataclass(frozen=True)
class Topic:
    name: str
    partition_count: int
    broker: RunningBroker

    @property
    def address(self) -> tuple[str, int]:
        return (self.broker.host, self.broker.port)

    def end_offset(self) -> int:
        with Admin(*self.address) as admin:
            return admin.end_offset(self.name, self.partition_count)


class Busy(Protocol):
    """A broker, or a cluster of them."""

    def cpu_seconds(self) -> float: ...


Measure = Callable[[RunningBroker], Sample]


class Arena:
    def __init__(self, brokers: Sequence[RunningBroker], rounds: int) -> None:
        self.brokers = list(brokers)
        self.rounds = rounds
        for broker in self.brokers:
            broker.pause()

    @contextmanager
    def turn(self, broker: RunningBroker) -> Iterator[RunningBroker]:
        broker.assert_alive()
        broker.resume()
        try:
            yield broker
        finally:
            broker.pause()

    def alternate(self, rounds: int | None = None) -> Iterator[RunningBroker]:
        """Each broker once per round, the order changing from round to round."""
        for round_index in range(rounds or self.rounds):
            ordered = self.brokers if round_index % 2 == 0 else self.brokers[::-1]
            for broker in ordered:
                with self.turn(broker):
                    yield broker

    def compare(self, measure: Measure) -> dict[str, Sample]:
        """The median sample of each broker, by its name."""
        samples: dict[str, list[Sample]] = {broker.name: [] for broker in self.brokers}
        for broker in self.alternate():
            samples[broker.name].append(measure(broker))
        return {name: median_sample(taken) for name, taken in samples.items()}

    def close(self) -> None:
        for broker in self.brokers:
            broker.stop()


def median_sample(samples: Sequence[Sample]) -> Sample:
    """The median of each part; of what others used, the most, because it is a warning."""
    return Sample(
        median(sample.value for sample in samples),
        median(sample.client_share for sample in samples),
        median(sample.broker_share for sample in samples),
        max(sample.others_share for sample in samples),
    )


def timed(broker: Busy, load: Callable[[], Span], units_per_frame: float) -> Sample:
    """Run `load`; the value is units per second."""
    machine_before, broker_before = machine_cpu_seconds(), broker.cpu_seconds()
    span = load()
    broker_cpu = broker.cpu_seconds() - broker_before
    others_cpu = machine_cpu_seconds() - machine_before - broker_cpu - span.client_cpu_seconds
    return Sample(
        span.frames_per_second * units_per_frame,
        span.client_cpu_seconds / span.seconds,
        broker_cpu / span.seconds,
        max(0.0, others_cpu / span.seconds),
    )


@contextmanager
def fresh_topic(broker: RunningBroker, partition_count: int) -> Iterator[Topic]:
    """A topic that exists for one measurement; its files are gone before the next one starts."""
    topic = Topic(f"bench-{next(_topic_numbers):05d}", partition_count, broker)
    with Admin(broker.host, broker.port) as admin:
        admin.create_topic(topic.name, partition_count)
    yield topic
    with Admin(broker.host, broker.port) as admin:
        admin.delete_topic(topic.name)
    deadline = time.monotonic() + FILES_GONE_SECONDS_MAX
    while any(broker.site.log_directory.glob(f"{topic.name}-*")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{broker.name} still has files of the deleted topic {topic.name}")
        time.sleep(0.01)
