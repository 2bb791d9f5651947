"""Members come and go: every record is delivered, and every partition has one owner at a time."""

from __future__ import annotations

import pytest

from tests.compat.conftest import NewTopic
from tests.compat.groups.conftest import NewGroup
from tests.compat.groups.ledger import (
    committed_again,
    faults,
    missing,
    outside_tenure,
    owned,
    twice,
    two_owners,
)
from tests.compat.groups.spec import (
    ALL,
    CONFLUENT_CONSUMER,
    CONFLUENT_COOPERATIVE,
    COOPERATIVE,
    KAFKA_PYTHON,
    Event,
    Spec,
)
from tests.compat.groups.stream import Stream, partitions_of
from tests.soak import is_soak

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not is_soak(),
        reason="many processes that must keep time together: in `make soak`, which has the machine alone",
    ),
]

PARTITION_COUNT = 12
SIZES = (4, 10, 6, 3, 1)
ROUNDS = 10 if is_soak() else 1


@pytest.mark.soak
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("spec", ALL, ids=str)
def test_growing_to_ten_and_back_delivers_every_record_once(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic(partitions=PARTITION_COUNT)
    partitions, group = partitions_of(topic, PARTITION_COUNT), new_group(topic)
    group.begin(partitions)
    members = [group.join(spec)]
    with Stream(bootstrap, partitions) as stream:
        group.until_shared(members, partitions)
        for _ in range(ROUNDS):
            for size in SIZES:
                members += [group.join(spec) for _ in range(size - len(members))]
                for leaver in members[size:]:
                    leaver.start_leaving()
                members = members[:size]
                group.until_shared(members, partitions)
    group.until(lambda events: not missing(events, stream.ends), "not every record came")
    if spec != KAFKA_PYTHON:  # which joins within its commit, and commits for what it had before by then
        assert committed_again(group.events) == []
    assert two_owners(group.events) + outside_tenure(group.events) == []
    assert not [event for event in group.events if event.kind in ("failed", "lost")]
    if spec != KAFKA_PYTHON and not [event for event in group.events if event.kind == "refused"]:
        assert twice(group.events) == []


@pytest.mark.parametrize("spec", ALL, ids=str)
def test_a_member_too_many_is_idle_until_somebody_leaves(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic(partitions=2)
    partitions, group = partitions_of(topic, 2), new_group(topic)
    group.begin(partitions)
    stream = Stream(bootstrap, partitions)
    members = [group.join(spec) for _ in range(3)]
    group.until_shared(members, partitions)
    (spare,) = [member for member in members if not member.owned]
    stream.write(20)
    group.until(lambda events: not missing(events, stream.ends), "not every record came")
    assert not spare.records()
    leaver = next(member for member in members if member is not spare)
    leaver.leave()
    stayed = [member for member in members if member is not leaver]
    group.until_shared(stayed, partitions)
    stream.write(20)
    group.until(lambda events: not missing(events, stream.ends), "not every record came")
    assert spare.records()
    assert faults(group.events) == []


@pytest.mark.parametrize("spec", COOPERATIVE, ids=str)
def test_a_cooperative_member_gives_up_only_what_moves(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic(partitions=6)
    partitions, group = partitions_of(topic, 6), new_group(topic)
    group.begin(partitions)
    old = [group.join(spec)]
    group.until_shared(old, partitions)
    old.append(group.join(spec))
    group.until_shared(old, partitions)
    before = owned(group.events)
    already_ns = group.events[-1].at_ns
    group.until_shared([*old, group.join(spec)], partitions)
    given_up = [
        partition for event in group.events if event.at_ns > already_ns for partition in _given_up(event)
    ]
    assert len(given_up) == len(set(given_up)) == 2, "one of each: the third has two of six"
    for member in old:
        assert member.owned == before[member.name] - set(given_up)
    assert faults(group.events) == []


@pytest.mark.parametrize("spec", (CONFLUENT_COOPERATIVE, CONFLUENT_CONSUMER), ids=str)
def test_a_cooperative_rebalance_does_not_stop_who_keeps_his_partitions(
    bootstrap: str, new_topic: NewTopic, new_group: NewGroup, spec: Spec
) -> None:
    """While one member holds the rebalance up, the other goes on with what it has (kafka-python waits)."""
    topic = new_topic(partitions=6)
    partitions, group = partitions_of(topic, 6), new_group(topic)
    group.begin(partitions)
    stream = Stream(bootstrap, partitions)
    reader, idler = group.join(spec), group.join(spec)
    group.until_shared([reader, idler], partitions)
    idler.ask("stall")
    already = len(_gave_up(group.events, reader.name))
    comer = group.join(spec)
    group.until(
        lambda events: len(_gave_up(events, reader.name)) > already, "the rebalance did not reach the reader"
    )
    kept = reader.owned
    assert kept
    stream.write(60)
    wanted = {(partition, offset) for partition in kept for offset in range(stream.ends[partition])}
    group.until(lambda events: wanted <= set(_read(events, reader.name)), "the reader stopped reading")
    idler.ask("go")
    group.until_shared([reader, idler, comer], partitions)
    group.until(lambda events: not missing(events, stream.ends), "not every record came")
    assert faults(group.events) == []


def _given_up(event: Event) -> tuple[tuple[str, int], ...]:
    return event.partitions if event.kind in ("revoked", "lost") else ()


def _gave_up(events: list[Event], member: str) -> list[Event]:
    return [event for event in events if event.member == member and _given_up(event)]


def _read(events: list[Event], member: str) -> list[tuple[tuple[str, int], int]]:
    mine = [event for event in events if event.member == member and event.kind == "records"]
    return [(place.of, place.offset) for event in mine for place in event.places]
