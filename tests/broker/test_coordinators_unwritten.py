"""What cannot be kept: too few replicas are there, nobody waits any more, or the journal is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.shards import (
    commit,
    committed,
    finish_work,
    groups_broker,
    hold_work,
    join,
    restart,
    share_out,
)
from tests.wire.group_requests import GROUP, HEARTBEAT, OFFSET_COMMIT, beat_values, commit_values
from tests.wire.harness import Harness
from tidelog.broker.data_plane.shard import Shard
from tidelog.cluster.features import GROUPS_TOPIC
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return groups_broker(tmp_path / "data")


def test_with_too_few_replicas_a_commit_is_refused_at_once_and_not_written(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commit(harness, 5) == ErrorCode.none
    journal = harness.partition(GROUPS_TOPIC)
    end_offset = journal.log.end_offset
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "is_under_minimum", property(lambda partition: partition is journal))
        assert commit(harness, 6) == ErrorCode.coordinator_not_available
        assert (journal.log.end_offset, committed(harness)) == (end_offset, 5)
    assert commit(harness, 7) == ErrorCode.none
    assert committed(harness) == 7


def test_with_too_few_replicas_a_generation_does_not_begin_and_the_last_one_goes_on(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    member_id = join(harness)
    journal = harness.partition(GROUPS_TOPIC)
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "is_under_minimum", property(lambda partition: partition is journal))
        assert share_out(harness, member_id).error_code == ErrorCode.coordinator_not_available
    assert journal.log.end_offset == 0
    member_id = join(harness)
    assert share_out(harness, member_id).error_code == ErrorCode.none
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "is_under_minimum", property(lambda partition: partition is journal))
        harness.advance(60_000)  # its session ends, and nobody can write that
        assert journal.log.end_offset == 1
    assert harness.ask(HEARTBEAT, 3, **beat_values(member_id, 1)).error_code == ErrorCode.none


def test_who_was_told_that_it_took_too_long_is_not_kept(tmp_path: Path) -> None:
    harness = groups_broker(tmp_path / "data")
    shard = harness.broker.coordinators.find(GROUP)
    assert isinstance(shard, Shard)
    shard.partition.log.settings.flush_messages = 1
    harness.holds_flushes = True
    for _ in range(3):
        harness.send(OFFSET_COMMIT, 8, **commit_values(harness, 8, {"t": [(0, 5)]}))
    harness.advance(5_000)
    assert len(harness.answers()) == 3
    harness.advance(100)
    assert not shard.uncommitted


def test_a_damaged_batch_is_not_loaded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    for offset in range(5):
        commit(harness, offset)
    log = harness.path / f"{GROUPS_TOPIC}-0" / f"{0:020}.log"
    whole = log.read_bytes()
    damaged = bytearray(whole)
    damaged[whole.index(b"said")] ^= 1  # of the metadata: nothing but the checksum tells
    with monkeypatch.context() as patch:
        hold_work(patch)
        harness.start()
    with log.open("r+b") as file:
        file.write(damaged)
    finish_work(harness)
    assert harness.broker.coordinators.find(GROUP) is ErrorCode.coordinator_not_available
    assert any("checksum" in str(event) for event in harness.broker.outbox.events)
    with log.open("r+b") as file:
        file.write(whole)
    restart(harness)
    assert committed(harness) == 4
