"""The Java AdminClient 4.3 about groups: what it lists, describes, changes and deletes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.java.members import RANGE, UNIFORM, Group, Kind
from tests.compat.java.operator import JavaOperator
from tests.compat.operator import INVALID_CONFIG, refusal

PARTITION_COUNT = 2
GROUP_ID_NOT_FOUND = 69
NON_EMPTY_GROUP = 68
UNKNOWN_MEMBER_ID = 25
UNKNOWN_TOPIC_OR_PARTITION = 3
GROUP_SUBSCRIBED_TO_TOPIC = 86

both_protocols = pytest.mark.parametrize("kind", [RANGE, UNIFORM], ids=lambda kind: kind.name)


@pytest.fixture
def topic(operator: JavaOperator, fresh_name: str) -> str:
    operator.create_topic(fresh_name, PARTITION_COUNT, {})
    return fresh_name


def offsets_of(operator: JavaOperator, *groups: str, stable: bool = False) -> dict[str, list[Any]]:
    found = operator.admin("group_offsets", groups=dict.fromkeys(groups), stable=stable)
    return {group: sorted(rows) for group, rows in found.items()}


@both_protocols
def test_a_group_with_members_is_listed_and_described(
    operator: JavaOperator, group: Group, topic: str, kind: Kind
) -> None:
    group.start("one", topic, kind)
    group.start("two", topic, kind, settings={"group.instance.id": "place"})
    owned = group.await_balance(PARTITION_COUNT)
    name, type_name = group.name, "Classic" if kind.is_classic else "Consumer"
    assert operator.admin("groups", states=["Stable"], types=[type_name])[name] == [
        type_name,
        "consumer",
        "Stable",
    ]
    assert name not in operator.admin("groups", states=["Empty", "Dead"], types=[])
    assert name not in operator.admin("groups", states=[], types=["Share"])
    assert name in operator.admin("consumer_groups")
    assert name in operator.admin("consumer_groups_as_of_old")
    described = operator.admin("describe_group", group=name)
    assert (described["type"], described["state"], described["coordinator"]) == (type_name, "Stable", 1)
    assert described["assignor"] == ("range" if kind.is_classic else "uniform")
    members = {member["client"]: member for member in described["members"]}
    shown = {client: {tuple(each) for each in member["assigned"]} for client, member in members.items()}
    assert shown == owned
    assert (members["one"]["instance"], members["two"]["instance"]) == (None, "place")
    assert members["one"]["host"] == "/127.0.0.1"
    if not kind.is_classic:
        assert described["epoch"] == described["target_epoch"] == members["one"]["epoch"]
        assert sorted(members["one"]["target"]) == sorted(members["one"]["assigned"])
        assert refusal(operator.admin, "describe_classic_group", group=name) == GROUP_ID_NOT_FOUND
    else:
        classic = operator.admin("describe_classic_group", group=name)
        assert (classic["state"], classic["protocol"], classic["protocol_data"]) == (
            "Stable",
            "consumer",
            "range",
        )


def test_offsets_of_many_groups_are_told_at_once(operator: JavaOperator, topic: str) -> None:
    groups = [f"{topic}-{index}" for index in range(3)]
    for index, group in enumerate(groups):
        operator.admin("alter_group_offsets", group=group, offsets=[(topic, 0, index, f"note {index}")])
    operator.admin("alter_group_offsets", group=groups[0], offsets=[(topic, 1, 7, "")])
    expected = {group: [[topic, 0, index, f"note {index}"]] for index, group in enumerate(groups)}
    expected[groups[0]].append([topic, 1, 7, ""])
    assert offsets_of(operator, *groups) == offsets_of(operator, *groups, stable=True) == expected
    some = operator.admin(
        "group_offsets", groups={groups[0]: [(topic, 1)], groups[1]: [(topic, 1)]}, stable=False
    )
    assert some == {groups[0]: [[topic, 1, 7, ""]], groups[1]: [None]}
    assert offsets_of(operator, "no-such-group") == {"no-such-group": []}
    assert operator.admin("groups", states=["Empty"], types=[])[groups[0]][2] == "Empty"
    codes = operator.admin("delete_groups", groups=[*groups, "no-such-group"])
    assert codes == dict.fromkeys(groups, 0) | {"no-such-group": GROUP_ID_NOT_FOUND}
    assert offsets_of(operator, *groups) == {group: [] for group in groups}


@both_protocols
def test_what_members_use_is_not_taken_from_them(
    operator: JavaOperator, group: Group, topic: str, kind: Kind
) -> None:
    other = f"{topic}-other"
    operator.create_topic(other, 1, {})
    operator.admin("alter_group_offsets", group=group.name, offsets=[(topic, 0, 1, ""), (other, 0, 1, "")])
    group.start("one", topic, kind)
    group.await_balance(PARTITION_COUNT)
    assert operator.admin("delete_groups", groups=[group.name]) == {group.name: NON_EMPTY_GROUP}
    change = {"group": group.name, "offsets": [(topic, 0, 0, "")]}
    assert refusal(operator.admin, "alter_group_offsets", **change) == UNKNOWN_MEMBER_ID
    deleted = operator.admin("delete_group_offsets", group=group.name, partitions=[(topic, 0), (other, 0)])
    assert deleted == {f"{topic}-0": GROUP_SUBSCRIBED_TO_TOPIC, f"{other}-0": 0}
    assert offsets_of(operator, group.name) == {group.name: [[topic, 0, 1, ""]]}
    group.close("one")
    partitions = [(topic, 0), (topic, 99)]
    deleted = operator.admin("delete_group_offsets", group=group.name, partitions=partitions)
    assert deleted == {f"{topic}-0": 0, f"{topic}-99": UNKNOWN_TOPIC_OR_PARTITION}


@both_protocols
def test_members_are_removed(operator: JavaOperator, group: Group, topic: str, kind: Kind) -> None:
    for member in ("one", "two"):
        group.start(member, topic, kind, settings={"group.instance.id": member})
    group.await_balance(PARTITION_COUNT)
    group.mark_gone(["one"])
    place = len(group.history())
    codes = operator.admin("remove_members", group=group.name, instances=["one", "nobody"])
    assert codes == {"one": 0, "nobody": UNKNOWN_MEMBER_ID}
    await_removal(group, "one", place)
    group.mark_gone(["one", "two"])
    place = len(group.history())
    operator.admin("remove_members", group=group.name, instances=None)
    await_removal(group, "two", place)


def await_removal(group: Group, member: str, place: int) -> None:
    """It loses what it had and joins anew; if it was just asking for offsets, the client gives up."""

    def noticed() -> bool:
        events = [each.event for each in group.history()[place:] if each.member == member]
        return "lost" in events or "failed" in events

    group.await_that(noticed, f"has not removed {member}")


def test_settings_of_a_group_are_held_to_their_bounds(operator: JavaOperator, group: Group) -> None:
    key = "consumer.session.timeout.ms"
    before = operator.settings("GROUP", group.name)[key]
    operator.alter("GROUP", group.name, ("SET", key, "46000"))
    after = operator.settings("GROUP", group.name)[key]
    assert (after.value, after.source) == ("46000", "DYNAMIC_GROUP_CONFIG")
    for change in (("SET", key, "1"), ("SET", "no.such.key", "1")):
        assert refusal(operator.alter, "GROUP", group.name, change) == INVALID_CONFIG
    operator.alter("GROUP", group.name, ("DELETE", key, None))
    assert operator.settings("GROUP", group.name)[key] == before
