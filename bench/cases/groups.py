"""Consumer groups: how long a rebalance takes, how many commits a second, what heartbeats cost.

Both brokers are started for this case alone, without the delays in which a group waits for more members, and
with sessions that outlive the forming of a group of a thousand.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from bench.arena import Arena, Sample, median_sample, timed
from bench.cases import group_loading
from bench.cases.latency import percentile
from bench.load import group_frames as frames
from bench.load.admin import Admin
from bench.load.canned import canned
from bench.load.classic_members import ClassicGroup
from bench.load.commits import check_kept, commit, member_frames, wait_for_coordinator
from bench.load.consumer_members import ConsumerGroup
from bench.load.heartbeats import Beats, beat
from bench.load.members import Member
from bench.load.pipeline import Span
from bench.peers.process import RunningBroker
from bench.report import Row, Target
from bench.run import Run

TOPIC = "bench-groups"
PARTITION_COUNT = 900
MEMBERS_BEFORE = 9
COMMITTING_MEMBERS = 8
BEATS_PER_MEMBER = 4
# Enough names that each of the 50 partitions of the internal topic coordinates one of them.
GROUPS_OF_EVERY_SHARD = 800
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
}
REBALANCE = Target(ratio_max=0.5)
COMMITS = Target(ratio_min=1.5)


@dataclass(frozen=True)
class CommitCase:
    """Each member commits `partitions_each`, with up to `window` requests that are not yet answered."""

    name: str
    group_count: int
    member_count: int
    partitions_each: int = 1
    window: int = 1
    target: Target | None = None


COMMIT_CASES = (
    CommitCase("commits of 1 partition, 8 members of one group", 1, 8, target=COMMITS),
    CommitCase("commits of 1 partition, 8 groups of one member", 8, 1),
    CommitCase("commits of 1 partition, 1 member", 1, 1, target=COMMITS),
    CommitCase("commits of 1 partition, 8 members, 32 in flight", 1, 8, window=32),
    CommitCase("commits of 10 partitions, 8 members of one group", 1, 8, partitions_each=10),
)
Group = ClassicGroup | ConsumerGroup
KINDS: tuple[tuple[str, type[ClassicGroup] | type[ConsumerGroup]], ...] = (
    ("classic", ClassicGroup),
    ("consumer", ConsumerGroup),
)
METHOD = (
    f"groups: brokers of their own with {', '.join(f'{key}={value}' for key, value in SETTINGS.items())};"
    " the members are the benchmark's own, each on its own connection, and answer at once with frames put"
    " together by hand; the bound of a rebalance is the CPU time that the client spent on one, all its"
    " heartbeats included; that of commits and of the heartbeat's p99 is the same client against a process"
    " that sends back canned bytes",
    f"groups, rebalance: {MEMBERS_BEFORE} members share {PARTITION_COUNT} partitions; from the request with"
    " which one more joins (classic: its JoinGroup without an id) until every member has its assignment of"
    " the new generation (consumer: until all are at the new epoch and the partitions are spread evenly);"
    " then it leaves again; members act at once when there is something to tell or to learn, and are silent"
    " otherwise; classic: right behind the JoinGroup with the id that it was given, or behind the LeaveGroup,"
    " each other member sends one heartbeat, and another only if that came too early to hear of it; consumer:"
    " behind the answer to the one that joins or leaves each other member sends one heartbeat, and one more"
    " that acknowledges what it was told; who lacks partitions heartbeats when another gave some up; median"
    " of all; assignments are checked each time",
    "groups, commits: OffsetCommit 9 with member id and generation, one request in flight on each connection"
    " (or 32, as asynchronous commits in a loop are), to partitions of its own; what is kept is checked at"
    " the end",
    f"groups, heartbeats: one group, a connection to each member, {BEATS_PER_MEMBER} heartbeats a second from"
    " each, evenly spaced; CPU of the broker's process over the number of heartbeats",
    *group_loading.METHOD,
)
_numbers = itertools.count()


def run(run: Run) -> list[Row]:
    with _arena(run) as arena:
        for broker in arena.alternate(1):
            _make_ready(run, broker)
        rows = [row for name, kind in KINDS for row in _rebalance_rows(run, arena, name, kind)]
        rows += _commit_rows(run, arena)
        rows += [row for name, kind in KINDS for row in _heartbeat_rows(run, arena, name, kind)]
    return rows + group_loading.run(run)


@contextmanager
def _arena(run: Run) -> Iterator[Arena]:
    brokers: list[RunningBroker] = []
    try:
        for peer in run.peers:
            site = peer.prepare(run.directory / f"groups-{peer.name}", SETTINGS | peer.settings_if_paused)
            brokers.append(site.spawn())
            brokers[-1].wait_ready()
        yield Arena(brokers, run.scale.rounds)
    finally:
        for broker in brokers:
            broker.kill()


def _make_ready(run: Run, broker: RunningBroker) -> None:
    """The topic, the coordinator, and throwaway load of every kind."""
    with Admin(broker.host, broker.port) as admin:
        admin.create_topic(TOPIC, PARTITION_COUNT)
    wait_for_coordinator((broker.host, broker.port), [_new_group() for _ in range(GROUPS_OF_EVERY_SHARD)])
    for _, kind in KINDS:
        _rebalances(kind, run.scale.group_rebalances, broker)
    for case in COMMIT_CASES:
        _commits(case, run.scale.group_seconds / 2, broker)


def _new_group() -> str:
    return f"bench-group-{next(_numbers):05d}"


@contextmanager
def _grown(
    kind: type[ClassicGroup] | type[ConsumerGroup], broker: RunningBroker, count: int
) -> Iterator[Group]:
    group = kind((broker.host, broker.port), _new_group(), TOPIC, PARTITION_COUNT)
    try:
        group.grow(count)
        yield group
    finally:
        group.close()


def _rebalance_rows(
    run: Run, arena: Arena, name: str, kind: type[ClassicGroup] | type[ConsumerGroup]
) -> list[Row]:
    taken: dict[str, list[tuple[Sample, Sample]]] = {broker.name: [] for broker in arena.brokers}
    for broker in arena.alternate():
        taken[broker.name].append(_rebalances(kind, run.scale.group_rebalances, broker))
    rows = []
    for index, (event, target) in enumerate((("joins 9", REBALANCE), ("leaves 9", None))):
        samples = {broker: median_sample([pair[index] for pair in pairs]) for broker, pairs in taken.items()}
        bound = Sample(min(sample.value * sample.client_share for sample in samples.values()))
        case = f"rebalance of {PARTITION_COUNT} partitions, {name}, one member {event}"
        rows.append(Row(case, "ms", samples.get("Tidelog"), samples.get("Kafka"), target, bound))
    return rows


def _rebalances(
    kind: type[ClassicGroup] | type[ConsumerGroup], count: int, broker: RunningBroker
) -> tuple[Sample, Sample]:
    """Milliseconds for one to join and for one to leave."""
    joins: list[Span] = []
    leaves: list[Span] = []
    with _grown(kind, broker, MEMBERS_BEFORE) as group:

        def come_and_go() -> Span:
            for _ in range(count):
                joins.append(group.join())
                group.check()
                leaves.append(group.leave())
                group.check()
            spans = joins + leaves
            return Span(len(spans), sum(s.seconds for s in spans), sum(s.client_cpu_seconds for s in spans))

        shares = timed(broker, come_and_go, 1)
    return _middle(joins, shares), _middle(leaves, shares)


def _middle(spans: Sequence[Span], shares: Sample) -> Sample:
    client_share = sum(span.client_cpu_seconds for span in spans) / sum(span.seconds for span in spans)
    return replace(shares, value=median(span.seconds for span in spans) * 1e3, client_share=client_share)


def _commit_rows(run: Run, arena: Arena) -> list[Row]:
    rows = []
    for case in COMMIT_CASES:
        samples = arena.compare(partial(_commits, case, run.scale.group_seconds))
        bound = _commit_bound(case, run.scale.group_seconds / 2)
        rows.append(Row(case.name, "req/s", samples.get("Tidelog"), samples.get("Kafka"), case.target, bound))
    return rows


def _commits(case: CommitCase, seconds: float, broker: RunningBroker) -> Sample:
    address = (broker.host, broker.port)
    groups = [ClassicGroup(address, _new_group(), TOPIC, PARTITION_COUNT) for _ in range(case.group_count)]
    try:
        for group in groups:
            group.grow(case.member_count)
        each = member_frames(groups, TOPIC, case.partitions_each)
        last: list[int] = []

        def load() -> Span:
            span, last[:] = commit(address, each, TOPIC, case.partitions_each, seconds, case.window)
            return span

        sample = timed(broker, load, 1)
        check_kept(address, [group.group for group in groups], TOPIC, case.partitions_each, last)
        return sample
    finally:
        for group in groups:
            group.close()


def _commit_bound(case: CommitCase, seconds: float) -> Sample:
    frame = frames.commit_frame(_new_group(), 1, "m" * 42, TOPIC, range(case.partitions_each), 1)
    each = [[frame]] * (case.group_count * case.member_count)
    with canned(len(frame), frames.commit_layout(TOPIC, case.partitions_each)) as address:
        span, _ = commit(address, each, TOPIC, case.partitions_each, seconds, case.window)
    return Sample(span.frames_per_second)


def _heartbeat_rows(
    run: Run, arena: Arena, name: str, kind: type[ClassicGroup] | type[ConsumerGroup]
) -> list[Row]:
    """Each broker forms its group once, and is measured in one turn: forming it takes longer than that."""
    count = run.scale.group_members
    costs: dict[str, Sample] = {}
    tails: dict[str, Sample] = {}
    for broker in arena.alternate(1):
        with _grown(kind, broker, count) as group:
            load = partial(beat, group.members, group.heartbeats(), count * BEATS_PER_MEMBER)
            load(run.scale.group_seconds / 2)
            costs[broker.name], tails[broker.name] = _beaten(broker, load, 2 * run.scale.group_seconds)
    case = f"heartbeat of {count:,} members, {name}"
    bound = _heartbeat_bound(count, run.scale.group_seconds)
    return [
        Row(f"{case}, CPU", "µs", costs.get("Tidelog"), costs.get("Kafka"), Target(ratio_max=1)),
        Row(f"{case}, p99", "µs", tails.get("Tidelog"), tails.get("Kafka"), None, bound),
    ]


def _beaten(broker: RunningBroker, load: Callable[[float], Beats], seconds: float) -> tuple[Sample, Sample]:
    taken: list[Beats] = []

    def observed() -> Span:
        taken.append(load(seconds))
        return taken[0].span

    sample = timed(broker, observed, 1)
    cpu = sample.broker_share / sample.value * 1e6
    return replace(sample, value=cpu), replace(sample, value=percentile(taken[0].latencies, 0.99) / 1e3)


def _heartbeat_bound(count: int, seconds: float) -> Sample:
    frame = frames.heartbeat_frame(_new_group(), 1, "m" * 42)
    with canned(len(frame), frames.HEARTBEAT_LAYOUT) as address:
        members = [Member(address) for _ in range(count)]
        beats = beat(members, [frame] * count, count * BEATS_PER_MEMBER, seconds)
        for member in members:
            member.close()
    return Sample(percentile(beats.latencies, 0.99) / 1e3)
