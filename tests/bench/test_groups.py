"""The members of the group cases, few and small, against a real broker: each checks what it was answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from bench.cases.groups import REBALANCE, SETTINGS
from bench.load import group_frames
from bench.load.admin import Admin
from bench.load.canned import canned
from bench.load.classic_members import ClassicGroup
from bench.load.commits import (
    check_kept,
    commit,
    fetch_frames,
    fill,
    member_frames,
    sum_of_commits,
    wait_for_coordinator,
)
from bench.load.consumer_members import ConsumerGroup
from bench.load.heartbeats import beat
from bench.load.members import Member
from bench.load.pipeline import BadAnswer

from tidelog.testing import Broker

TOPIC = "bench-groups"
PARTITION_COUNT = 12
JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 11, 12, 14
Kind = type[ClassicGroup] | type[ConsumerGroup]
BOTH = pytest.mark.parametrize("kind", [ClassicGroup, ConsumerGroup])


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with Broker(**SETTINGS) as running:
        with Admin("127.0.0.1", running.port) as admin:
            admin.create_topic(TOPIC, PARTITION_COUNT)
        wait_for_coordinator(("127.0.0.1", running.port), ["any"])
        yield ("127.0.0.1", running.port)


@BOTH
def test_a_member_joins_and_leaves_and_all_partitions_stay_owned(
    kind: Kind, address: tuple[str, int]
) -> None:
    with closing(kind(address, f"grown-{kind.__name__}", TOPIC, PARTITION_COUNT)) as group:
        group.grow(3)
        group.check()
        assert group.join().seconds > 0
        group.check()
        assert len(group.members) == 4
        assert group.leave().seconds > 0
        group.check()
        assert len(group.members) == 3


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Member, int]]:
    """Who sent a request of which API, in order."""
    requests: list[tuple[Member, int]] = []
    send = Member.send

    def noted(member: Member, frame: bytes) -> None:
        requests.append((member, int.from_bytes(frame[4:6], "big")))
        send(member, frame)

    monkeypatch.setattr(Member, "send", noted)
    return requests


def test_classic_members_heartbeat_only_behind_the_join_that_begins_a_rebalance(
    address: tuple[str, int], sent: list[tuple[Member, int]]
) -> None:
    with closing(ClassicGroup(address, "quiet-classic", TOPIC, PARTITION_COUNT)) as group:
        group.grow(3)
        sent.clear()
        group.join()
        *stable, newcomer = group.members
        assert sent[:2] == [(newcomer, JOIN_GROUP)] * 2
        assert sent[2:5] == [(member, HEARTBEAT) for member in stable]
        assert {api for member, api in sent if member is newcomer} == {JOIN_GROUP, SYNC_GROUP}


def test_consumer_members_are_silent_once_they_have_acknowledged(
    address: tuple[str, int], sent: list[tuple[Member, int]]
) -> None:
    """Each of three gives up one of its four partitions: it hears of that, acknowledges, and that is all."""
    with closing(ConsumerGroup(address, "quiet-consumer", TOPIC, PARTITION_COUNT)) as group:
        group.grow(3)
        sent.clear()
        group.join()
        *stable, newcomer = group.members
        by_member = [[each for each, _ in sent].count(member) for member in group.members]
        assert by_member[:-1] == [2, 2, 2]
        assert 1 < by_member[-1] <= 1 + 2 * len(stable), "one for each that gave up, one that acknowledges it"
        assert sent[0][0] is newcomer
        sent.clear()
        group.leave()
        assert sorted([each for each, _ in sent].count(member) for member in stable) == [2, 2, 2]


@BOTH
def test_heartbeats_of_a_group_at_rest_are_answered_without_error(
    kind: Kind, address: tuple[str, int]
) -> None:
    with closing(kind(address, f"beating-{kind.__name__}", TOPIC, PARTITION_COUNT)) as group:
        group.grow(3)
        beats = beat(group.members, group.heartbeats(), 300, 0.1)
        assert len(beats.latencies) == beats.span.frame_count > 0


def test_a_heartbeat_that_is_refused_is_noticed(address: tuple[str, int]) -> None:
    with closing(ClassicGroup(address, "refused", TOPIC, PARTITION_COUNT)) as group:
        group.grow(1)
        wrong = group_frames.heartbeat_frame("refused", 77, group.members[0].member_id)
        with pytest.raises(BadAnswer, match="error 22"):
            beat(group.members, [wrong], 100, 0.1)


def test_partitions_owned_twice_are_noticed(address: tuple[str, int]) -> None:
    with closing(ConsumerGroup(address, "twice", TOPIC, PARTITION_COUNT)) as group:
        group.grow(2)
        group.members[0].owned = group.members[1].owned
        with pytest.raises(BadAnswer, match="6 of them different"):
            group.check()


def test_an_assignment_that_is_not_the_leaders_is_noticed(address: tuple[str, int]) -> None:
    with closing(ClassicGroup(address, "swapped", TOPIC, PARTITION_COUNT)) as group:
        group.grow(2)
        first, second = group.members
        first.assigned, second.assigned = second.assigned, first.assigned
        with pytest.raises(BadAnswer, match="something else"):
            group.check()


@pytest.mark.parametrize(("partitions_each", "window"), [(1, 1), (3, 1), (1, 32)])
def test_what_members_committed_last_is_what_is_kept(
    address: tuple[str, int], partitions_each: int, window: int
) -> None:
    name = f"committing-{partitions_each}-{window}"
    with closing(ClassicGroup(address, name, TOPIC, PARTITION_COUNT)) as group:
        group.grow(2)
        frames = member_frames([group], TOPIC, partitions_each)
        span, last = commit(address, frames, TOPIC, partitions_each, 0.05, window)
        assert span.frame_count >= 2
        check_kept(address, [name], TOPIC, partitions_each, last)
        with pytest.raises(BadAnswer, match="not kept"):
            check_kept(address, [name], TOPIC, partitions_each, [last[0] + 1, last[1]])


def test_a_fill_leaves_its_last_offset_in_every_group(address: tuple[str, int]) -> None:
    groups = [f"filled-{number}" for number in range(32)]
    fill(address, groups, TOPIC, PARTITION_COUNT, 3)
    with Admin(*address) as admin:
        answers = [admin.exchange(frame) for frame in fetch_frames(groups, TOPIC, PARTITION_COUNT)]
    assert sum(map(sum_of_commits, answers)) == 3 * len(groups) * PARTITION_COUNT


def test_canned_answers_look_like_good_ones() -> None:
    frame = group_frames.heartbeat_frame("g", 1, "m")
    with canned(len(frame), group_frames.HEARTBEAT_LAYOUT) as nowhere, closing(Member(nowhere)) as member:
        beats = beat([member], [frame], 1_000, 0.05)
    assert beats.span.frame_count > 0


def test_half_of_kafkas_time_is_the_most_that_is_reached() -> None:
    assert REBALANCE.is_reached(5.0, 0.5)
    assert not REBALANCE.is_reached(5.1, 0.51)
