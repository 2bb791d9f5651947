"""A partition's doors: who may append, what a reader may see, when a flush begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.making import NOW_MS, append_marker, make_batch, open_new, reopen
from tests.replication.leading import image_of, lead
from tidelog.base.files import DiskDirectory
from tidelog.cluster.facts import BrokerEpoch, PartitionFacts
from tidelog.log.directory import LogDirectory
from tidelog.log.log import Appended
from tidelog.log.markers import NEW_PROTOCOL, End, Marked
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Marker
from tidelog.replication.counters import PartitionCounters
from tidelog.replication.partition import READ_COMMITTED, Partition, PartitionRead


def led(folder: Path, **settings: int | str) -> Partition:
    log = open_new(folder / "t-0", **settings)
    partition = Partition("t", bytes(16), 0, log, LogDirectory(DiskDirectory(str(folder))))
    lead(partition, 3)
    return partition


def append(partition: Partition, batch: bytearray | None = None) -> Appended:
    batch = batch or make_batch()
    return partition.append(memoryview(batch), 0, len(batch), NOW_MS)


def read(partition: Partition, offset: int, isolation: int = 0, epoch: int = -1) -> PartitionRead:
    found = partition.read(offset, 10**6, isolation, epoch, at_least_one=True)
    if found.records is not None:
        found.records.release()
    return found


def flush(partition: Partition) -> None:
    job = partition.begin_flush()
    assert job is not None
    job.run()
    partition.on_flushed(NOW_MS)


def test_a_follower_an_offline_and_a_deleted_replica_serve_nobody(tmp_path: Path) -> None:
    partition = led(tmp_path)
    append(partition)
    log = partition.log
    follower = Partition("t", bytes(16), 0, log, partition.directory)
    assert read(follower, 0).error_code == ErrorCode.not_leader_or_follower
    partition.become_offline()
    assert read(partition, 0).error_code == ErrorCode.kafka_storage_error
    partition.become_deleted()
    found = read(partition, 0)
    assert found.error_code == ErrorCode.unknown_topic_or_partition and found.records is None


def test_a_client_of_another_leadership_is_told_which_is_newer(tmp_path: Path) -> None:
    partition = led(tmp_path)
    append(partition)
    assert read(partition, 0, epoch=3).error_code == 0
    assert read(partition, 0, epoch=2).error_code == ErrorCode.fenced_leader_epoch
    assert read(partition, 0, epoch=4).error_code == ErrorCode.unknown_leader_epoch


def test_records_carry_the_leader_s_epoch(tmp_path: Path) -> None:
    partition = led(tmp_path)
    append(partition)
    assert partition.log.epochs.entries() == [(3, 0)]


@pytest.mark.parametrize("offset", [-1, 2, 10**9])
def test_an_offset_outside_of_the_log_is_out_of_range(tmp_path: Path, offset: int) -> None:
    partition = led(tmp_path)
    append(partition)
    found = read(partition, offset)
    assert found.error_code == ErrorCode.offset_out_of_range
    assert (found.high_watermark, found.log_start_offset) == (1, 0)


def test_an_offset_below_the_log_start_is_out_of_range(tmp_path: Path) -> None:
    partition = led(tmp_path)
    append(partition, make_batch(3))
    partition.log.advance_start(2)
    assert read(partition, 1).error_code == ErrorCode.offset_out_of_range
    assert read(partition, 2).error_code == 0


def test_reading_at_the_end_finds_nothing_and_no_error(tmp_path: Path) -> None:
    partition = led(tmp_path)
    append(partition)
    found = read(partition, 1)
    assert (found.error_code, found.records) == (0, None)


def test_the_high_watermark_follows_the_append(tmp_path: Path) -> None:
    partition = led(tmp_path)
    append(partition, make_batch(3))
    assert partition.high_watermark == 3


def test_with_flush_messages_1_the_high_watermark_follows_the_fsync(tmp_path: Path) -> None:
    partition = led(tmp_path, flush_messages=1)
    appended = append(partition)
    assert partition.high_watermark == 0 and partition.must_wait_for_flush(appended)
    assert read(partition, 0).records is None
    flush(partition)
    assert partition.high_watermark == 1 and not partition.must_wait_for_flush(appended)
    assert read(partition, 0).records is not None


def test_one_flush_at_a_time_and_the_next_takes_all_that_came_meanwhile(tmp_path: Path) -> None:
    partition = led(tmp_path, flush_messages=1)
    append(partition)
    job = partition.begin_flush()
    assert job is not None
    append(partition)
    append(partition)
    assert partition.begin_flush() is None
    job.run()
    assert partition.on_flushed(NOW_MS) and partition.high_watermark == 1
    flush(partition)
    assert partition.high_watermark == 3
    assert partition.begin_flush() is None


def test_a_flush_counts_records_and_not_batches(tmp_path: Path) -> None:
    partition = led(tmp_path, flush_messages=5)
    append(partition, make_batch(4))
    assert partition.begin_flush() is None
    assert partition.must_wait_for_flush(append(partition, make_batch(1)))
    flush(partition)
    assert partition.log.recovery_point == 5


def test_a_roll_asks_for_a_flush_that_nobody_waits_for(tmp_path: Path) -> None:
    partition = led(tmp_path, segment_bytes=1_024)
    while len(partition.log.segments) == 1:
        appended = append(partition)
    assert not partition.must_wait_for_flush(appended)
    flush(partition)


def test_a_replica_that_does_not_lead_begins_no_flush(tmp_path: Path) -> None:
    partition = led(tmp_path, flush_messages=1)
    append(partition)
    partition.become_offline()
    assert partition.begin_flush() is None


def test_a_leader_that_finds_unflushed_records_wants_them_flushed(tmp_path: Path) -> None:
    partition = led(tmp_path, flush_messages=1)
    append(partition)
    partition.log.close(clean=False)
    log, _ = reopen(tmp_path / "t-0", 0, 0, False, flush_messages=1)
    again = Partition("t", bytes(16), 0, log, partition.directory)
    lead(again, 4)
    assert again.high_watermark == 0
    flush(again)
    assert again.high_watermark == 1


def test_read_committed_ends_at_the_last_stable_offset_and_tells_of_aborts(tmp_path: Path) -> None:
    partition = led(tmp_path)
    append(partition)
    append(partition, make_batch(producer_id=1, transactional=True))
    append(partition)
    found = read(partition, 0, READ_COMMITTED)
    assert (found.high_watermark, found.last_stable_offset, found.aborted) == (3, 1, [])
    assert found.records is not None and found.records.size == len(make_batch())
    append_marker(partition.log, Marker.ABORT, 1, epoch=3)
    partition.maybe_advance()
    found = read(partition, 0, READ_COMMITTED)
    assert (found.last_stable_offset, found.aborted) == (4, [(1, 1)])
    assert read(partition, 0).aborted is None, "a reader of everything is told of none"


def test_a_leader_ends_transactions_and_says_when_that_is_committed(tmp_path: Path) -> None:
    partition = led(tmp_path)
    lead(partition, 4, (1, 2))
    for producer_id in (1, 2):
        append(partition, make_batch(producer_id=producer_id, transactional=True))
    ends = [End(1, 1, Marker.COMMIT, 0, NEW_PROTOCOL), End(2, 0, Marker.COMMIT, 0, NEW_PROTOCOL)]
    first, refused = partition.append_markers(ends, NOW_MS)
    assert first == Marked(ErrorCode.none, 3) and refused.code == ErrorCode.invalid_producer_epoch
    assert partition.high_watermark == 0 and partition.unflushed.count == 3
    assert partition.append_markers(ends[:1], NOW_MS) == [first], "a repeat waits for the same"
    assert partition.log.end_offset == partition.unflushed.count == 3
    lead(partition, 5)
    assert partition.append_markers(ends[1:], NOW_MS)[0].code == ErrorCode.invalid_producer_epoch
    ended = End(2, 1, Marker.ABORT, 0, NEW_PROTOCOL)
    assert partition.append_markers([ended], NOW_MS) == [Marked(ErrorCode.none, 4)]
    assert partition.high_watermark == partition.last_stable_offset == 4
    assert partition.log.epochs.at(3) == 5


def test_a_repeated_batch_moves_nothing(tmp_path: Path) -> None:
    partition = led(tmp_path, flush_messages=1)
    append(partition, make_batch(producer_id=5))
    flush(partition)
    repeated = append(partition, make_batch(producer_id=5))
    assert repeated.is_duplicate and not partition.must_wait_for_flush(repeated)
    assert partition.begin_flush() is None and partition.high_watermark == 1


def test_a_new_leadership_is_known_before_anything_is_appended(tmp_path: Path) -> None:
    partition = led(tmp_path)
    append(partition, make_batch(5))
    lead(partition, 4)
    epochs = partition.log.epochs
    assert [epochs.end_of(epoch, 5) for epoch in (3, 4)] == [(3, 5), (4, 5)]
    append(partition, make_batch(2))
    assert [epochs.end_of(epoch, 7) for epoch in (3, 4)] == [(3, 5), (4, 7)]


def test_who_read_a_leadership_that_a_crash_has_lost_is_told_where_the_log_ended_before_it(
    tmp_path: Path,
) -> None:
    partition = led(tmp_path)
    append(partition, make_batch(5))
    kept = partition.log.size
    lead(partition, 4)
    append(partition, make_batch(2))
    partition.log.close(clean=False)
    with (tmp_path / "t-0" / f"{0:020}.log").open("r+b") as file:
        file.truncate(kept)
    log, _ = reopen(tmp_path / "t-0")
    again = Partition("t", bytes(16), 0, log, partition.directory)
    lead(again, 5)
    assert log.epochs.end_of(4, log.end_offset) == (3, 5)


def test_a_member_that_no_election_would_count_is_too_few_for_the_metric_as_for_acks_all(
    tmp_path: Path,
) -> None:
    partition = led(tmp_path, min_insync_replicas=2)
    image = image_of(1, 2)
    facts = PartitionFacts(1, 4, [1, 2], [1, 2], 1, [], {1: 1, 2: 1})
    partition.become_leader(1, image, facts, 0)
    assert (partition.is_under_minimum, partition.is_at_minimum) == (False, True)
    image.broker_epochs[2] = BrokerEpoch(5, 5)  # its disk was replaced since it joined
    assert len(partition.in_sync_replicas) == 2, "as the store has it"
    assert (partition.is_under_minimum, partition.is_at_minimum) == (True, False)


def test_what_is_counted_never_falls_and_adds_up(tmp_path: Path) -> None:
    partition = led(tmp_path)
    append(partition)
    read(partition, 0)
    counters = partition.counters
    assert (counters.append_count, counters.record_count, counters.read_count) == (1, 1, 0)
    counters.note_read(50, False)
    counters.note_read(0, True)
    counters.note_refused()
    total = PartitionCounters()
    for _ in range(2):
        total.add(counters)
    assert (total.read_count, total.failed_read_count, total.sent_size) == (4, 2, 100)
    assert (total.refused_count, total.appended_size) == (2, 2 * counters.appended_size)
