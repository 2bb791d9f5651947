"""Committed offsets: whose topic they are of, and how they go when their time or their topic is over."""

from __future__ import annotations

from typing import Any

import pytest

from tests.groups.desk import START_MS, Desk, DeskTopics
from tidelog.base.decision import Entry
from tidelog.base.limits import OFFSETS_LOOKED_AT_MAX
from tidelog.groups.facts import offset_entry
from tidelog.groups.offsets import Offsets, Spot, Sweep
from tidelog.groups.records import NO_ID, CommittedOffset


class Again(DeskTopics):
    """The same topics, made once more."""

    def id_of(self, name: str) -> bytes | None:
        return name.encode().rjust(16, b"\2") if name in self.counts else None


def fill(desk: Desk, group_count: int, partition_count: int) -> None:
    value = CommittedOffset(1, -1, "", START_MS, -1, NO_ID)
    for group in range(group_count):
        for partition in range(partition_count):
            desk.coordinator.replay(offset_entry(f"g{group}", "t", partition, value))


@pytest.mark.parametrize(("groups", "partitions"), [(1, 10_000), (5, 2_000), (5_000, 1)])
def test_expiry_looks_at_some_offsets_in_one_turn_also_when_none_is_due(
    groups: int, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(DeskTopics(t=4), offsets_retention_check_interval_ms="1000")
    desk.run(desk.coordinator.resume)
    fill(desk, groups, partitions)
    looked_at: list[int] = []
    expired = Offsets.expired

    def counted(offsets: Offsets, group_id: str, spots: list[Spot], *rest: Any) -> Any:
        looked_at[-1] += len(spots)
        return expired(offsets, group_id, spots, *rest)

    monkeypatch.setattr(Offsets, "expired", counted)
    desk.uptime_ms = 1_000
    while desk.uptime_ms < 2_000 and sum(looked_at) < groups * partitions:
        looked_at.append(0)
        desk.run(desk.coordinator.tick)
        desk.uptime_ms = desk.coordinator.timers.next_ms or 0
    assert sum(looked_at) == groups * partitions
    assert max(looked_at) <= 2 * OFFSETS_LOOKED_AT_MAX


def test_a_large_group_goes_with_its_last_offset() -> None:
    desk = Desk(DeskTopics(t=4), offsets_retention_minutes="1", offsets_retention_check_interval_ms="70000")
    desk.run(desk.coordinator.resume)
    fill(desk, 2, 2_500)
    desk.tick(70_000)
    assert len(desk.coordinator.offsets) >= 3_000
    desk.tick(10_000)
    assert (len(desk.coordinator.offsets), desk.coordinator.groups) == (0, {})


def test_offsets_of_deleted_topics_go_some_at_a_time() -> None:
    desk = Desk(DeskTopics(t=4))
    fill(desk, 3, 2_500)
    sweep = Sweep(desk.coordinator.offsets)
    turns = 0
    while not sweep.is_over:
        before = len(desk.coordinator.offsets)
        desk.run(lambda turn: desk.coordinator.sweep(turn, sweep, lambda name, _: True))
        assert before - len(desk.coordinator.offsets) <= OFFSETS_LOOKED_AT_MAX
        turns += 1
    assert len(desk.coordinator.offsets) == 0 and turns >= 7


def test_an_offset_is_of_the_topic_that_it_was_committed_for() -> None:
    desk = Desk(DeskTopics(t=4))
    desk.commit(5)

    def told() -> int | None:
        found = desk.coordinator.committed(desk.topics, "g", ("t", 0))
        return found.offset if found is not None else None

    assert told() == 5
    with_other_id = Again(t=4)
    assert desk.coordinator.committed(with_other_id, "g", ("t", 0)) is None
    desk.restart()
    assert told() == 5
    assert desk.coordinator.committed(with_other_id, "g", ("t", 0)) is None


def test_ids_that_another_cluster_gave_say_nothing_here() -> None:
    desk = Desk(DeskTopics(t=4))
    for origin in (b"", b"else"):
        value = CommittedOffset(7, -1, "", START_MS, -1, b"from elsewhere..", origin)
        desk.coordinator.replay(Entry(*offset_entry("g", "t", 0, value)[:2]))
        found = desk.coordinator.committed(desk.topics, "g", ("t", 0))
        assert found is not None and found.offset == 7
