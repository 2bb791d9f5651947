"""Static members of classic groups: who takes a place is known by it after a restart."""

from __future__ import annotations

from tests.groups.desk import Desk, DeskTopics
from tidelog.protocol.errors import ErrorCode


def test_a_static_member_that_comes_again_during_a_rebalance_is_not_fenced_by_a_restart() -> None:
    desk = Desk(DeskTopics(t=2))
    first = desk.join(instance_id="A").answer.member_id
    desk.sync(first, 1, {first: b"all"})
    desk.join(instance_id="B")  # the group prepares a generation, and waits for A
    again = desk.join(instance_id="A").answer
    assert again.error is ErrorCode.none and again.member_id != first
    desk.restart()
    assert desk.sync(again.member_id, again.generation).answer.error is not ErrorCode.fenced_instance_id
    assert desk.join(first, instance_id="A").answer.error is ErrorCode.fenced_instance_id
    waiting = desk.join(again.member_id, instance_id="A")
    desk.tick(60_000)
    assert waiting.answer.error is ErrorCode.none
