"""Members that are killed, paused or too slow: others take over, and what comes too late is refused."""

from __future__ import annotations

import random

import pytest

from tests.compat.client import Refused
from tests.compat.conftest import NewTopic
from tests.compat.groups.conftest import NewGroup
from tests.compat.groups.ledger import deliveries, faults, missing
from tests.compat.groups.process import Group, Member
from tests.compat.groups.spec import ALL, SHORT_SESSION_MS, Partition, Spec
from tests.compat.groups.stream import Stream, partitions_of
from tests.soak import Tally, choose_seed, is_soak, record

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not is_soak(),
        reason="many processes that must keep time together: in `make soak`, which has the machine alone",
    ),
]

every_client = pytest.mark.parametrize("spec", ALL, ids=str)
SHORT_POLL_INTERVAL_MS = SHORT_SESSION_MS + 500
KILLS = 25 if is_soak() else 2


@every_client
@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_what_a_killed_member_had_is_taken_over_from_its_last_commit(
    bootstrap: str, new_topic: NewTopic, new_short_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic(partitions=6)
    partitions, group = partitions_of(topic, 6), new_short_group(topic)
    group.begin(partitions)
    seed, kills, outcome = choose_seed(), 0, "failed"
    chance = random.Random(seed)
    stream = Stream(bootstrap, partitions)
    members = [group.join(spec, session_ms=SHORT_SESSION_MS) for _ in range(3)]
    try:
        with stream:
            group.until_shared(members, partitions)
            for kills in range(1, KILLS + 1):
                victim = members.pop(chance.randrange(len(members)))
                victim.until_told("records")
                victim.kill()
                if kills % 2 == 0:
                    members.append(group.join(spec, session_ms=SHORT_SESSION_MS))
                group.until_shared(members, partitions)
                if len(members) == 1:
                    members.append(group.join(spec, session_ms=SHORT_SESSION_MS))
        group.until(lambda events: not missing(events, stream.ends), "not every record came")
        assert faults(group.events) == []
        outcome = "passed"
    finally:
        came = deliveries(group.events)
        lost, again = len(missing(group.events, stream.ends)), sum(count > 1 for count in came.values())
        tally = Tally(outcome, kills, sum(stream.ends.values()), lost, again, seed)
        record(f"SIGKILL of {spec} members", tally)


@every_client
def test_a_paused_member_is_replaced_and_its_late_commit_refused(
    bootstrap: str, new_topic: NewTopic, new_short_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic(partitions=4)
    partitions, group = partitions_of(topic, 4), new_short_group(topic)
    group.begin(partitions)
    stream = Stream(bootstrap, partitions)
    paused, other = (group.join(spec, session_ms=SHORT_SESSION_MS, commits=False) for _ in range(2))
    group.until_shared([paused, other], partitions)
    stream.write(20)
    group.until(lambda events: not missing(events, stream.ends), "not every record came")
    paused.ask("stall")
    paused.freeze()
    other.until_has(partitions)
    other.ask("commit", places=[[topic, index, 1] for index in range(4)])
    paused.thaw()
    _assert_late_commit_is_refused(paused, other, partitions)
    _assert_it_comes_back(group, paused, other, partitions)


@every_client
def test_a_member_too_slow_to_poll_is_replaced_and_its_late_commit_refused(
    bootstrap: str, new_topic: NewTopic, new_short_group: NewGroup, spec: Spec
) -> None:
    topic = new_topic(partitions=4)
    partitions, group = partitions_of(topic, 4), new_short_group(topic)
    group.begin(partitions)
    stream = Stream(bootstrap, partitions)
    limits = {"session_ms": SHORT_SESSION_MS, "poll_interval_ms": SHORT_POLL_INTERVAL_MS}
    slow, other = (group.join(spec, commits=False, **limits) for _ in range(2))
    group.until_shared([slow, other], partitions)
    stream.write(20)
    group.until(lambda events: not missing(events, stream.ends), "not every record came")
    slow.ask("stall")
    other.until_has(partitions)
    other.ask("commit", places=[[topic, index, 1] for index in range(4)])
    _assert_late_commit_is_refused(slow, other, partitions)
    _assert_it_comes_back(group, slow, other, partitions)


def _assert_late_commit_is_refused(late: Member, other: Member, partitions: list[Partition]) -> None:
    with pytest.raises(Refused):
        late.ask("commit", places=[[*partition, 5] for partition in partitions])
    assert [place.offset for place in other.ask("committed", partitions=partitions)] == [1] * 4


def _assert_it_comes_back(group: Group, late: Member, other: Member, partitions: list[Partition]) -> None:
    already = len(late.told("assigned"))
    late.ask("go")
    late.until_told("assigned", already + 1)
    group.until(lambda events: len(other.owned) == 2, "the one that was late did not get its share")
    assert late.told("assigned")[-1].generation > late.told("assigned")[0].generation
    assert set(late.told("assigned")[-1].partitions) == set(partitions) - other.owned
