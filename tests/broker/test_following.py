"""A broker that reads what others have written to the store."""

from __future__ import annotations

import pytest

from tests.broker.parts import make_kernel
from tidelog.broker.control_plane.following import Following
from tidelog.broker.kernel import Kernel
from tidelog.broker.standing import Standing
from tidelog.broker.store_desk import StoreDesk
from tidelog.cluster.controller import decide_topic
from tidelog.cluster.facts import encode_fields
from tidelog.cluster.image import Image
from tidelog.cluster.paths import CHANGES
from tidelog.cluster.store import (
    Action,
    Node,
    ReadNodes,
    ReadTree,
    StoreReply,
    StoreRequest,
    Tree,
    Unknown,
)
from tidelog.cluster.tree import SharedTree


class Follower:
    """`Following` that has read the tree up to a notice."""

    def __init__(self, last_notice: int) -> None:
        self.kernel: Kernel = make_kernel(is_sharing=True)
        self.desk = StoreDesk(Image(), self.kernel.outbox, is_sharing=True)
        self.following = Following(self.kernel, Standing(self.kernel.node_id), self.desk)
        self.following.take_tree(notices(last_notice))

    def asked(self) -> StoreRequest:
        """The one reading that is asked for now."""
        effects = self.kernel.outbox.take_effects()
        (request,) = [effect for effect in effects if isinstance(effect, StoreRequest)]
        return request

    def answer(self, nodes: dict[str, Node]) -> Action:
        """What is asked for next, after that answer to what is asked for now."""
        self.desk.on_reply(StoreReply(self.asked().ticket, Tree(nodes)))
        return self.asked().action


def notices(*numbers: int) -> dict[str, Node]:
    """The notices with these numbers, and their folder; each names a place of its own."""
    paths = {number: f"{CHANGES}/{number:010}" for number in numbers}
    found = {paths[number]: Node(encode_fields(paths=[f"/topics/{number}"]), 0) for number in numbers}
    return {CHANGES: Node(b"", 0)} | found


def test_what_new_notices_name_is_read() -> None:
    follower = Follower(last_notice=5)
    follower.following.on_changed(CHANGES)
    assert follower.answer(notices(4, 5, 6, 7)) == ReadNodes(("/topics/6", "/topics/7"))
    assert follower.following.position.change == 7


def test_who_missed_notices_that_are_gone_reads_the_tree() -> None:
    follower = Follower(last_notice=5)
    follower.following.on_changed(CHANGES)
    assert follower.answer(notices(7, 8)) == ReadTree("/")
    assert follower.following.position.change == 5, "6 was missed: nothing behind it is known yet"


def _is_synced(action: Action) -> bool:
    return isinstance(action, ReadTree | ReadNodes) and action.is_synced


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_new_session_that_is_behind_does_not_take_a_topic_for_deleted(is_asked: bool) -> None:
    """Neither by what is asked for in it, nor by what was asked for just before the last one ended."""
    follower, tree = Follower(last_notice=5), SharedTree()
    following, image = follower.following, follower.desk.image
    behind, session = tree.newest, tree.open_session()  # which keeps what is replaced
    made = decide_topic(image, "t", bytes(16), {}, [[1]])
    tree.change(None, made)
    image.apply(made)
    changed = {f"{CHANGES}/{6:010}": Node(encode_fields(paths=[each.path for each in made]), 0)}
    following.on_changed(CHANGES)
    follower.desk.on_reply(StoreReply(follower.asked().ticket, Tree(notices(5) | changed)))
    asked = follower.asked()
    if not is_asked:
        follower.desk.on_reply(StoreReply(asked.ticket, Unknown("the session has ended")))
    following.on_session_ended()
    following.tick()  # before the broker has registered again
    asked = asked if is_asked else follower.asked()
    follower.desk.on_reply(StoreReply(asked.ticket, session.perform(asked.action, behind)))
    assert "t" in image.topics
    following.on_changed(CHANGES)
    effects = follower.kernel.outbox.take_effects()
    synced = {_is_synced(each.action) for each in effects if isinstance(each, StoreRequest)}
    assert synced == {is_asked}, "until one was, and no longer"
