"""What a coordinator of groups must not get wrong: who is in, what is written, what a restart brings back."""

from __future__ import annotations

import pytest

from tests.groups.desk import Desk, DeskTopics, subscription
from tidelog.base.limits import GROUP_METADATA_SIZE_MAX, GROUP_PROTOCOLS_MAX, OFFSETS_PER_PIECE
from tidelog.groups import consumer, coordinator, given
from tidelog.groups.classic import ClassicGroup
from tidelog.groups.consumer import ConsumerGroup
from tidelog.groups.offsets import Sweep
from tidelog.groups.roster import State
from tidelog.protocol.embedded import read_assignment, write_assignment
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


@pytest.mark.parametrize("size_max", [1, 2])
def test_a_refused_heartbeat_leaves_a_classic_group_as_it_was(size_max: int) -> None:
    """One that is too large for a consumer group, and one that has no room for another member."""
    desk = Desk(DeskTopics(t=4), group_consumer_max_size=str(size_max))
    leader, follower, generation = stable_pair(desk)
    refused = desk.consumer_beat("m").answer
    assert refused.error is not ErrorCode.none
    assert isinstance(desk.coordinator.groups["g"], ClassicGroup)
    assert desk.beat(leader, generation).answer is ErrorCode.none
    desk.restart()
    assert isinstance(desk.coordinator.groups["g"], ClassicGroup)
    assert desk.beat(follower, generation).answer is ErrorCode.none


def test_a_refused_heartbeat_leaves_those_who_wait_waiting() -> None:
    desk = Desk(DeskTopics(t=4), group_consumer_max_size="2")
    leader, follower, generation = stable_pair(desk)
    waiting = desk.join(leader)
    assert desk.consumer_beat("m").answer.error is ErrorCode.group_max_size_reached
    assert waiting.answers == []
    assert desk.beat(follower, generation).answer is ErrorCode.rebalance_in_progress
    desk.join(follower)
    assert (waiting.answer.error, waiting.answer.generation) == (ErrorCode.none, generation + 1)


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
    sweep = Sweep(desk.coordinator.offsets)
    desk.run(lambda turn: desk.coordinator.sweep(turn, sweep, lambda name, _: name == "t"))
    assert sweep.is_over
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


def test_what_members_consume_is_not_deleted_while_they_rebalance(desk: Desk) -> None:
    leader, follower, generation = stable_pair(desk)
    desk.commit(5, leader, generation)
    desk.commit(6, leader, generation, topic="u")
    assert desk.delete_offset() is ErrorCode.group_subscribed_to_topic
    desk.join(leader)
    assert desk.beat(follower, generation).answer is ErrorCode.rebalance_in_progress
    assert desk.delete_offset() is ErrorCode.group_subscribed_to_topic
    assert desk.delete_offset("u") is ErrorCode.none
    assert (desk.committed(), desk.committed("u")) == (5, None)


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_member_knows_a_bounded_number_of_protocols(desk: Desk, is_mixed: bool) -> None:
    """In a classic group, and in one that has members of both protocols."""
    if is_mixed:
        desk.consumer_beat("m")
    protocols = tuple((f"p{place}", subscription(("t",))) for place in range(GROUP_PROTOCOLS_MAX + 1))
    refused = desk.join(protocols=protocols).answer
    assert refused.error is ErrorCode.inconsistent_group_protocol
    taken = desk.join(protocols=protocols[:-1]).answer
    assert taken.error is ErrorCode.none


def test_the_protocol_is_one_that_all_know_and_most_like(desk: Desk) -> None:
    names = {"a": ("x", "y", "z"), "b": ("z", "y"), "c": ("y", "z", "w")}
    known = {member: tuple((name, b"") for name in liked) for member, liked in names.items()}
    first = desk.join(protocols=known["a"]).answer.member_id
    second = desk.join(protocols=known["b"])
    third = desk.join(protocols=known["c"])
    answer = desk.join(first, protocols=known["a"]).answer
    assert answer.protocol_name == second.answer.protocol_name == third.answer.protocol_name == "y"
    unheard_of = desk.join(protocols=(("x", b""),)).answer
    assert unheard_of.error is ErrorCode.inconsistent_group_protocol


def test_a_classic_member_that_gave_up_partitions_after_a_restart_stays(desk: Desk) -> None:
    member_id = desk.join().answer.member_id
    desk.sync(member_id, 1, {member_id: write_assignment(0, {"t": (0, 1, 2, 3)})})
    epoch = desk.consumer_beat("m").answer.epoch
    desk.tick(2_000)
    assert desk.beat(member_id, 1).answer is ErrorCode.rebalance_in_progress
    having_all = (("range", subscription(("t",), (0, 1, 2, 3))),)
    told = desk.join(member_id, protocols=having_all).answer
    kept = tuple(read_assignment(desk.sync(member_id, told.generation).answer.assignment)["t"])
    assert len(kept) == 2
    desk.restart()
    generation = desk.join(member_id, protocols=(("range", subscription(("t",), kept)),)).answer.generation
    assert desk.sync(member_id, generation).answer.error is ErrorCode.none
    for _ in range(30):
        desk.tick(4_000)
        epoch = desk.consumer_beat("m", epoch, None).answer.epoch
        assert desk.beat(member_id, generation).answer is ErrorCode.none


def test_a_classic_member_that_gives_nothing_up_after_a_restart_goes(desk: Desk) -> None:
    member_id = desk.join().answer.member_id
    desk.sync(member_id, 1, {member_id: write_assignment(0, {"t": (0, 1, 2, 3)})})
    epoch = desk.consumer_beat("m").answer.epoch
    desk.tick(2_000)
    desk.beat(member_id, 1)
    told = desk.join(member_id, protocols=(("range", subscription(("t",), (0, 1, 2, 3))),)).answer
    desk.sync(member_id, told.generation)
    desk.restart()
    for _ in range(20):
        desk.tick(4_000)
        epoch = desk.consumer_beat("m", epoch, None).answer.epoch
        last = desk.beat(member_id, told.generation).answer
    assert last is ErrorCode.unknown_member_id


def test_a_classic_member_that_goes_on_with_the_consumer_protocol_is_not_fenced_for_what_it_was(
    desk: Desk,
) -> None:
    desk.consumer_beat("m")
    member_id = desk.join().answer.member_id  # and never asks for its part
    epoch = desk.consumer_beat(member_id).answer.epoch
    other_epoch = desk.consumer_beat("m", 1, None).answer.epoch
    for _ in range(40):
        desk.tick(4_000)
        beat = desk.consumer_beat(member_id, epoch, None).answer
        assert beat.error is ErrorCode.none
        epoch, other_epoch = beat.epoch, desk.consumer_beat("m", other_epoch, None).answer.epoch


def test_the_group_is_lowered_when_its_last_consumer_member_is_a_static_one_that_leaves(desk: Desk) -> None:
    stable_pair(desk)
    desk.consumer_beat("m", instance_id="i")
    desk.consumer_beat("m", -2, instance_id="i")
    assert isinstance(desk.coordinator.groups["g"], ConsumerGroup)  # its place is kept
    assert desk.consumer_beat("n", instance_id="i").answer.error is ErrorCode.none
    assert desk.consumer_beat("n", -1, instance_id="i").answer.error is ErrorCode.none
    assert isinstance(desk.coordinator.groups["g"], ClassicGroup)
    desk.restart()
    assert isinstance(desk.coordinator.groups["g"], ClassicGroup)


def test_what_is_written_anew_comes_in_bounded_pieces(desk: Desk) -> None:
    topics = desk.topics.counts = {f"t{place}": 1 for place in range(OFFSETS_PER_PIECE + 5)}
    for place, topic in enumerate(topics):
        desk.commit(place, topic=topic)
    pieces = list(desk.coordinator.stored())
    assert max(map(len, pieces)) == OFFSETS_PER_PIECE
    desk.journal = [entry for piece in pieces for entry in piece]
    desk.restart()
    assert [desk.committed(topic) for topic in topics] == list(range(len(topics)))


def test_what_is_deleted_between_two_pieces_stays_deleted(desk: Desk) -> None:
    desk.commit(5)
    desk.commit(6, topic="u")
    written = []
    for piece in desk.coordinator.stored():
        written += piece
        if desk.committed("u") is not None:
            assert desk.delete_offset("u") is ErrorCode.none
            written.append(desk.journal[-1])
    desk.journal = written
    desk.restart()
    assert (desk.committed(), desk.committed("u")) == (5, None)


def test_offsets_expire_some_at_a_time_until_all_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "OFFSETS_LOOKED_AT_MAX", 6)  # a group is one of those, too
    desk = Desk(DeskTopics(t=4), offsets_retention_minutes="1", offsets_retention_check_interval_ms="70000")
    desk.run(desk.coordinator.resume)
    for place in range(10):
        desk.commit(place, group_id=f"g{place}")
    written = len(desk.journal)
    desk.tick(70_000)
    assert written < len(desk.journal) <= written + 3
    desk.tick(10_000)
    assert (len(desk.coordinator.offsets), desk.coordinator.groups) == (0, {})


def test_a_topic_that_grew_when_a_member_was_fenced_is_shared_out(desk: Desk) -> None:
    epoch = desk.consumer_beat("a").answer.epoch
    desk.consumer_beat("b")
    desk.tick(2_000)
    desk.topics.grow("t", 6)
    desk.consumer_beat("b", -1)
    topic_id = desk.topics.id_of("t") or b""
    told: list[list[int]] = []
    for _ in range(3):
        answer = desk.consumer_beat("a", epoch, None).answer
        epoch = answer.epoch
        told += [sorted(answer.assigned[topic_id])] if answer.assigned else []
        desk.tick(2_000)
    assert told[-1] == list(range(6))


def test_what_a_coordinator_counts_is_about_what_it_writes_anew(desk: Desk) -> None:
    for place in range(20):
        desk.consumer_beat(f"m{place}")
        desk.commit(place, group_id=f"g{place}")
    written = sum(map(len, desk.coordinator.stored()))
    assert written <= desk.coordinator.record_count <= 2 * written


def test_of_ids_that_nobody_has_joined_with_the_oldest_go(
    monkeypatch: pytest.MonkeyPatch, desk: Desk
) -> None:
    monkeypatch.setattr(given, "PENDING_MEMBERS_MAX", 3)
    ids = [desk.join(needs_member_id=True).answer.member_id for _ in range(5)]
    errors = [desk.join(member_id).answers[:1] for member_id in ids[:2]]
    assert [answer.error for (answer,) in errors] == [ErrorCode.unknown_member_id] * 2
    taken = [desk.join(member_id) for member_id in ids[2:]]
    desk.tick(60_000)
    assert [waiting.answer.error for waiting in taken] == [ErrorCode.none] * 3


def test_a_join_too_large_to_be_written_leaves_a_consumer_group_as_it_was(desk: Desk) -> None:
    desk.consumer_beat("m", instance_id="i")
    desk.consumer_beat("m", -2, instance_id="i")
    refused = desk.join(instance_id="i", protocols=(("range", bytes(GROUP_METADATA_SIZE_MAX + 1)),)).answer
    assert refused.error is ErrorCode.message_too_large
    for _ in range(2):
        group = desk.coordinator.groups["g"]
        assert isinstance(group, ConsumerGroup) and list(group.members) == ["m"]
        desk.restart()
    joined = desk.join(instance_id="i").answer
    desk.sync(joined.member_id, joined.generation, {joined.member_id: FIRST_HALF})
    desk.restart()
    assert desk.beat(joined.member_id, joined.generation).answer is ErrorCode.none


def test_a_heartbeat_too_large_to_be_written_hides_no_growth_from_the_others(desk: Desk) -> None:
    epoch = desk.consumer_beat("m").answer.epoch
    desk.topics.grow("t", 6)
    desk.record_size_max = 500
    names = tuple(f"{place:0100}" for place in range(6))
    assert desk.consumer_beat("large", topics=names).answer.error is ErrorCode.invalid_request
    desk.tick(2_000)
    assert desk.consumer_beat("m", epoch, None).answer.epoch > epoch
    desk.tick(60_000)
    assert desk.coordinator.groups["g"].is_empty  # its session went on


def test_a_static_member_is_not_kept_by_the_refusal_of_its_successor(desk: Desk) -> None:
    desk.consumer_beat("m", instance_id="i")
    desk.consumer_beat("m", -2, instance_id="i")
    desk.record_size_max = 500
    names = tuple(f"{place:0100}" for place in range(6))
    assert desk.consumer_beat("n", topics=names, instance_id="i").answer.error is ErrorCode.invalid_request
    desk.tick(60_000)
    assert desk.coordinator.groups["g"].is_empty


@pytest.mark.parametrize("is_classic", [False, True])
def test_a_member_whose_first_heartbeat_was_refused_stays_when_the_next_is_taken(
    desk: Desk, is_classic: bool
) -> None:
    """In a group that is not there yet, and in one that is still classic."""
    if is_classic:
        stable_pair(desk)
    desk.record_size_max = 1_000
    names = tuple(f"{place:0100}" for place in range(11))
    assert desk.consumer_beat("m", topics=names).answer.error is ErrorCode.invalid_request
    epoch = desk.consumer_beat("m").answer.epoch
    for _ in range(15):
        desk.tick(4_000)
        beat = desk.consumer_beat("m", epoch, None).answer
        assert beat.error is ErrorCode.none
        epoch = beat.epoch


@pytest.mark.parametrize(("matches_max", "pause_s"), [(3, 1), (2, 10)])
def test_patterns_are_matched_anew_less_often_where_that_is_much_work(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, matches_max: int, pause_s: int
) -> None:
    monkeypatch.setattr(consumer, "MATCHES_AT_ONCE_MAX", matches_max)
    desk.consumer_beat("m", topics=(), pattern="t.*")
    group = desk.coordinator.groups["g"]
    assert isinstance(group, ConsumerGroup)
    epoch = group.epoch
    desk.topics.grow("tt", 1)
    passed_s = 0
    while group.epoch == epoch:
        desk.tick(1_000)
        passed_s += 1
        desk.consumer_beat("m", group.members["m"].epoch, None)
    assert passed_s == pause_s
