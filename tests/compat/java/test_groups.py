"""The Java consumer in groups, by both protocols: growth, death, static members, patterns, upgrades.

Members and their checks are in `members.py`. What a broker's settings make slow (a session, the time between
heartbeats of the consumer protocol) is short on the broker that is started here; against another one
(`TIDELOG_COMPAT_BOOTSTRAP`) the same tests take longer.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.compat.java.group_history import Partition, check_deliveries, check_generations, taken_for_nothing
from tests.compat.java.members import KINDS, RANGE, UNIFORM, Group, Kind, fed
from tests.compat.java.operator import JavaOperator
from tests.soak import is_soak

PARTITION_COUNT = 8
SAMPLE_SIZES = (1, 3, 10, 2)
SOAK_KILLS = 20
SOAK_SIZES = (*range(1, 11), *range(9, 0, -1))

both_protocols = pytest.mark.parametrize("kind", [RANGE, UNIFORM], ids=lambda kind: kind.name)


@pytest.fixture
def topic(operator: JavaOperator, fresh_name: str) -> str:
    operator.create_topic(fresh_name, PARTITION_COUNT, {})
    return fresh_name


def resize(group: Group, topic: str, kind: Kind, size: int) -> None:
    """Members come all at once and go one after the other."""
    for number in range(len(group.alive), size):
        group.start(f"member-{number}", topic, kind)
    for member in sorted(group.alive)[size:]:
        group.close(member)
    group.await_balance(PARTITION_COUNT)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_group_grows_to_ten_and_shrinks_without_losing_a_record(
    group: Group, topic: str, kind: Kind
) -> None:
    with fed(group.jvm, group.bootstrap, topic, PARTITION_COUNT) as ends:
        for size in SOAK_SIZES if is_soak() else SAMPLE_SIZES:
            resize(group, topic, kind, size)
    group.await_committed(ends)
    group.close_all()
    check_deliveries(group.history(), ends)
    check_generations(group.history())
    assert kind.is_eager or taken_for_nothing(group.history()) == []


@pytest.mark.soak
@pytest.mark.timeout(900)
@both_protocols
def test_killed_members_are_replaced(group: Group, topic: str, kind: Kind, tmp_path: Path) -> None:
    group.start("survivor", topic, kind)
    with fed(group.jvm, group.bootstrap, topic, PARTITION_COUNT) as ends:
        for number in range(SOAK_KILLS if is_soak() else 1):
            with group.jvm.another(tmp_path / f"stderr-{number}") as victim:
                group.start(f"victim-{number}", topic, kind, jvm=victim)
                group.await_balance(PARTITION_COUNT)
                victim.signal(signal.SIGKILL)
            del group.alive[f"victim-{number}"]
            group.mark_gone([f"victim-{number}"])
            group.await_balance(PARTITION_COUNT)
    group.await_committed(ends)
    group.close_all()
    check_deliveries(group.history(), ends)


def delivered(group: Group, member: str) -> set[Partition]:
    """The partitions that it has read from."""
    found = [each for each in group.history() if (each.member, each.event) == (member, "delivered")]
    return {partition for event in found for partition in event.partitions}


@both_protocols
def test_a_paused_member_is_replaced_and_its_late_commit_refused(
    group: Group, topic: str, kind: Kind, tmp_path: Path
) -> None:
    with group.jvm.another(tmp_path / "stderr") as paused:
        group.start("awake", topic, kind)
        group.start("asleep", topic, kind, jvm=paused)
        with fed(group.jvm, group.bootstrap, topic, PARTITION_COUNT) as ends:
            lost = group.await_balance(PARTITION_COUNT)["asleep"]
            # A member of the consumer protocol that wakes up asking where to begin is told that it is nobody,
            # and Kafka's consumer gives up: it throws UnknownMemberIdException from poll. So it reads first.
            group.await_that(lambda: lost <= delivered(group, "asleep"), "does not read")
            group.hold("asleep")
            paused.signal(signal.SIGSTOP)
            group.mark_gone(["asleep"])
            group.await_that(lambda: len(group.owned()["awake"]) == PARTITION_COUNT, "has not replaced it")
        group.await_committed(ends)
        place = len(group.history())
        paused.signal(signal.SIGCONT)
        rows = [(*partition, 1, "late") for partition in sorted(lost)]
        assert group.commit("asleep", *rows) == "CommitFailedException"
        group.resume("asleep")
        assert set(group.await_event("asleep", "lost", place).partitions) == lost
        group.await_balance(PARTITION_COUNT)
        kept = group.committed("awake", *ends)
        assert {(row[0], row[1]): row[2] for row in kept if row} == ends
        group.close_all()
    # What it had fetched before it slept it gives out when it wakes, until it hears that it was replaced.
    history = group.history()
    told = next(at for at in range(place, len(history)) if history[at].event == "lost")
    woken = [each for each in history[place:told] if (each.member, each.event) == ("asleep", "delivered")]
    check_deliveries([event for event in history if not any(event is each for each in woken)], ends)
