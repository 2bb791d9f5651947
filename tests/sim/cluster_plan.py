"""What a seed makes of a cluster: how large it is, how it is set up, and what will go wrong how often.

**Invariant:** a plan is chosen before anything happens, from the seed alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.sim.store import Faults, calm

SELDOM, OFTEN = (0, 1, 1, 3), (1, 3, 6, 6)
# What may go wrong, and how often as compared with the rest.
FAULTS = {
    "kill": SELDOM,
    "lose power": SELDOM,
    "blackout": SELDOM,
    "stop": SELDOM,
    "pause": SELDOM,
    "block": SELDOM,
    "isolate": SELDOM,
    "cut": SELDOM,
    "clock": SELDOM,
    "expire": SELDOM,
    "disconnect": SELDOM,
    "store down": SELDOM,
    "disk": OFTEN,
    "disk full": SELDOM,
    "admin": SELDOM,
    "ambush": OFTEN,
    "harm": OFTEN,
    "kill early": SELDOM,
    "kill writing": OFTEN,
    "remount": SELDOM,
}


@dataclass(slots=True)
class TopicPlan:
    name: str
    partition_count: int
    replica_count: int
    min_insync: int
    is_flushed: bool
    segment_bytes: int

    @property
    def config(self) -> dict[str, str]:
        config = {
            "min.insync.replicas": str(self.min_insync),
            "segment.bytes": str(self.segment_bytes),
            "file.delete.delay.ms": "500",
        }
        return {**config, "flush.messages": "1"} if self.is_flushed else config


@dataclass(slots=True)
class Plan:
    broker_count: int
    topics: list[TopicPlan]
    properties: dict[str, str]
    racks: list[str]
    directory_count: int
    store: Faults
    produce_pause_ms: int
    faults_ms: int  # for how long things go wrong
    fault_pause_ms: int  # between two faults, on average
    cut: float
    slow: float
    flush_ms_max: int  # how long an fsync takes, and again until the broker hears of it
    weights: dict[str, int] = field(default_factory=dict)  # of the faults


def choose_plan(random: Random) -> Plan:
    broker_count = random.choice((3, 3, 3, 4, 5))
    is_flushed = random.random() < 0.35
    topics = [_choose_topic(random, f"s{n}", broker_count, is_flushed) for n in range(random.randint(1, 2))]
    session_ms = random.choice((2_000, 4_000, 6_000))
    return Plan(
        broker_count,
        topics,
        {
            "replica.lag.time.max.ms": str(random.choice((1_000, 2_500, 6_000))),
            "replica.fetch.wait.max.ms": str(random.choice((100, 500))),
            "replica.socket.timeout.ms": str(random.choice((2_000, 10_000))),
            "replica.fetch.backoff.ms": str(random.choice((50, 300, 1_000))),
            "log.flush.offset.checkpoint.interval.ms": str(random.choice((300, 2_000))),
            "leader.imbalance.check.interval.seconds": str(random.choice((3, 10))),
            "controlled.shutdown.enable": "true",
            **like(topics[0]),
        },
        random.choice(([""], ["a", "b"], ["a", "b", "c"])),
        random.choice((1, 2)),
        Faults(
            delay_ms_max=random.choice((2, 20)),
            slow=random.choice((0, 0.05)),
            slow_ms_max=random.choice((300, 1_500)),
            watch_delay_ms_max=random.choice((5, 300)),
            lost=random.choice((0, 0.05, 0.2)),
            late=random.choice((0, 0.5)),
            stale=random.choice((0, 0.4)),
            session_timeout_ms=session_ms,
        ),
        random.choice((80, 250)),
        random.choice((6_000, 15_000)),
        random.choice((300, 600, 1_500)),
        random.choice((0, 0.002, 0.01)),
        random.choice((0, 0.02)),
        random.choice((8, 8, 250)),
        {name: random.choice(FAULTS[name]) for name in FAULTS},
    )


def like(topic: TopicPlan) -> dict[str, str]:
    """Settings that make the topic of the groups one like that."""
    settings = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": str(topic.replica_count),
        "min.insync.replicas": str(topic.min_insync),
    }
    return {**settings, "log.flush.interval.messages": "1"} if topic.is_flushed else settings


def _choose_topic(random: Random, name: str, broker_count: int, is_flushed: bool) -> TopicPlan:
    replica_count = random.randint(2, min(broker_count, 4)) if random.random() < 0.9 else broker_count
    least = 1 if random.random() < (0.3 if is_flushed else 0.1) else 2
    min_insync = random.randint(least, max(least, replica_count - (random.random() < 0.9)))
    segment_bytes = random.choice((1_100, 3_000, 100_000, 100_000))
    return TopicPlan(name, random.randint(1, 2), replica_count, min_insync, is_flushed, segment_bytes)


def quiet(session_timeout_ms: int) -> Faults:
    """A store with which nothing is wrong any more."""
    faults = calm()
    faults.session_timeout_ms = session_timeout_ms
    return faults
