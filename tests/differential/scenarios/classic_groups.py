"""The classic protocol: the life of a group by JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The same life is led once for each version of each of the four.
"""

from __future__ import annotations

from typing import Any

from tests.differential.case import Case
from tests.differential.entities import milliseconds
from tests.differential.group_talk import (
    HEARTBEAT,
    JOIN,
    LEAVE,
    SUBSCRIBED,
    SYNC,
    TWO_PROTOCOLS,
    GroupTalk,
    assignment,
    subscription,
)
from tests.differential.world import ORDERS, SMALL

A, B, C = "a", "b", "c"
SHARE_A, SHARE_B = assignment(ORDERS, 0, 1), assignment(ORDERS, 2)
STRANGER = "stranger"
LONG_ID = "x" * 32_000


def join_group(case: Case) -> None:
    _live(case)


def heartbeat(case: Case) -> None:
    _live(case)


def leave_group(case: Case) -> None:
    _live(case)


def sync_group(case: Case) -> None:
    _live(case)


def _live(case: Case) -> None:
    _lead_a_life(GroupTalk(case, "classic"))
    _be_static(GroupTalk(case, "static"))
    _refuse(GroupTalk(case, "refused"))
    _be_of_another_kind(GroupTalk(case, "connect"))


def _refuse(talk: GroupTalk) -> None:
    """What no group is made for."""
    wrong: dict[str, dict[str, Any]] = {
        "no group id": {"group_id": ""},
        "a session of 5,999 ms": {"session_timeout": milliseconds(5_999)},
        "a session of half an hour and more": {"session_timeout": milliseconds(1_800_001)},
        "a negative session": {"session_timeout": milliseconds(-1)},
        "no session": {"session_timeout": milliseconds(0)},
        "no protocols": {"protocols": ()},
        "no protocol type": {"protocol_type": ""},
        "no group id and no session": {"group_id": "", "session_timeout": milliseconds(0)},
    }
    for what, own in wrong.items():
        talk.join(f"to join with {what} and an id", STRANGER, "nobody", **own)
    talk.join("to join as nobody", STRANGER, "nobody")
    talk.join("to join with a long id", STRANGER, LONG_ID)
    if talk.version_of(JOIN) >= 5:
        talk.join("to join as a static nobody", STRANGER, "nobody", instance_id="one")
    for group_id in (talk.group_id, ""):
        talk.sync(f"to sync in {group_id!r}", STRANGER, "nobody", 1, group_id=group_id)
        talk.sync(f"to sync as none in {group_id!r}", STRANGER, "", -1, group_id=group_id)
        talk.beat(f"to beat in {group_id!r}", STRANGER, "nobody", 1, group_id=group_id)
        talk.beat(f"to beat as none in {group_id!r}", STRANGER, "", -1, group_id=group_id)
        talk.beat(f"a static beat in {group_id!r}", STRANGER, "nobody", 1, group_id=group_id, **_one(talk))
        talk.leave(f"to leave {group_id!r}", STRANGER, ("nobody", None), group_id=group_id)
        talk.leave(f"to leave {group_id!r} as none", STRANGER, ("", None), group_id=group_id)
        if talk.version_of(LEAVE) >= 3:
            talk.leave(f"nobody leaves {group_id!r}", STRANGER, group_id=group_id)
            talk.leave(f"a static one leaves {group_id!r}", STRANGER, ("", "one"), group_id=group_id)
    talk.describe("never made")
    for what, own in wrong.items():
        talk.join(f"to join with {what}", STRANGER, **own)
    talk.forget()


def _one(talk: GroupTalk) -> dict[str, str]:
    return {"group_instance_id": "one"} if talk.version_of(HEARTBEAT) >= 3 else {}


def _lead_a_life(talk: GroupTalk) -> None:
    a = talk.join_alone(A)
    _while_completing(talk, a)
    talk.sync("the leader shares out", A, a, 1, shares={a: SHARE_A, "nobody": SHARE_B})
    _while_stable(talk, a)
    b = _second_member(talk, a)
    talk.leave("the second leaves", B, (b, None))
    talk.beat("after the second left", A, a, 2)
    talk.beat("the second after it left", B, b, 2)
    talk.describe("preparing")
    talk.join("the first again, with more protocols", A, a, protocols=TWO_PROTOCOLS)
    talk.describe("completing again")
    talk.sync("a sync of the last generation", A, a, 2)
    talk.sync("to nobody", A, a, 3, shares={})
    talk.describe("stable again, nobody has a part")
    talk.leave("the last leaves, nobody too", A, (a, None), ("nobody", None), (a, None))
    _when_empty(talk, a)
    talk.close()


def _while_completing(talk: GroupTalk, a: str) -> None:
    talk.describe("completing")
    for generation in (1, 0, 2, -1):
        talk.beat(f"a beat of generation {generation} while completing", A, a, generation)
        talk.commit(f"a commit of generation {generation} while completing", a, generation)
    talk.beat("a beat of nobody while completing", STRANGER, "nobody", 1)
    talk.commit("a commit of nobody while completing", "nobody", 1)
    talk.commit("a simple commit while completing")
    talk.join("the same again while completing", A, a)
    wrong: dict[str, dict[str, Any]] = {
        "another protocol": {"protocol_name": "roundrobin"},
        "another protocol type": {"protocol_type": "connect"},
        "no protocol": {"protocol_name": None, "protocol_type": None, "generation_id": 9},
        "an unknown instance": {"group_instance_id": "one"},
        "a late generation": {"generation_id": 0},
    }
    for what, own in wrong.items():
        talk.sync(f"a sync with {what}", A, a, 1, **own)
    talk.sync("a sync of nobody", STRANGER, "nobody", 1)
    talk.sync("a sync of none", STRANGER, "", 1)


def _while_stable(talk: GroupTalk, a: str) -> None:
    talk.describe("stable")
    talk.sync("a sync again", A, a, 1)
    talk.sync("a sync again with shares", A, a, 1, shares={a: b"other"})
    for generation in (1, 0, 2, -1, 2**31 - 1):
        talk.beat(f"a beat of generation {generation}", A, a, generation)
        talk.commit(f"a commit of generation {generation}", a, generation)
    talk.beat("a beat of nobody", STRANGER, "nobody", 1)
    talk.beat("a beat of none", STRANGER, "", 1)
    talk.beat("a beat of none of no generation", STRANGER, "", -1)
    talk.beat("a beat with an unknown instance", A, a, 1, **_one(talk))
    for member_id, generation in (("nobody", 1), ("", 1), ("", -1), ("nobody", -1)):
        talk.commit(f"a commit of {member_id!r} of {generation}", member_id, generation)
    talk.commit("a commit with an unknown instance", a, 1, group_instance_id="one")
    talk.fetch_offsets("offsets while stable", {ORDERS: [0, 1]})
    talk.fetch_offsets("offsets of a member of epoch 7", {ORDERS: [0]}, member=("nobody", 7))
    talk.delete_offsets("of a topic it consumes", {ORDERS: [0], SMALL: [0]})
    talk.delete("to delete a group with members")
    talk.join("a stranger with another protocol", STRANGER, protocols=(("other", b"x"),))
    talk.join("a stranger of another type", STRANGER, protocol_type="connect")
    talk.join("a stranger with an id", STRANGER, "nobody")
    if talk.version_of(JOIN) >= 5:
        talk.join("a member with an unknown instance", A, a, instance_id="one")
    talk.consumer_beat("a consumer beat", STRANGER, a, 1)
    talk.consumer_beat("a consumer leave", STRANGER, a, -1)
    talk.leave("nobody leaves", STRANGER, ("nobody", None))
    if talk.version_of(LEAVE) >= 3:
        talk.leave("an unknown instance leaves", STRANGER, ("", "one"), (a, "one"))


def _second_member(talk: GroupTalk, a: str) -> str:
    b = talk.new_id(B)
    waiting = talk.send_join(B, b, protocols=TWO_PROTOCOLS)
    talk.await_rebalance(A, a, 1)
    talk.beat("a beat while preparing", A, a, 1)
    talk.sync("a sync while preparing", A, a, 1)
    talk.commit("a commit while preparing", a, 1)
    talk.describe("preparing with one that waits")
    talk.join("the first joins again", A, a)
    answers = talk.answer("the second joined", waiting)
    b = b or talk.learn(B, answers)
    if not talk.version_of(JOIN) >= 4:
        talk.beat("the second beats", B, b, 2)
    follower = talk.send(B, SYNC, **talk.sync_values(b, 2))
    talk.sync("the leader shares out to two", A, a, 2, shares={a: SHARE_A, b: SHARE_B})
    talk.answer("the follower's part", follower)
    talk.describe("stable with two")
    talk.join("the follower joins again as it was", B, b, protocols=TWO_PROTOCOLS)
    talk.beat("the follower after that", B, b, 2)
    return b


def _when_empty(talk: GroupTalk, a: str) -> None:
    talk.describe("empty")
    for generation in (4, 3, 0, -1):
        talk.beat(f"a beat of {generation} in an empty group", A, a, generation)
        talk.sync(f"a sync of {generation} in an empty group", A, a, generation)
        talk.commit(f"a commit of {generation} in an empty group", a, generation)
    talk.commit("a simple commit in an empty group")
    talk.commit("a simple commit by nobody in an empty group", "nobody")
    talk.join("a member that left", A, a)
    talk.leave("it leaves again", A, (a, None))
    talk.fetch_offsets("all offsets when empty", None)
    talk.delete_offsets("when empty", {ORDERS: [0, 1, 9], SMALL: [0], "absent": [0]})
    talk.fetch_offsets("all offsets when deleted", None)
    talk.delete("to delete an empty group")
    talk.delete("to delete it again")
    talk.describe("deleted")


def _be_static(talk: GroupTalk) -> None:
    if (
        min(
            talk.version_of(JOIN) - 2,
            talk.version_of(SYNC),
            talk.version_of(HEARTBEAT),
            talk.version_of(LEAVE),
        )
        < 3
    ):
        return
    first = talk.learn(A, talk.join("a static member", A, instance_id="one"))
    talk.sync("the static leader", A, first, 1, shares={first: SHARE_A}, group_instance_id="one")
    talk.describe("a static member")
    second = talk.learn(B, talk.join("the same instance comes back", B, instance_id="one"))
    talk.describe("a replaced member")
    for member_id, what in ((first, "the replaced"), (second, "the new"), ("nobody", "nobody")):
        for instance_id in ("one", "two", None):
            own: dict[str, Any] = {"group_instance_id": instance_id}
            talk.beat(f"{what} beats as {instance_id}", A, member_id, 1, **own)
            talk.sync(f"{what} syncs as {instance_id}", A, member_id, 1, **own)
            talk.commit(f"{what} commits as {instance_id}", member_id, 1, **own)
    talk.join("the replaced joins", A, first, instance_id="one")
    talk.join("the replaced joins as another", A, first, instance_id="two")
    talk.join("the replaced joins without an instance", A, first)
    talk.join("the new one joins again", B, second, instance_id="one")
    talk.sync("the new one shares out", B, second, 2, shares={second: SHARE_B}, group_instance_id="one")
    third = talk.learn(C, talk.join("an instance with other topics", C, instance_id="one", protocols=OTHERS))
    talk.beat("after other topics", C, third, 2, group_instance_id="one")
    talk.beat("after other topics, later", C, third, 3, group_instance_id="one")
    talk.leave("who is not it leaves", A, (first, "one"), ("nobody", "one"), ("", "two"))
    talk.leave("it leaves by its instance", A, ("", "one"), ("", "one"))
    talk.describe("without static members")
    talk.delete("a group that had static members")
    talk.close()


OTHERS = (("range", subscription(SMALL)),)


def _be_of_another_kind(talk: GroupTalk) -> None:
    """A group whose members are no consumers."""
    own: dict[str, Any] = {"protocol_type": "connect", "protocols": (("compatible", b"\1\2\3"),)}
    kind = {"protocol_type": "connect", "protocol_name": "compatible"}
    a = talk.new_id(A)
    answers = talk.join("a worker", A, a, **own)
    a = a or talk.learn(A, answers)
    talk.sync("the worker's part", A, a, 1, shares={a: b"anything"}, **kind)
    talk.describe("workers")
    talk.commit("a worker commits", a, 1)
    talk.delete_offsets("of workers", {ORDERS: [0]})
    talk.join("a consumer among workers", STRANGER, protocols=SUBSCRIBED)
    talk.consumer_join("a modern consumer among workers", STRANGER, "modern")
    talk.leave("the worker leaves", A, (a, None))
    talk.describe("no workers")
    talk.delete("the workers' group")
    talk.close()
