"""Groups that an older version put elsewhere reach their places, whenever the machine loses power.

Each seed is one story: commits by the old places, an upgrade, and crashes of the whole machine at any moment
from then on. Clients go on to commit whenever they are served.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.sim.groups import DirectLine, Fetch, GroupNode
from tests.soak import is_soak
from tidelog.cluster import features
from tidelog.cluster.features import Feature
from tidelog.groups.offsets import Commit, CommitAsk
from tidelog.groups.placement import former_place_of, partner_of, place_of
from tidelog.protocol.errors import ErrorCode

PARTITIONS = 7
GROUPS = [f"{number * 7919}-orders-{number}" for number in range(40)]
MOVING = [name for name in GROUPS if place_of(name, PARTITIONS) != former_place_of(name, PARTITIONS)]
ROUNDS_MAX = 3_000
SEEDS = 2_000 if is_soak() else 100


def test_most_of_these_groups_move() -> None:
    assert 10 < len(MOVING) < len(GROUPS)


@pytest.mark.parametrize("partition_count", [1, 2, 3, 7, 50])
def test_what_moves_moves_within_a_pair(partition_count: int) -> None:
    for name in GROUPS:
        place, former = place_of(name, partition_count), former_place_of(name, partition_count)
        assert former in (place, partner_of(place, partition_count))
        assert partner_of(partner_of(place, partition_count), partition_count) == place


class Story:
    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where nothing is flushed by itself, what was committed before a clean stop must be kept: no power
        failure takes it back."""
        self.random = Random(seed)
        self.is_flushed = self.random.random() < 0.5
        with monkeypatch.context() as older:
            older.setattr(features, "SUPPORTED", (Feature("tidelog.version", 1, 1),))
            self.node = GroupNode(seed, PARTITIONS, is_flushed=self.is_flushed)
            self.node.create_topic("t")
            self.node.load()
            assert self.node.broker.image.feature_levels == {"tidelog.version": 1}
            self.line = DirectLine(self.node)
            self.acknowledged = dict.fromkeys(GROUPS, 0)
            for name in GROUPS:
                assert self.commit(name)
            for shard in self.node.shards():
                names = [name for name in GROUPS if name in shard.machine.groups]
                assert all(former_place_of(name, PARTITIONS) == shard.partition.index for name in names)
        if not self.is_flushed:
            self.node.stop()
        self.crash()

    def commit(self, name: str) -> bool:
        """Whether it was acknowledged."""
        offset = self.acknowledged[name] + 1
        topic_id = self.node.topic_id("t")
        assert topic_id is not None
        ask = CommitAsk(name, "", None, -1, -1, True, [Commit("t", 0, offset, -1, "", topic_id)])
        call = self.line.send(ask)
        for _ in range(3):
            if not call.is_over:
                self.node.end_flushes()
        if call.answers != [[ErrorCode.none]]:
            return False
        self.acknowledged[name] = offset
        return True

    def fetch(self, name: str) -> object:
        call = self.line.send(Fetch(name, "t", 0))
        while not call.is_over:
            self.node.end_flushes()
        (answer,) = call.answers
        return answer

    def crash(self) -> None:
        self.node.crash()
        self.node.start()
        self.line = DirectLine(self.node)

    @property
    def is_over(self) -> bool:
        image = self.node.broker.image
        shards = self.node.shards()
        return (
            image.groups_moved is None
            and len(shards) == PARTITIONS
            and not any(shard.machine.left for shard in shards)
        )

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.4:
            self.node.tick(100)
        elif chance < 0.75:
            self.node.work()
        elif chance < 0.85:
            self.node.end_flushes()
        else:
            name = self.random.choice(GROUPS)
            if self.is_flushed and self.random.random() < 0.5:
                self.commit(name)
            else:
                found = self.fetch(name)
                refused = found is ErrorCode.coordinator_load_in_progress
                assert refused or found == self.acknowledged[name], (name, found)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_committed_offset_is_lost_or_goes_back(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(seed, monkeypatch)
    crash_chance = story.random.choice((0.0, 0.005, 0.02))
    for _ in range(ROUNDS_MAX):
        if story.is_over:
            break
        if story.random.random() < crash_chance:
            story.crash()
        story.step()
    assert story.is_over
    if story.random.random() < 0.5:
        story.crash()
    story.node.load()
    for shard in story.node.shards():
        assert all(place_of(name, PARTITIONS) == shard.partition.index for name in shard.machine.groups)
    assert {name: story.fetch(name) for name in GROUPS} == story.acknowledged


def test_a_leader_that_has_not_heard_of_the_level_refuses_groups_that_have_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(0, monkeypatch)
    while not story.is_over:
        story.step()
    monkeypatch.setattr(features, "SUPPORTED", (Feature("tidelog.version", 1, 1),))
    story.node.broker.image.feature_levels = {"tidelog.version": 1}
    for name in MOVING:
        assert story.node.broker.coordinators.find(name) is ErrorCode.not_coordinator
