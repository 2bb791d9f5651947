"""The consumer protocol: ConsumerGroupHeartbeat and ConsumerGroupDescribe, and groups of the other kind."""

from __future__ import annotations

from typing import Any

from tests.differential.case import Case
from tests.differential.entities import milliseconds
from tests.differential.group_talk import (
    CONSUMER_BEAT,
    GroupTalk,
    assignment,
)
from tests.differential.talk import Answers
from tests.differential.world import ORDERS, SMALL

A, B, C = "a", "b", "c"
STRANGER = "stranger"
FIRST, SECOND = 2, 3  # epochs of a group: its first member brings 2


def consumer_group_heartbeat(case: Case) -> None:
    _live(case)


def consumer_group_describe(case: Case) -> None:
    _live(case)
    for group_ids in ((), ("",), ("absent",), ("absent", "absent"), ("absent", "")):
        for is_asked in (False, True):
            scenario = f"{group_ids}, operations {is_asked}"
            case.ask(scenario, group_ids=group_ids, include_authorized_operations=is_asked)


def _live(case: Case) -> None:
    if case.api_key == CONSUMER_BEAT and case.version == 0:
        _be_named(GroupTalk(case, "named"))
    _refuse(GroupTalk(case, "refused"))
    _lead_a_life(GroupTalk(case, "consumer"))
    _be_static(GroupTalk(case, "static"))
    if case.api_key != CONSUMER_BEAT or case.version >= 1:
        _follow_patterns(GroupTalk(case, "pattern"))
        _want_nothing(GroupTalk(case, "idle"))
    _meet_classic_members(GroupTalk(case, "mixed"))


def _refuse(talk: GroupTalk) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "no group id": {"group_id": ""},
        "a blank group id": {"group_id": "  "},
        "an empty instance id": {"instance_id": ""},
        "an empty rack": {"rack_id": ""},
        "no rebalance timeout": {"rebalance_timeout": milliseconds(-1)},
        "no partitions at all": {"owned": None},
        "partitions already": {"owned": {ORDERS: [0]}},
        "no topics": {"subscribed_topic_names": None},
        "an unknown assignor": {"server_assignor": "best"},
        "an empty assignor": {"server_assignor": ""},
        "a bad pattern": {"subscribed_topic_regex": "(", "subscribed_topic_names": None},
        "epoch -3": {"member_epoch": -3},
        "epoch -2": {"member_epoch": -2},
    }
    for what, own in wrong.items():
        talk.consumer_join(f"to join with {what}", STRANGER, "nobody", **own)
    if talk.version_of(CONSUMER_BEAT) >= 1:
        for member_id in ("", "  "):
            talk.consumer_join(f"to join as {member_id!r}", STRANGER, member_id)
    for epoch in (1, 7, -1, -2, -3, 2**31 - 1, -(2**31)):
        talk.consumer_beat(f"a beat of epoch {epoch} in no group", STRANGER, "nobody", epoch)
        talk.consumer_beat(f"a beat of {epoch} of none", STRANGER, "", epoch)
        talk.consumer_beat(f"a static beat of {epoch}", STRANGER, "nobody", epoch, instance_id="one")
    talk.describe("never made")
    talk.close()


def _be_named(talk: GroupTalk) -> None:
    """A member that has its id from the coordinator."""
    a = talk.learn(A, talk.consumer_join("without an id", A, ""))
    talk.consumer_beat("with the id it was given", A, a, FIRST, owned={ORDERS: [0, 1, 2]})
    talk.describe("a member that was named")
    talk.consumer_beat("it leaves with that id", A, a, -1)
    talk.delete("a group of a named member")
    talk.close()


def _joined(talk: GroupTalk, scenario: str, who: str, **own: Any) -> str:
    talk.consumer_join(scenario, who, f"member-{who}", **own)
    return f"member-{who}"


def _lead_a_life(talk: GroupTalk) -> None:
    a = _joined(talk, "the first joins", A)
    talk.describe("one member")
    talk.consumer_beat("the first tells what it has", A, a, FIRST, owned={ORDERS: [0, 1, 2]})
    _fence(talk, a)
    _commit(talk, a)
    b = _share(talk, a)
    talk.consumer_beat("other topics", A, a, SECOND, subscribed_topic_names=(ORDERS, SMALL))
    talk.consumer_beat("nothing new", A, a, SECOND + 1)
    talk.consumer_beat("another assignor", B, b, SECOND, server_assignor="range")
    talk.describe("after other wishes")
    talk.delete("a group with members")
    talk.delete_offsets("of topics it consumes", {ORDERS: [0]})
    talk.consumer_join("the first joins again", A, a)
    talk.describe("the first has joined again")
    talk.leave("the first leaves by the classic door", A, (a, None), ("nobody", None), ("", "one"))
    talk.describe("one left by the classic door")
    talk.consumer_join("the first is back", A, a)
    talk.consumer_beat("the first leaves", A, a, -1)
    talk.consumer_beat("the first is gone", A, a, SECOND + 1)
    talk.consumer_beat("the first leaves again", A, a, -1)
    talk.describe("the second is left")
    talk.consumer_beat("the second leaves", B, b, -1)
    talk.describe("empty")
    talk.commit("a simple commit")
    talk.commit("a commit of a member that left", a, SECOND)
    talk.consumer_beat("a beat in an empty group", A, a, SECOND)
    talk.fetch_offsets("of an empty group", None)
    talk.delete("an empty group")
    talk.delete("a deleted group")
    talk.close()


def _share(talk: GroupTalk, a: str) -> str:
    """A second member joins, and gets what the first gives up."""
    b = _joined(talk, "the second joins", B)
    talk.describe("the second has joined")
    talk.consumer_beat("the second waits", B, b, SECOND)
    told = talk.consumer_beat("the first is asked to give up", A, a, FIRST)
    talk.consumer_beat("the first has not given up", A, a, FIRST, owned={ORDERS: [0, 1, 2]})
    talk.describe("one has to give up")
    kept = _kept(told)
    for epoch in (FIRST, FIRST - 1, SECOND):
        talk.commit(f"the first commits in {epoch} while it gives up", a, epoch, {ORDERS: [(0, 1), (2, 1)]})
    talk.consumer_beat("the first has given up", A, a, FIRST, owned={ORDERS: kept})
    for epoch in (FIRST, SECOND):
        for index in range(3):
            talk.commit(f"the first commits to {index} in {epoch}", a, epoch, {ORDERS: [(index, 1)]})
    talk.consumer_beat("the first in the epoch before, all said", A, a, FIRST, owned={ORDERS: kept})
    talk.consumer_beat("the first in the epoch before, too much", A, a, FIRST, owned={ORDERS: [0, 1, 2]})
    talk.consumer_beat("the second gets its part", B, b, SECOND)
    talk.describe("shared by two")
    return b


def _kept(told: Answers) -> list[int]:
    """What Kafka lets the member keep; it is compared elsewhere that Tidelog lets it keep the same."""
    partitions = told[0].assignment.topic_partitions if told[0].assignment is not None else ()
    return [index for topic in partitions for index in topic.partitions]


def _fence(talk: GroupTalk, a: str) -> None:
    for epoch in (FIRST - 1, FIRST + 1, 7, -3):
        talk.consumer_beat(f"a beat of epoch {epoch}", A, a, epoch)
    talk.consumer_beat("a beat of nobody", STRANGER, "nobody", 1)
    talk.consumer_beat("nobody leaves", STRANGER, "nobody", -1)
    talk.consumer_beat("leaves as static", A, a, -2)
    talk.consumer_beat("leaves as a static one", A, a, -2, instance_id="one")
    talk.consumer_beat("a beat with an instance", A, a, FIRST, instance_id="one")
    talk.consumer_beat("a beat with an unknown assignor", A, a, FIRST, server_assignor="best")
    talk.consumer_beat("a beat with an empty rack", A, a, FIRST, rack_id="")
    talk.beat("a classic beat", A, a, FIRST)
    talk.sync("a classic sync", A, a, FIRST)


def _commit(talk: GroupTalk, a: str) -> None:
    for epoch in (FIRST, 0, 1, 3, -1, 7):
        talk.commit(f"a commit of epoch {epoch}", a, epoch)
    talk.commit("a commit of nobody", "nobody", 1)
    talk.commit("a simple commit while there are members")
    for member in (
        (a, FIRST),
        (a, 1),
        (a, 0),
        (a, 7),
        (a, -1),
        ("nobody", 1),
        (None, -1),
        ("", 1),
        (None, 1),
        ("nobody", -1),
    ):
        who = "the member" if member[0] == a else repr(member[0])
        talk.fetch_offsets(f"offsets asked by {who} of {member[1]}", {ORDERS: [0]}, member)


def _be_static(talk: GroupTalk) -> None:
    instance = {"instance_id": "one"}
    a = _joined(talk, "a static member", A, **instance)
    talk.consumer_join("another with its instance", STRANGER, "other", **instance)
    talk.consumer_beat("another beats as it", STRANGER, "other", FIRST, **instance)
    talk.consumer_beat("another leaves as it", STRANGER, "other", -2, **instance)
    talk.consumer_beat("it beats without its instance", A, a, FIRST)
    talk.consumer_beat("it goes for a while", A, a, -2, **instance)
    talk.describe("while it is away")
    talk.consumer_beat("it beats while it is away", A, a, FIRST, **instance)
    talk.commit("it commits while it is away", a, FIRST, group_instance_id="one")
    b = _joined(talk, "a new process takes its place", B, **instance)
    talk.describe("it is back")
    talk.consumer_beat("the old one beats", A, a, FIRST, **instance)
    talk.consumer_beat("the old one beats without its instance", A, a, FIRST)
    talk.consumer_beat("the new one beats", B, b, FIRST, **instance)
    talk.consumer_beat("the new one leaves for good", B, b, -1, **instance)
    talk.describe("it has left")
    _joined(talk, "a static member again", C, **instance)
    talk.leave("it leaves by the classic door", A, (a, "one"), ("", "one"), ("", "one"))
    talk.describe("it has left by the classic door")
    talk.delete("a group that had a static member")
    talk.close()


def _follow_patterns(talk: GroupTalk) -> None:
    talk.consumer_join("by names and an empty pattern", A, "m", subscribed_topic_regex="")
    talk.consumer_beat("an invalid pattern", A, "m", FIRST, subscribed_topic_regex="a(b")
    talk.consumer_beat("a look-ahead", A, "m", FIRST, subscribed_topic_regex="(?=a)b")
    talk.describe("by names")
    talk.consumer_beat("it goes", A, "m", -1)
    for what, pattern, topic in (("one letter more", "order.", ORDERS), ("with a dot", r"small\..*", SMALL)):
        talk.consumer_join(
            f"to join by a pattern, {what}",
            A,
            "m",
            subscribed_topic_names=None,
            subscribed_topic_regex=pattern,
        )
        talk.ask_until_assigned(f"by a pattern, {what}", topic)
        talk.consumer_beat("it goes", A, "m", -1)
    talk.delete("a group of patterns")
    talk.close()


def _want_nothing(talk: GroupTalk) -> None:
    own: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": ""}
    talk.consumer_join("a member of no topics", A, "m", **own)
    talk.consumer_beat("a member of no topics goes", A, "m", -1)
    talk.delete("a group of no topics")
    talk.close()


def _meet_classic_members(talk: GroupTalk) -> None:
    """A classic group becomes one of both kinds of members, and a classic one again."""
    classic = talk.join_alone(A)
    talk.sync("the classic leader", A, classic, 1, shares={classic: assignment(ORDERS, 0, 1, 2)})
    talk.consumer_join("a modern member joins a classic group", B, "modern")
    talk.describe("of both kinds")
    talk.beat("the classic member must join again", A, classic, 1)
    talk.commit("the classic member commits", classic, 1)
    talk.join("the classic member joins again", A, classic)
    talk.sync("the classic member's part", A, classic, 2)
    talk.sync("the classic member's part, wrong generation", A, classic, 1)
    talk.beat("the classic member gives up", A, classic, 2)
    talk.describe("after a step")
    talk.join("a stranger of another type", STRANGER, protocol_type="connect")
    talk.join("a stranger with an id nobody has", STRANGER, "nobody")
    talk.leave("the modern member leaves by the classic door", B, ("modern", None))
    talk.consumer_beat("the modern member leaves", B, "modern", -1)
    talk.describe("classic again")
    talk.close()
