"""FindCoordinator, ListGroups, DescribeGroups and DeleteGroups."""

from __future__ import annotations

from tests.differential.case import Case
from tests.differential.entities import NOBODY
from tests.differential.group_talk import LIST, LOOKER, GroupTalk, assignment
from tests.differential.world import ORDERS

# None that is good: Kafka would make a topic for it that the other scenarios do not have.
SHARE_KEYS = (f"group:{NOBODY}:0", ":::", "group:x:0", "group::", "group:AAAA")


def find_coordinator(case: Case) -> None:
    for key_type in (0, 1, 2, 3, -1):
        for key in ("group", "", "x" * 32_000):
            values = {"key": key, "key_type": key_type, "coordinator_keys": (key,)}
            case.ask(f"{key[:9]!r} of type {key_type}", **values)
    for key in SHARE_KEYS:
        case.ask(f"{key!r} of a share group", key=key, key_type=2, coordinator_keys=(key,))
    if case.version >= 4:
        case.ask("no keys", key_type=0, coordinator_keys=())
        case.ask("two keys", key_type=0, coordinator_keys=("a", "b"))
        case.ask("the same key twice", key_type=0, coordinator_keys=("a", "a"))


def list_groups(case: Case) -> None:
    """One group of each kind and state, seen through every filter."""
    stable = GroupTalk(case, "stable")
    member = stable.join_alone("a")
    stable.sync("a stable group", "a", member, 1, shares={member: assignment(ORDERS, 0)})
    completing = GroupTalk(case, "completing")
    completing.join_alone("a")
    modern = GroupTalk(case, "modern")
    modern.consumer_join("a consumer group", "a", "m")
    simple = GroupTalk(case, "simple")
    simple.commit("a group of commits")
    states = (
        "Stable",
        "Empty",
        "CompletingRebalance",
        "PreparingRebalance",
        "Assigning",
        "Reconciling",
        "Dead",
    )
    for state in (*states, "stable", "EMPTY", "", "no such state", "Unknown"):
        case.ask(f"in state {state!r}", states_filter=(state,))
    for kind in ("classic", "consumer", "Classic", "CONSUMER", "share", "streams", "", "other", "Unknown"):
        case.ask(f"of type {kind!r}", types_filter=(kind,))
    case.ask("all")
    case.ask("of two states", states_filter=("Stable", "Empty"))
    case.ask("of two types", types_filter=("classic", "consumer"))
    case.ask("of a state and a type", states_filter=("Stable",), types_filter=("consumer",))
    stable.leave("done", "a", (member, None))
    modern.consumer_beat("done", "a", "m", -1)
    for talk in (stable, modern, simple):
        talk.delete("done")
    completing.close()


def describe_groups(case: Case) -> None:
    simple = GroupTalk(case, "simple")
    simple.commit("a group of commits")
    modern = GroupTalk(case, "modern")
    modern.consumer_join("a consumer group", "a", "m")
    for groups in (
        (),
        ("",),
        ("absent",),
        ("absent", "absent"),
        (simple.group_id, "absent", modern.group_id, ""),
    ):
        for is_asked in (False, True):
            scenario = f"{len(groups)} groups, {'' in groups}, {is_asked}"
            case.ask(scenario, groups=groups, include_authorized_operations=is_asked)
    simple.delete("done")
    modern.consumer_beat("done", "a", "m", -1)
    modern.delete("done")


def delete_groups(case: Case) -> None:
    simple, modern, busy = (GroupTalk(case, stem) for stem in ("simple", "modern", "busy"))
    simple.commit("a group of commits")
    modern.consumer_join("a consumer group", "a", "m")
    modern.consumer_beat("that is empty", "a", "m", -1)
    busy.consumer_join("a busy group", "a", "m")
    for groups in ((), ("",), ("absent",), ("absent", "absent"), ("absent", ""), (busy.group_id, "absent")):
        case.ask(f"{len(groups)} groups, {'' in groups}, {busy.group_id in groups}", groups_names=groups)
    case.ask("two and a busy one", groups_names=(simple.group_id, modern.group_id, busy.group_id))
    case.ask("them again", groups_names=(simple.group_id, modern.group_id))
    case.ask("one twice", groups_names=(busy.group_id, busy.group_id))
    busy.consumer_beat("not busy any more", "a", "m", -1)
    case.ask("that one twice", groups_names=(busy.group_id, busy.group_id))
    busy.ask("what is left", LOOKER, LIST)
