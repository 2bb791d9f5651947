"""Groups of both protocols through restarts, crashes and changes of every kind, whatever the seed."""

from __future__ import annotations

import os

import pytest

from tests.sim.groups import DirectLine, GroupNode
from tests.sim.groups_checkers import hard_state
from tests.sim.groups_life import GroupLife
from tests.soak import is_soak
from tidelog.cluster.features import GROUPS_TOPIC
from tidelog.groups.offsets import Commit, CommitAsk
from tidelog.replication import journal

SAMPLE_COUNT = 50
SOAK_COUNT = 2_000
PART_COUNT = 10
STEP_COUNT = 90


@pytest.fixture(autouse=True)
def _short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals are written anew after a few records, in small pieces."""
    monkeypatch.setattr(journal, "JOURNAL_RECORDS_KEPT", 20)
    monkeypatch.setattr(journal, "JOURNAL_GROWTH_MAX", 2)
    monkeypatch.setattr(journal, "JOURNAL_SLICE_SIZE", 300)
    monkeypatch.setattr(journal, "JOURNAL_ENTRIES_APPLIED", 10)


def seeds(part: int) -> list[int]:
    """This part of so many seeds, or the one that TIDELOG_SEED names."""
    named = os.environ.get("TIDELOG_SEED")
    if named:
        return [int(named)] if part == 0 else []
    return list(range(part, SOAK_COUNT if is_soak() else SAMPLE_COUNT, PART_COUNT))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PART_COUNT))
def test_groups_keep_every_claim_through_whatever_happens(part: int) -> None:
    for seed in seeds(part):
        try:
            GroupLife(seed).run(STEP_COUNT)
        except Exception as failure:
            failure.add_note(f"TIDELOG_SEED={seed}")
            raise


@pytest.mark.parametrize("seed", [1586, 1607])
def test_a_dead_static_member_goes_however_often_the_others_rebalance(seed: int) -> None:
    """Its session was begun anew with each generation, though it was not heard of."""
    GroupLife(seed).run(STEP_COUNT)


def test_a_reader_does_not_wait_until_the_whole_journal_is_written_anew() -> None:
    """What was written so far was on no disk, and nobody asked for it to be."""
    GroupLife(666).run(STEP_COUNT)


def test_the_lives_have_in_them_what_they_are_to_be_proof_against() -> None:
    restarts = trims = lates = 0
    for seed in range(0, 60, 2):
        life = GroupLife(seed)
        for _ in range(STEP_COUNT):
            life.step()
        restarts += life.restart_count
        trims += life.trim_count
        lates += life.late.late_count
    assert restarts > 60 and trims > 4 and lates > 1, (restarts, trims, lates)


def grown(seed: int) -> GroupNode:
    """A broker whose journal has many times what its groups keep, and which is about to write it anew."""
    node = GroupNode(seed)
    node.create_topic("t", 1)
    line = DirectLine(node)
    for offset in range(40):
        for group_id in "abcd":
            commit = Commit("t", 0, offset, -1, "", node.topic_id("t") or b"")
            line.send(CommitAsk(group_id, "", None, -1, -1, True, [commit]))
    node.tick(1)
    while node.end_flushes():
        pass
    return node


def test_a_journal_that_is_written_anew_is_whole_wherever_the_power_goes() -> None:
    starts = []
    for piece_count in range(24):
        node = grown(piece_count)
        told = hard_state(node.shards()[0].machine)
        for _ in range(piece_count // 2):
            if not node.work():
                node.end_flushes()
                node.tick(60_000)  # the log's new start is written down
        if piece_count % 2:
            node.run_flushes()  # of which the broker does not hear any more
        starts.append(node.partition(topic=GROUPS_TOPIC).log.start_offset)
        node.crash()
        node.start()
        node.load()
        assert hard_state(node.shards()[0].machine) == told, f"after {piece_count} half pieces"
    assert starts[0] == 0 and starts[-1] == 160
