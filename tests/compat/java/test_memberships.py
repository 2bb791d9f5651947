"""What single members of a group meet, by both protocols: static places, slowness, patterns, upgrades."""

from __future__ import annotations

import pytest

from tests.compat.java.group_history import check_deliveries, committed_ends
from tests.compat.java.members import COOPERATIVE, RANGE, UNIFORM, Group, Kind, Subscription, fed
from tests.compat.java.operator import JavaOperator
from tests.soak import is_soak

PARTITION_COUNT = 4
FENCED = "FencedInstanceIdException"
UNRELEASED = "UnreleasedInstanceIdException"
CHANGES = ("assigned", "revoked", "lost")

both_protocols = pytest.mark.parametrize("kind", [RANGE, UNIFORM], ids=lambda kind: kind.name)


@pytest.fixture
def topic(operator: JavaOperator, fresh_name: str) -> str:
    operator.create_topic(fresh_name, PARTITION_COUNT, {})
    return fresh_name


@both_protocols
def test_a_static_member_comes_back_to_its_partitions_and_nobody_else_notices(
    group: Group, topic: str, kind: Kind
) -> None:
    for member in ("one", "two"):
        group.start(member, topic, kind, settings={"group.instance.id": member})
    with fed(group.jvm, group.bootstrap, topic, PARTITION_COUNT) as ends:
        before = group.await_balance(PARTITION_COUNT)
        place = len(group.history())
        group.close("one")
        group.start("one", topic, kind, settings={"group.instance.id": "one"})
        assert group.await_balance(PARTITION_COUNT) == before
    group.await_committed(ends)
    changes = {each.member for each in group.history()[place:] if each.event in CHANGES}
    assert changes == {"one"}
    group.close("two", operation="LEAVE_GROUP")
    group.await_balance(PARTITION_COUNT)
    group.close_all()
    check_deliveries(group.history(), ends)


@both_protocols
def test_a_second_instance_fences_the_first_or_is_refused(group: Group, topic: str, kind: Kind) -> None:
    """The newer protocol keeps the place for who has it until it is released."""
    same = {"group.instance.id": "same"}
    group.start("first", topic, kind, settings=same)
    group.await_balance(PARTITION_COUNT)
    loser, error = ("first", FENCED) if kind.is_classic else ("second", UNRELEASED)
    group.mark_gone([loser])
    group.start("second", topic, kind, settings=same)
    assert group.await_event(loser, "failed").error == error
    group.close(loser)
    group.await_balance(PARTITION_COUNT)


@both_protocols
def test_a_member_too_slow_is_replaced_and_its_late_commit_refused(
    group: Group, topic: str, kind: Kind
) -> None:
    with fed(group.jvm, group.bootstrap, topic, PARTITION_COUNT) as ends:
        group.start("slow", topic, kind, settings={"max.poll.interval.ms": "1500"}, commits=False)
        group.await_event("slow", "delivered")
        group.hold("slow")
        group.mark_gone(["slow"])
        place = len(group.history())
        group.start("quick", topic, kind)
        group.await_that(lambda: len(group.owned()["quick"]) == PARTITION_COUNT, "has not replaced it")
    group.await_committed(ends)
    assert group.commit("slow", (topic, 0, 1, "late")) == "CommitFailedException"
    group.resume("slow")
    assert len(group.await_event("slow", "lost", place).partitions) == PARTITION_COUNT
    group.await_balance(PARTITION_COUNT)
    assert committed_ends(group.history()) == ends
    kept = group.committed("quick", *ends)
    assert {(row[0], row[1]): row[2] for row in kept if row} == ends


@pytest.mark.parametrize("kind", [COOPERATIVE, UNIFORM], ids=["client", "broker"])
def test_a_pattern_follows_new_topics(
    group: Group, operator: JavaOperator, fresh_name: str, kind: Kind
) -> None:
    """One by the client's own expressions, one by an expression that the broker resolves (RE2)."""
    names = [f"{fresh_name}-a", f"{fresh_name}-b"]
    operator.create_topic(f"{fresh_name}-B", 1, {})
    operator.create_topic(names[0], 1, {})
    for member in ("one", "two"):
        how: Subscription = "regex" if kind.is_classic else "pattern"
        group.start(member, f"{fresh_name}-[a-z]", kind, subscription=how)
    group.await_balance(1)
    operator.create_topic(names[1], 1, {})
    owned = group.await_balance(2)
    assert set.union(*owned.values()) == {(name, 0) for name in names}
    operator.delete_topic(names[0])
    group.await_that(lambda: set.union(*group.owned().values()) == {(names[1], 0)}, "holds a deleted topic")


@both_protocols
def test_commits_keep_their_metadata(group: Group, topic: str, kind: Kind) -> None:
    group.start("one", topic, kind)
    group.await_balance(PARTITION_COUNT)
    assert group.committed("one", (topic, 0)) == [None]
    assert group.commit("one", (topic, 0, 5, "five"), (topic, 1, 0, "")) is None
    assert group.commit("one", (topic, 2, 7, "s" * 4096), later=True) is None
    kept = group.committed("one", *((topic, index) for index in range(PARTITION_COUNT)))
    assert sorted(row for row in kept if row) == [
        (topic, 0, 5, "five"),
        (topic, 1, 0, ""),
        (topic, 2, 7, "s" * 4096),
    ]
    assert group.commit("one", (topic, 2, 8, "s" * 4097), later=True) == "OffsetMetadataTooLarge"
    assert group.commit("one", (topic, 0, 2, "back")) is None
    assert group.committed("one", (topic, 0)) == [(topic, 0, 2, "back")]


@pytest.mark.soak
@pytest.mark.parametrize(
    "classic", [RANGE, COOPERATIVE] if is_soak() else [RANGE], ids=lambda kind: kind.name
)
def test_a_group_is_upgraded_and_downgraded_without_losing_a_record(
    group: Group, operator: JavaOperator, topic: str, classic: Kind
) -> None:
    def type_and_state() -> tuple[str, str]:
        described = operator.admin("describe_group", group=group.name)
        return described["type"], described["state"]

    def replace(old: str, new: str, kind: Kind) -> None:
        group.start(new, topic, kind)
        group.await_balance(PARTITION_COUNT)
        group.close(old)
        group.await_balance(PARTITION_COUNT)

    with fed(group.jvm, group.bootstrap, topic, PARTITION_COUNT) as ends:
        group.start("a1", topic, classic)
        group.start("b1", topic, classic)
        group.await_balance(PARTITION_COUNT)
        assert type_and_state() == ("Classic", "Stable")
        replace("a1", "a2", UNIFORM)
        assert type_and_state()[0] == "Consumer"
        replace("b1", "b2", UNIFORM)
        replace("a2", "a3", classic)
        assert type_and_state()[0] == "Consumer"
        replace("b2", "b3", classic)
        assert type_and_state() == ("Classic", "Stable")
    group.await_committed(ends)
    group.close_all()
    check_deliveries(group.history(), ends)
