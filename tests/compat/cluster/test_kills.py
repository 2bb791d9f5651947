"""Brokers are killed and restarted under producers and consumers: nothing lost, doubled or reordered."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import monotonic_ns

import pytest

from tests.chaos.reading import Findings, check_topic
from tests.chaos.workload import COMPRESSED, IDEMPOTENT, parse_content
from tests.compat.cluster.load import ReplicatedLoad, Trickle
from tests.compat.cluster.victims import OFFSETS_TOPIC, coordinator, replace_broker
from tests.compat.groups.ledger import faults, missing, twice
from tests.compat.groups.process import Group
from tests.compat.groups.spec import ALL, BROKER_SETTINGS, Event, Partition
from tests.compat.groups.stream import partitions_of
from tests.soak import Tally, choose_seed, is_soak, record
from tests.testing.watching import watch
from tidelog.testing import Cluster

SETTINGS = BROKER_SETTINGS | {
    "offsets.topic.num.partitions": "6",
    "log.segment.bytes": str(256 * 1024),  # so that kills fall across rolls
}
SOAK_KILLS = 60
PARTITIONS = 6


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, None, **SETTINGS) as cluster:
        yield cluster


@pytest.mark.soak
@pytest.mark.timeout(3_000)
def test_kills_of_each_broker_in_turn_lose_double_and_reorder_nothing(cluster: Cluster) -> None:
    seed, kills, outcome, findings = choose_seed(), 0, "failed", Findings()
    chance, watcher = random.Random(seed), watch(cluster)
    writers = {"idempotent": IDEMPOTENT, "compressed": COMPRESSED}
    with ReplicatedLoad(cluster, "kills", PARTITIONS, writers) as load:
        try:
            while kills < (SOAK_KILLS if is_soak() else 4):
                # The controller first: then whoever it is, each has been killed after four.
                victim = watcher.controller() if kills % 4 == 0 else 1 + (kills % 4 + kills // 4) % 3
                ending = cluster.stop if chance.random() < 0.3 else cluster.kill
                before, meanwhile = chance.randrange(500, 8_000), chance.randrange(1, 4_000)
                replace_broker(
                    cluster, victim, load, end=ending, before=before, meanwhile=meanwhile, topics=("kills",)
                )
                kills += 1
            load.finish()
            findings = check_topic(cluster.bootstrap_servers, load)
            assert findings.is_clean, f"after {kills} kills: {findings}"
            outcome = "passed"
        finally:
            found = (findings.missing_count, findings.duplicated_count)
            record(
                "kills of brokers of a cluster", Tally(outcome, kills, load.acknowledged_count, *found, seed)
            )


@pytest.mark.soak
@pytest.mark.timeout(3_000)
def test_whichever_brokers_go_and_come_at_once_nothing_is_lost(cluster: Cluster) -> None:
    """Two of three may be gone, or all: writes wait, and go on."""
    seed, ends, outcome, findings = choose_seed(), 0, "failed", Findings()
    chance = random.Random(seed)
    with ReplicatedLoad(cluster, "chaos", PARTITIONS, {"idempotent": IDEMPOTENT}) as load:
        try:
            load.resume()
            load.await_acknowledged(500)
            while ends < (SOAK_KILLS if is_soak() else 8):
                broker = cluster[chance.randint(1, 3)]
                if not broker.is_running:
                    broker.start()
                    continue
                (broker.kill if chance.random() < 0.7 else broker.stop)()
                ends += 1
                if all(each.is_running for each in cluster.brokers.values() if each is not broker):
                    load.await_acknowledged(chance.randrange(1, 2_000))
            for broker in cluster.brokers.values():
                if not broker.is_running:
                    broker.start()
            watch(cluster).until_in_sync("chaos")
            load.finish()
            findings = check_topic(cluster.bootstrap_servers, load)
            assert findings.is_clean, f"after {ends} ends: {findings}"
            outcome = "passed"
        finally:
            found = (findings.missing_count, findings.duplicated_count)
            tally = Tally(outcome, ends, load.acknowledged_count, *found, seed)
            record("any brokers of a cluster at once", tally)


@pytest.mark.soak
@pytest.mark.timeout(3_000)
def test_members_of_groups_notice_nothing_of_a_broker_s_death_but_a_retry(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Of every client and both protocols: the controller dies, then each group's coordinator, then all."""
    watcher = watch(cluster)
    partitions = partitions_of("trickle", PARTITIONS)
    with Trickle(cluster, "trickle", PARTITIONS) as load, ExitStack() as stack:
        groups = [
            stack.enter_context(Group(cluster.bootstrap_servers, f"g-{spec}", ("trickle",), tmp_path))
            for spec in ALL
        ]
        members = {
            group.name: [group.join(spec) for _ in range(2)] for group, spec in zip(groups, ALL, strict=True)
        }
        load.resume()
        for group in groups:
            group.until_shared(members[group.name], partitions)
        shared = {group.name: len(_changes(group.events)) for group in groups}
        kills: list[tuple[int, int]] = []
        for choose in _victims(cluster, groups):
            kills.append((monotonic_ns(), choose()))
            replace_broker(
                cluster,
                kills[-1][1],
                load,
                end=cluster.kill,
                before=300,
                meanwhile=300,
                topics=("trickle", OFFSETS_TOPIC),
            )
        load.finish()
        for group in groups:
            group.until(lambda events: not missing(events, load.ends), f"{group.name} lacks records")
            assert twice(group.events) == [], group.name
            assert out_of_order(group.events) == [], group.name
            assert faults(group.events) == [], group.name
            changes = _changes(group.events)[shared[group.name] :]
            assert changes == [], f"{group.name} was rebalanced: {_told(changes, kills)}"
    assert check_topic(cluster.bootstrap_servers, load).is_clean
    assert watcher.brokers() == {1, 2, 3}


def _victims(cluster: Cluster, groups: Sequence[Group]) -> Iterator[Callable[[], int]]:
    """By what they are when it is their turn."""
    watcher = watch(cluster)
    for _ in range(10 if is_soak() else 1):
        yield watcher.controller
        for group in groups:
            yield partial(coordinator, cluster, watcher, group.name)


def _changes(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.kind in ("assigned", "revoked", "lost", "failed")]


def _told(changes: Sequence[Event], kills: Sequence[tuple[int, int]]) -> str:
    """What became of members, and when brokers were killed, in seconds since the first of those."""
    first_ns = kills[0][0]
    rows = [(each.at_ns, f"{each.kind} {each.member} in {each.generation} {each.said}") for each in changes]
    rows += [(at_ns, f"kill of {broker}") for at_ns, broker in kills]
    return "; ".join(f"{(at_ns - first_ns) / 1e9:.1f} {what}" for at_ns, what in sorted(rows))


def out_of_order(events: Sequence[Event]) -> list[str]:
    """Records that did not come as they were written: by the numbers that are in them."""
    wrong = []
    due: dict[Partition, int] = defaultdict(int)
    for event in events:
        for place, value in zip(event.places, event.values, strict=True) if event.kind == "records" else ():
            number = parse_content(value.encode())[2]
            if number != due[place.of]:
                wrong.append(f"{place.of} at {place.offset}: record {number} where {due[place.of]} was due")
            due[place.of] = number + 1
    return wrong
