"""Partitions that are moved to other brokers and back, while a broker is there and while it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import DELETE_TOPICS, PRODUCE, Harness, batch_of, seconds
from tests.wire.requests import produce, produce_values
from tidelog.cluster.controller import encode_id
from tidelog.cluster.store import Done, Multi, Write
from tidelog.log.checkpoint import read_offsets

NOT_LEADER = ErrorCode.not_leader_or_follower
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def assign(
    harness: Harness, index: int, leader: int, *replicas: int, isr: tuple[int, ...] = (), is_seen: bool = True
) -> None:
    """Have a partition of `t` be led by a broker, as if a controller elsewhere had decided so."""
    topic = harness.broker.image.topics["t"]
    known = topic.partitions[index]
    facts = replace(
        known,
        leader=leader,
        leader_epoch=known.leader_epoch + 1,
        replicas=list(replicas),
        in_sync_replicas=[*isr] or [leader],
        members=dict.fromkeys(isr or (leader,), 1),
    )
    write = Write(topic.path(index), facts.encode(), known.version)
    assert isinstance(harness.store.perform(Multi((write,))), Done)
    if is_seen:
        harness.broker.desk.changed.emit(harness.broker.image.apply([write]))
        harness.settle()


def folders(harness: Harness) -> list[str]:
    return sorted(path.name for path in harness.path.iterdir() if path.is_dir())


@pytest.fixture
def written(tmp_path: Path) -> Harness:
    """Two partitions of a topic with three records each, in the checkpoints as well."""
    harness = Harness(tmp_path / "data")
    harness.create_topic("t", 2)
    for index in range(2):
        assert produce(harness, 9, "t", batch_of(3), index=index).error_code == 0
        harness.partition("t", index).want_flush()
        harness.broker.flushing.maybe_begin(harness.partition("t", index))
    harness.settle()
    harness.advance(1)
    harness.advance(100_000)
    assert (harness.path / RECOVERY_POINTS).read_text().splitlines()[2:] == ["t 0 3", "t 1 3"]
    return harness


def test_who_is_no_replica_any_more_renames_its_log_and_removes_it_later(written: Harness) -> None:
    assign(written, 0, 2, 2, 3)
    (removal,) = written.removals
    assert removal.due_ms > written.broker.clock.uptime_ms and removal.names[0].endswith("-delete")
    assert folders(written) == sorted([*removal.names, "t-1"])
    assert written.broker.partitions.find("t", 0) is None
    assert produce(written, 9, "t", batch_of()).error_code == NOT_LEADER
    assert produce(written, 9, "t", batch_of(), index=1).base_offset == 3
    assert written.broker.partitions.departed.record_count == 3


def test_who_still_waits_for_a_moved_partition_is_told_to_look_for_its_leader(written: Harness) -> None:
    assign(written, 0, 1, 1, 2, isr=(1, 2))
    written.send(PRODUCE, 9, **produce_values(written, 9, {"t": [(0, batch_of())]}))
    assert written.answers() == []
    assign(written, 0, 2, 2, 3)
    (response,) = written.answer(PRODUCE, 9).responses
    assert response.partition_responses[0].error_code == NOT_LEADER


def test_what_is_given_back_begins_anew_once_no_checkpoint_tells_of_what_it_was(written: Harness) -> None:
    written.holds_checkpoints = True
    assign(written, 0, 2, 2, 3)
    assign(written, 0, 2, 2, 1)
    assert written.broker.partitions.find("t", 0) is None and written.held_checkpoints
    written.holds_checkpoints = False
    written.write_checkpoints()
    partition = written.partition("t")
    assert (partition.log.end_offset, partition.high_watermark) == (0, 0)
    assert "t-0" in folders(written)
    directory = written.broker.disks.directories[0].directory
    assert ("t", 0) not in read_offsets(directory, RECOVERY_POINTS)


def test_what_was_moved_while_a_broker_was_down_goes_when_it_starts(written: Harness) -> None:
    written.broker.stop()
    assign(written, 0, 2, 2, 3, is_seen=False)
    written.start()
    assert [name.endswith("-delete") for name in folders(written)] == [True, False]
    assert [removal.names for removal in written.removals] == [folders(written)[:1]]
    assert written.partition("t", 1).log.end_offset == 3
    assert written.broker.checkpoints.is_stale("t")  # until one is written without it
    written.advance(1)
    written.advance(1_000)
    assert (written.path / RECOVERY_POINTS).read_text().splitlines()[2:] == ["t 1 3"]


def test_what_was_taken_and_given_back_while_a_broker_was_down_is_no_longer_than_it_is(
    written: Harness,
) -> None:
    """The folder was gone before the checkpoint was: its offsets are of another log."""
    written.broker.stop()
    assign(written, 0, 2, 2, 1, is_seen=False)
    for path in (written.path / "t-0").iterdir():
        path.unlink()
    (written.path / "t-0").rmdir()
    checkpoint = written.path / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\nt 0 2\n")
    written.start()
    log = written.partition("t").log
    assert (log.start_offset, log.end_offset, log.recovery_point) == (0, 0, 0)


def test_a_folder_of_no_topic_is_set_aside_and_kept_in_a_cluster_and_stays_where_it_may_be_somebody_s(
    written: Harness,
) -> None:
    written.broker.stop()
    names = ["foreign-0", "gone-0", "t-0", "t-1", "t-7"]
    for name, content in (("gone-0", f"version: 0\ntopic_id: {'A' * 22}"), ("foreign-0", ""), ("t-7", "")):
        (written.path / name).mkdir()
        (written.path / name / "partition.metadata").write_text(content)
    (written.path / "notes-1").write_text("a file")
    written.start()
    assert folders(written) == names
    failures = written.broker.partitions.set_strays_aside(written.broker.image.topics_by_id, True)
    assert failures == []
    names[1] += f".{bytes(16).hex()}-stray"
    assert folders(written) == names
    assert written.broker.partitions.homes.take_strays() == []  # which would be removed


def test_a_folder_that_lost_its_topic_s_id_goes_by_its_name(written: Harness) -> None:
    written.broker.stop()
    assign(written, 0, 2, 2, 3, is_seen=False)
    (written.path / "t-0" / "partition.metadata").write_text("")
    written.start()
    assert [name.endswith("-delete") for name in folders(written)] == [True, False]


def test_nothing_is_kept_in_memory_of_the_folders_of_a_deleted_topic(written: Harness) -> None:
    topic_id = encode_id(written.broker.image.topics["t"].topic_id)
    (directory,) = written.broker.partitions.directories
    entries = [("t-0", topic_id), ("t-1", topic_id)]
    assert all(entry in directory.manifest for entry in entries)
    written.ask(DELETE_TOPICS, 5, topic_names=("t",), timeout=seconds(1))
    assert not any(entry in directory.manifest for entry in entries)


def test_what_was_moved_away_is_still_listed_when_it_may_come_back(written: Harness) -> None:
    topic_id = encode_id(written.broker.image.topics["t"].topic_id)
    (directory,) = written.broker.partitions.directories
    assign(written, 0, 2, 2, 3)
    assert ("t-0", topic_id) in directory.manifest
