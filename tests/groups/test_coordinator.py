"""What a coordinator of groups must not get wrong: who is in, what is written, what a restart brings back."""

from __future__ import annotations

import pytest

from tests.groups.desk import Desk, DeskTopics
from tidelog.groups.classic import ClassicGroup
from tidelog.groups.consumer import ConsumerGroup
from tidelog.groups.roster import State
from tidelog.protocol.embedded import write_assignment
from tidelog.protocol.errors import ErrorCode

FIRST_HALF = write_assignment(0, {"t": (0, 1)})
SECOND_HALF = write_assignment(0, {"t": (2, 3)})


@pytest.fixture
def desk() -> Desk:
    return Desk(DeskTopics(t=4, u=2))


def stable_pair(desk: Desk) -> tuple[str, str, int]:
    """Leader, follower and generation of a group that both have just joined; the leader has shared out."""
    leader = desk.join().answer.member_id
    desk.sync(leader, 1, {leader: write_assignment(0, {"t": (0, 1, 2, 3)})})
    follower = desk.join()
    again = desk.join(leader)
    generation = again.answer.generation
    assert follower.answer.generation == generation == 2
    desk.sync(leader, generation, {leader: FIRST_HALF, follower.answer.member_id: SECOND_HALF})
    return leader, follower.answer.member_id, generation


def test_a_follower_that_fetches_its_part_after_the_leader_shared_out_stays(desk: Desk) -> None:
    leader, follower, generation = stable_pair(desk)
    assert desk.sync(follower, generation).answer.assignment == SECOND_HALF
    for _ in range(30):
        desk.tick(5_000)
        assert desk.beat(leader, generation).answer is ErrorCode.none
        assert desk.beat(follower, generation).answer is ErrorCode.none


def test_a_follower_that_never_fetches_its_part_goes(desk: Desk) -> None:
    leader, follower, generation = stable_pair(desk)
    for _ in range(13):
        desk.tick(5_000)
        desk.beat(leader, generation)
        desk.beat(follower, generation)
    assert desk.beat(follower, generation).answer is ErrorCode.unknown_member_id
    assert desk.beat(leader, generation).answer is ErrorCode.rebalance_in_progress


def test_a_refused_heartbeat_leaves_a_classic_group_as_it_was() -> None:
    desk = Desk(DeskTopics(t=4), group_consumer_max_size="1")
    leader, follower, generation = stable_pair(desk)
    refused = desk.consumer_beat("m").answer
    assert refused.error is not ErrorCode.none
    assert isinstance(desk.coordinator.groups["g"], ClassicGroup)
    assert desk.beat(leader, generation).answer is ErrorCode.none
    desk.restart()
    assert isinstance(desk.coordinator.groups["g"], ClassicGroup)
    assert desk.beat(follower, generation).answer is ErrorCode.none


def test_a_refused_join_of_an_empty_consumer_group_leaves_its_commits(desk: Desk) -> None:
    desk.consumer_beat("m")
    desk.consumer_beat("m", -1)
    assert desk.commit(7).answer == [ErrorCode.none]
    assert desk.join("unheard of").answer.error is ErrorCode.unknown_member_id
    assert [entry for piece in desk.coordinator.stored() for entry in piece if entry.key[1] == 1]
    desk.restart()
    assert desk.committed() == 7


def test_a_group_is_raised_by_its_first_consumer_member_and_lowered_when_that_leaves(desk: Desk) -> None:
    leader, follower, generation = stable_pair(desk)
    assert desk.consumer_beat("m").answer.error is ErrorCode.none
    assert isinstance(desk.coordinator.groups["g"], ConsumerGroup)
    assert desk.beat(leader, generation).answer is ErrorCode.rebalance_in_progress
    desk.restart()
    assert list(desk.coordinator.groups["g"].members) == [leader, follower, "m"]
    desk.consumer_beat("m", -1)
    lowered = desk.coordinator.groups["g"]
    assert isinstance(lowered, ClassicGroup) and lowered.state is State.PREPARING


def test_a_lowered_group_shares_out_after_a_restart(desk: Desk) -> None:
    stable_pair(desk)
    desk.consumer_beat("m")
    desk.consumer_beat("m", -1)
    desk.restart()
    lowered = desk.coordinator.groups["g"]
    assert isinstance(lowered, ClassicGroup) and lowered.state is State.PREPARING


def test_a_late_commit_of_a_replaced_member_is_refused(desk: Desk) -> None:
    leader, follower, generation = stable_pair(desk)
    assert desk.commit(3, follower, generation).answer == [ErrorCode.none]
    desk.leave(follower)
    assert desk.commit(9, follower, generation).answer == [ErrorCode.unknown_member_id]
    desk.join(leader)
    assert desk.commit(9, leader, generation).answer == [ErrorCode.illegal_generation]
    assert desk.committed() == 3


def test_a_member_may_commit_what_it_has_owned_since_that_epoch_and_nothing_else(desk: Desk) -> None:
    first = desk.consumer_beat("a").answer
    desk.tick(2_000)
    desk.consumer_beat("b")
    topic_id = desk.topics.id_of("t") or b""
    owned = {topic_id: tuple(first.assigned[topic_id])}
    kept = desk.consumer_beat("a", first.epoch, reported=owned).answer.assigned[topic_id]
    moved = desk.consumer_beat("a", first.epoch, reported={topic_id: tuple(kept)}).answer
    assert moved.epoch > first.epoch
    expected = [ErrorCode.none if 0 in kept else ErrorCode.stale_member_epoch]
    assert desk.commit(5, "a", first.epoch).answer == expected
    assert desk.commit(5, "a", moved.epoch + 1).answer == [ErrorCode.stale_member_epoch]


def test_deleting_a_topic_deletes_what_was_committed_for_it(desk: Desk) -> None:
    desk.commit(5)
    desk.commit(6, topic="u")
    del desk.topics.counts["t"]
    desk.run(lambda turn: desk.coordinator.delete_topics(turn, lambda name, _: name == "t"))
    assert (desk.committed(), desk.committed("u")) == (None, 6)
    desk.restart()
    assert (desk.committed(), desk.committed("u")) == (None, 6)


def test_offsets_expire_when_nobody_is_left_and_with_the_last_the_group() -> None:
    desk = Desk(DeskTopics(t=4), offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000")
    desk.run(desk.coordinator.resume)
    desk.commit(5)
    desk.tick(59_000)
    assert desk.committed() == 5
    desk.tick(3_000)
    assert desk.committed() is None and "g" not in desk.coordinator.groups


def test_what_members_consume_does_not_expire() -> None:
    desk = Desk(
        DeskTopics(t=4, u=1), offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000"
    )
    desk.run(desk.coordinator.resume)
    epoch = desk.consumer_beat("a").answer.epoch
    desk.commit(5, "a", epoch)
    desk.commit(5, "a", epoch, topic="u")
    for _ in range(40):
        desk.tick(2_000)
        desk.consumer_beat("a", epoch, None)
    assert (desk.committed(), desk.committed("u")) == (5, None)
