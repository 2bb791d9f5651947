"""Partitions between directories: their records stay the same; what goes wrong leaves them where they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.log.making import make_batch
from tests.wire.harness import Harness, batch_of, parts
from tests.wire.requests import fetch, produce
from tidelog.base import limits
from tidelog.broker.data_plane import moves
from tidelog.cluster.facts import PartitionFacts
from tidelog.log.recovery import open_log
from tidelog.replication.follower import Cut
from tidelog.replication.partition import Partition

ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS = 34, 35


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path / "a", tmp_path / "b", log_segment_bytes="2000")
    harness.create_topic("t", file_delete_delay_ms="0")
    return harness


def move(harness: Harness, folder: str, topic: str = "t", index: int = 0, version: int = 2) -> ErrorCode:
    part = parts(ALTER_REPLICA_LOG_DIRS, version)
    topics = (part.AlterReplicaLogDirTopic(name=topic, partitions=(index,)),)
    path = str(harness.path.parent / folder)
    asked = (part.AlterReplicaLogDir(path=path, topics=topics),)
    (answer,) = harness.ask(ALTER_REPLICA_LOG_DIRS, version, dirs=asked).results
    error: ErrorCode = answer.partitions[0].error_code
    return error


def shown(harness: Harness, version: int = 5) -> list[tuple[str, int, bool]]:
    """Folder, lag and whether it is a copy on the way, of each place that partition 0 of t is in."""
    part = parts(DESCRIBE_LOG_DIRS, version)
    topics = (part.DescribableLogDirTopic(topic="t", partitions=(0,)),)
    answer = harness.ask(DESCRIBE_LOG_DIRS, version, topics=topics)
    return [
        (Path(result.log_dir).name, row.offset_lag, row.is_future_key)
        for result in answer.results
        for topic in result.topics
        for row in topic.partitions
    ]


def contents(harness: Harness) -> bytes:
    answer: Any = fetch(harness, 12, "t", 0, max_bytes=1 << 24, partition_max_bytes=1 << 24)
    assert answer.error_code == 0
    return bytes(answer.records or b"")


def settle(harness: Harness) -> None:
    for _ in range(3):
        harness.advance(100)


@pytest.mark.parametrize("version", [1, 2])
def test_a_moved_partition_has_the_same_records_and_takes_more(harness: Harness, version: int) -> None:
    for number in range(30):
        produce(
            harness, 9, "t", batch_of(3, b"x" * 50, producer_id=7, producer_epoch=0, base_sequence=3 * number)
        )
    start = contents(harness)
    assert move(harness, "b", version=version) == 0
    settle(harness)
    assert shown(harness) == [("b", 0, False)]
    partition = harness.partition("t")
    assert (partition.log.end_offset, partition.high_watermark) == (90, 90)
    assert contents(harness) == start
    again = produce(
        harness, 9, "t", batch_of(3, b"x" * 50, producer_id=7, producer_epoch=0, base_sequence=87)
    )
    assert (again.error_code, again.base_offset) == (0, 87), "a repeated batch is still known"
    assert (
        produce(
            harness, 9, "t", batch_of(3, b"x", producer_id=7, producer_epoch=0, base_sequence=90)
        ).base_offset
        == 90
    )
    harness.broker.stop()
    harness.start()
    assert harness.partition("t").log.end_offset == 93
    assert shown(harness) == [("b", 0, False)]


def test_what_is_written_while_it_is_copied_comes_along(harness: Harness) -> None:
    produce(harness, 9, "t", batch_of(5))
    harness.holds_copies = True
    assert move(harness, "b") == 0
    produce(harness, 9, "t", batch_of(5))
    assert shown(harness) == [("a", 0, False), ("b", 5, True)]
    harness.run_copies()
    harness.holds_copies = False
    settle(harness)
    assert shown(harness) == [("b", 0, False)]
    assert harness.partition("t").log.end_offset == 10
    assert produce(harness, 9, "t", batch_of(1)).base_offset == 10


def test_more_rounds_are_copied_until_the_rest_is_small(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "MOVE_REST_SIZE_MAX", 100)
    assert limits.MOVE_REST_SIZE_MAX > 100
    harness.holds_copies = True
    move(harness, "b")
    rounds = 0
    while harness.copies:
        rounds += 1
        if rounds < 5:
            produce(harness, 9, "t", batch_of(2, b"x" * 80))
        harness.run_copies()
        harness.settle()
    settle(harness)
    assert rounds == 5
    assert (shown(harness), harness.partition("t").log.end_offset) == ([("b", 0, False)], 8)


def test_naming_its_own_directory_calls_a_move_off(harness: Harness) -> None:
    produce(harness, 9, "t", batch_of(5))
    harness.holds_copies = True
    move(harness, "b")
    assert move(harness, "b") == 0, "asked for twice is asked for once"
    assert len(harness.copies) == 1
    move(harness, "a")
    assert shown(harness) == [("a", 0, False)]
    harness.run_copies()
    settle(harness)
    assert shown(harness) == [("a", 0, False)]
    assert [removal.names[0].endswith("-future") for removal in harness.removals] == [True]


def test_a_move_called_off_in_its_copy_does_not_take_the_next_one_along(harness: Harness) -> None:
    produce(harness, 9, "t", batch_of(5))
    harness.holds_copies = True
    for folder in ("b", "a", "b"):
        move(harness, folder)
    harness.run_copies()
    assert shown(harness)[-1][2], "the second move stands"
    move(harness, "b")
    harness.holds_copies = False
    harness.run_copies()
    settle(harness)
    assert shown(harness) == [("b", 0, False)]
    assert (harness.path.parent / "b" / "t-0").exists()


def test_a_deleted_topic_takes_its_move_along(harness: Harness) -> None:
    harness.holds_copies = True
    move(harness, "b")
    topic = harness.broker.image.topics["t"]
    harness.broker.topics.delete(topic, lambda outcome: None)
    harness.settle()
    harness.run_copies()
    settle(harness)
    names = [name.rsplit("-", 1)[1] for removal in harness.removals for name in removal.names]
    assert sorted(names) == ["delete", "future"]
    assert not harness.broker.relocation.moves


def test_a_copy_that_fails_leaves_the_partition_where_it_is(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(harness, 9, "t", batch_of(5))

    def fail(self: moves.Copy) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(moves.Copy, "run", fail)
    assert move(harness, "b") == 0
    settle(harness)
    assert shown(harness) == [("a", 0, False)]
    assert [directory.failure for directory in harness.broker.disks.directories] == [None, None]
    assert produce(harness, 9, "t", batch_of(1)).error_code == 0


def test_a_copy_that_is_not_the_same_is_not_used(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(harness, 9, "t", batch_of(5))
    real = moves.Copy.run

    def lose_one(self: moves.Copy) -> None:
        real(self)
        self._target.remove("0" * 20 + ".log")

    monkeypatch.setattr(moves.Copy, "run", lose_one)
    move(harness, "b")
    settle(harness)
    assert shown(harness) == [("a", 0, False)]
    assert not (harness.path.parent / "b" / "t-0").exists()
    assert harness.partition("t").log.end_offset == 5


def test_retention_in_the_middle_of_a_move_is_followed(harness: Harness) -> None:
    for _ in range(60):
        produce(harness, 9, "t", batch_of(1, b"x" * 100))
    harness.holds_copies = True
    move(harness, "b")
    partition = harness.partition("t")
    partition.trim(30)
    harness.advance(1)
    harness.advance(400_000)
    assert partition.log.bases[0] > 0
    harness.run_copies()
    harness.holds_copies = False
    settle(harness)
    assert shown(harness) == [("b", 0, False)]
    assert partition.log.start_offset == 30
    assert fetch(harness, 12, "t", 29).error_code == ErrorCode.offset_out_of_range
    harness.start()
    assert harness.partition("t").log.start_offset == 30, "also after a crash"


def test_of_two_folders_that_a_crash_left_one_is_used_and_the_other_goes(harness: Harness) -> None:
    produce(harness, 9, "t", batch_of(5))
    harness.broker.stop()
    copied = harness.path.parent / "b" / "t-0"
    copied.mkdir()
    for file in (harness.path / "t-0").iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    harness.start()
    assert harness.partition("t").log.end_offset == 5
    assert not copied.exists()


@pytest.mark.parametrize(
    ("folder", "topic", "index", "error"),
    [
        ("c", "t", 0, ErrorCode.log_dir_not_found),
        ("b", "none", 0, ErrorCode.unknown_topic_or_partition),
        ("b", "t", 7, ErrorCode.unknown_topic_or_partition),
        ("b", "t", -1, ErrorCode.unknown_topic_or_partition),
    ],
)
def test_what_cannot_be_moved(
    harness: Harness, folder: str, topic: str, index: int, error: ErrorCode
) -> None:
    assert move(harness, folder, topic, index) == error


def test_a_directory_that_fails_ends_the_moves_into_it(harness: Harness) -> None:
    harness.holds_copies = True
    move(harness, "b")
    failing = harness.broker.disks.directories[1]
    harness.broker.disks.fail(failing, OSError(5, "Input/output error"))
    harness.run_copies()
    settle(harness)
    assert shown(harness) == [("a", 0, False)]
    assert move(harness, "b") == ErrorCode.kafka_storage_error
    assert not harness.broker.relocation.moves


@pytest.mark.parametrize("version", range(1, 6))
def test_directories_are_described_with_all_that_is_in_them(harness: Harness, version: int) -> None:
    produce(harness, 9, "t", batch_of(5))
    harness.create_topic("u", 3)
    answer = harness.ask(DESCRIBE_LOG_DIRS, version, topics=None)
    found = {
        (topic.name, row.partition_index): row.partition_size
        for result in answer.results
        for topic in result.topics
        for row in topic.partitions
    }
    assert len(found) == 4 and found["t", 0] == harness.partition("t").log.size
    assert {result.error_code for result in answer.results} == {0}
    if version >= 4:
        assert all(0 < result.usable_bytes < result.total_bytes for result in answer.results)
    failing = harness.broker.disks.directories[0]
    harness.broker.disks.fail(failing, OSError(5, "Input/output error"))
    broken, _ = harness.ask(DESCRIBE_LOG_DIRS, version, topics=None).results
    assert (broken.error_code, broken.topics) == (ErrorCode.kafka_storage_error, ())


def test_what_a_failed_move_leaves_to_be_removed_has_no_name_of_a_partition(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(harness, 9, "t", batch_of(3))
    real = moves.Move._open
    opened: list[str] = []

    def fail_the_second(self: moves.Move, folder: Any, now_ms: int) -> Any:
        opened.append(folder.path)
        if len(opened) == 2:
            raise OSError(24, "Too many open files")
        return real(self, folder, now_ms)

    monkeypatch.setattr(moves.Move, "_open", fail_the_second)
    move(harness, "b")
    settle(harness)
    assert len(opened) == 2 and shown(harness) == [("a", 0, False)]
    assert [name for removal in harness.removals for name in removal.names if name == "t-0"] == []
    assert not (harness.path.parent / "b" / "t-0").exists()


def test_the_end_of_a_move_reads_the_small_rest_and_no_sealed_segment(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(40):
        produce(harness, 9, "t", batch_of(1, b"x" * 200))
    scanned: list[int] = []
    real = open_log

    def count(*arguments: Any, **named: Any) -> Any:
        log, report = real(*arguments, **named)
        scanned.append(report.scanned_bytes)
        return log, report

    monkeypatch.setattr(moves, "open_log", count)
    move(harness, "b")
    settle(harness)
    assert shown(harness) == [("b", 0, False)]
    assert scanned == [0, 0], "all was sealed when the copy began"


def test_a_leader_epoch_without_a_record_is_known_after_the_move(harness: Harness) -> None:
    produce(harness, 9, "t", batch_of(3))
    epochs = harness.partition("t").log.epochs
    epochs.assign(epochs.latest + 4, 3)
    expected = epochs.entries()
    move(harness, "b")
    settle(harness)
    assert shown(harness) == [("b", 0, False)]
    assert harness.partition("t").log.epochs.entries() == expected


def test_a_partition_goes_there_and_back(harness: Harness) -> None:
    produce(harness, 9, "t", batch_of(3))
    for folder in ("b", "a", "b"):
        assert move(harness, folder) == 0
        for _ in range(5):
            harness.advance(100)
        assert shown(harness) == [(folder, 0, False)]
        produce(harness, 9, "t", batch_of(1))
    harness.start()
    assert harness.partition("t").log.end_offset == 6
    assert sorted(path.parent.name for path in harness.path.parent.glob("*/t-0")) == ["b"]


def test_the_old_folder_stays_until_the_checkpoints_tell_where_the_log_starts(harness: Harness) -> None:
    for _ in range(10):
        produce(harness, 9, "t", batch_of(1))
    partition = harness.partition("t")
    partition.trim(7)
    move(harness, "b")
    assert partition.directory.path.endswith("b")
    assert (harness.path / "t-0").exists(), "a crash now must find where the log starts"
    harness.start()
    assert harness.partition("t").log.end_offset == 10
    settle(harness)
    assert sorted(path.parent.name for path in harness.path.parent.glob("*/t-0")) in (["a"], ["b"])


def test_where_a_log_starts_is_known_before_its_new_home_has_a_checkpoint(harness: Harness) -> None:
    for _ in range(10):
        produce(harness, 9, "t", batch_of(1))
    harness.partition("t").trim(7)
    for _ in range(2):
        harness.advance(70_000)
    harness.holds_checkpoints = True
    move(harness, "b")
    harness.settle()
    assert harness.partition("t").directory.path.endswith("b")
    harness.holds_checkpoints = False
    harness.start()
    log = harness.partition("t").log
    assert (log.directory.path, log.start_offset, log.end_offset) == (
        str(harness.path.parent / "b/t-0"),
        7,
        10,
    )


def follow(harness: Harness) -> Partition:
    """Let broker 2 lead partition 0 of t."""
    partition = harness.partition("t")
    partition.high_watermark = 0  # so that nothing is cut that is committed
    partition.become_follower(PartitionFacts(2, 1, [2], [2, 1], 9))
    harness.broker.replicas.fetching.fetcher(2).add(partition)
    return partition


def cut(harness: Harness, partition: Partition, offset: int) -> None:
    replicas = harness.broker.replicas
    replicas.cuts.plan(replicas.fetching.fetcher(2), [(partition, Cut(offset))])
    harness.run_cuts()


def test_a_follower_s_log_moves(harness: Harness) -> None:
    produce(harness, 9, "t", batch_of(5))
    partition = follow(harness)
    assert move(harness, "b") == 0
    settle(harness)
    assert shown(harness) == [("b", 0, False)]
    assert partition.log.end_offset == 5


def test_a_log_that_is_cut_while_it_moves_is_copied_anew(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "MOVE_REST_SIZE_MAX", 0)
    for _ in range(3):
        produce(harness, 9, "t", batch_of(5, b"a"))
    harness.holds_copies = True
    move(harness, "b")
    produce(harness, 9, "t", batch_of(5, b"a"))
    harness.run_copies()  # the first segment is there; another round is wanted
    partition = follow(harness)
    cut(harness, partition, 10)
    for _ in range(2):
        partition.append_own(make_batch(5, value=b"b"), harness.broker.clock.now_ms)
    assert partition.log.end_offset == 20
    expected = b"".join(segment.file.read(0, segment.size) for segment in partition.log.segments)
    harness.holds_copies = False
    harness.run_copies()
    settle(harness)
    assert shown(harness) == [("b", 0, False)]
    assert b"".join(s.file.read(0, s.size) for s in partition.log.segments) == expected
    assert [name.endswith("-future") for removal in harness.removals for name in removal.names].count(
        True
    ) == 1


def test_a_cut_that_takes_nothing_leaves_the_copy(harness: Harness) -> None:
    produce(harness, 9, "t", batch_of(5))
    harness.holds_copies = True
    move(harness, "b")
    cut(harness, follow(harness), 5)
    harness.holds_copies = False
    harness.run_copies()
    settle(harness)
    assert shown(harness) == [("b", 0, False)]
    assert not [name for removal in harness.removals for name in removal.names if name.endswith("-future")]


def test_a_log_that_has_come_back_does_not_leave(harness: Harness) -> None:
    produce(harness, 9, "t", batch_of(5))
    partition = harness.partition("t")
    _, name = harness.broker.partitions.leave(partition, partition.directory, bytes(16))
    assert name is None and (harness.path / "t-0").exists()


def test_a_log_that_has_just_moved_is_cut_when_its_old_folder_is_gone(harness: Harness) -> None:
    for _ in range(2):
        produce(harness, 9, "t", batch_of(5))
    partition = follow(harness)
    harness.holds_checkpoints = True
    move(harness, "b")
    harness.settle()
    assert partition.directory.path.endswith("b") and (harness.path / "t-0").exists()
    cut(harness, partition, 5)
    assert partition.log.end_offset == 10, "a crash would find two folders, and take the longer one"
    harness.holds_checkpoints = False
    settle(harness)
    assert partition.log.end_offset == 5
    assert not (harness.path / "t-0").exists()


def test_an_old_folder_is_removed_when_its_new_name_is_durable(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(harness, 9, "t", batch_of(5))
    partition, relocation = harness.partition("t"), harness.broker.relocation
    harness.holds_checkpoints = True
    move(harness, "b")
    harness.advance(1_100)
    harness.holds_copies = True
    for checkpoint in harness.held_checkpoints:
        checkpoint.run()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: pytest.fail("an fsync on the loop"))
        for checkpoint in harness.held_checkpoints:
            checkpoint.on_done(None)
        harness.settle()
    assert not (harness.path / "t-0").exists() and relocation.is_leaving(partition)
    assert not harness.removals
    harness.run_copies()
    harness.settle()
    assert harness.removals and not relocation.is_leaving(partition)


def test_an_old_home_that_cannot_be_synced_has_failed(harness: Harness) -> None:
    produce(harness, 9, "t", batch_of(5))
    partition, old_home = harness.partition("t"), harness.partition("t").directory
    harness.holds_checkpoints = True
    move(harness, "b")
    harness.advance(1_100)
    harness.holds_copies = True
    harness.write_checkpoints()
    (request,) = harness.copies
    harness.broker.relocation.on_copied(request.move, OSError(5, "Input/output error"))
    assert old_home.failure is not None and partition.error_code == 0
    assert not harness.broker.relocation.is_leaving(partition)
