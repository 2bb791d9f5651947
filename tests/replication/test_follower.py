"""What a follower does with its leader's answer, and what two logs of different histories come to (R8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log.making import NOW_MS, make_batch, open_new
from tests.replication.leading import lead
from tidelog.base.files import DiskDirectory
from tidelog.cluster.facts import PartitionFacts
from tidelog.log.directory import LogDirectory
from tidelog.log.markers import NEW_PROTOCOL, End
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.fetch_client import ReceivedPartition
from tidelog.protocol.records import Marker
from tidelog.replication.follower import BeginAt, Cut, Take, Wait, next_step
from tidelog.replication.partition import READ_COMMITTED, Partition, PartitionRead


def replica(folder: Path, name: str) -> Partition:
    log = open_new(folder / name / "t-0")
    return Partition("t", bytes(16), 0, log, LogDirectory(DiskDirectory(str(folder / name))))


def append(partition: Partition, leader_epoch: int, count: int) -> None:
    """As the leader of that epoch."""
    lead(partition, leader_epoch, (1, 2), version=leader_epoch)
    for _ in range(count):
        batch = make_batch()
        partition.append(memoryview(batch), 0, len(batch), NOW_MS)


def follow(partition: Partition, leader_epoch: int) -> None:
    partition.become_follower(PartitionFacts(1, leader_epoch, [1, 2], [1, 2], 100, [], {1: 1, 2: 1}))


def received(read: PartitionRead) -> ReceivedPartition:
    answer = ReceivedPartition(0, read.error_code, read.high_watermark, -1)
    answer.log_start_offset = read.log_start_offset
    answer.diverging_epoch = read.diverging_epoch
    return answer


def fetch(leader: Partition, follower: Partition) -> bool:
    """One round; whether the follower has all that the leader has."""
    log = follower.log
    read = leader.read_replica(log.end_offset, 10**6, leader.leader_epoch, log.epochs.latest, True)
    data = b""
    if read.records is not None:
        data = read.records.read()
        read.records.release()
    step = next_step(log, received(read))
    if isinstance(step, Take):
        follower.take(memoryview(data), read.high_watermark, read.log_start_offset, NOW_MS)
    elif isinstance(step, Cut):
        assert step.offset <= log.end_offset
        follower.cut(step.offset, NOW_MS)
    elif isinstance(step, BeginAt):
        follower.begin_at(step.offset, NOW_MS)
    if follower.is_cutting:
        flush(follower)
        follower.end_cut()
    return not data and isinstance(step, Take)


def flush(partition: Partition) -> None:
    job = partition.begin_flush()
    assert job is not None
    job.run()
    partition.on_flushed(NOW_MS)


def bytes_of(partition: Partition) -> bytes:
    found = partition.log.read(partition.log.start_offset, partition.log.end_offset, 10**9)
    if found is None:
        return b""
    data = found.read()
    found.release()
    return data


def catch_up(leader: Partition, follower: Partition) -> int:
    for rounds in range(1, 50):
        if fetch(leader, follower):
            return rounds
    raise AssertionError("the follower does not come to an end")


histories = st.lists(st.integers(0, 3), max_size=5)


@settings(deadline=None, max_examples=60, suppress_health_check=[*HealthCheck])
@given(common=histories, of_leader=histories, of_follower=histories)
def test_whatever_two_logs_have_had_they_come_to_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    common: list[int],
    of_leader: list[int],
    of_follower: list[int],
) -> None:
    """Each history is a list of leaderships, with so many records; epochs are never used twice."""
    folder = tmp_path_factory.mktemp("logs")
    leader, follower = replica(folder, "leader"), replica(folder, "follower")
    epoch = 0
    for count in common:
        epoch += 1
        append(leader, epoch, count)
        follow(follower, epoch)
        catch_up(leader, follower)
    for turn in range(5):
        for partition, history in ((follower, of_follower), (leader, of_leader)):
            if turn < len(history):
                epoch += 1
                append(partition, epoch, history[turn])
    epoch += 1
    append(leader, epoch, 1)
    follow(follower, epoch)
    catch_up(leader, follower)
    assert bytes_of(leader) == bytes_of(follower)
    assert leader.log.epochs.entries() == follower.log.epochs.entries()
    assert follower.high_watermark <= follower.log.end_offset


def test_a_leadership_without_records_does_not_keep_a_follower_from_the_next(tmp_path: Path) -> None:
    leader, follower = replica(tmp_path, "leader"), replica(tmp_path, "follower")
    append(leader, 1, 2)
    follow(follower, 1)
    catch_up(leader, follower)
    append(follower, 2, 0)
    append(leader, 3, 1)
    follow(follower, 3)
    assert catch_up(leader, follower) <= 4
    assert bytes_of(leader) == bytes_of(follower)


def test_a_follower_whose_log_ends_before_the_leader_s_begins_starts_there(tmp_path: Path) -> None:
    leader, follower = replica(tmp_path, "leader"), replica(tmp_path, "follower")
    append(leader, 1, 9)
    leader.high_watermark = 9
    leader.trim(7)
    follow(follower, 1)
    catch_up(leader, follower)
    assert (follower.log.start_offset, follower.log.end_offset) == (7, 9)
    assert follower.high_watermark == 9


def test_a_follower_shows_no_more_of_transactions_than_it_knows_to_be_decided(tmp_path: Path) -> None:
    """A consumer may read from the nearest replica, and its high watermark lags behind."""
    leader, follower = replica(tmp_path, "leader"), replica(tmp_path, "follower")
    append(leader, 1, 1)
    for producer_id in (7, 8):
        batch = make_batch(producer_id=producer_id, transactional=True)
        leader.append(memoryview(batch), 0, len(batch), NOW_MS)
    ends = [End(7, 1, Marker.ABORT, 0, NEW_PROTOCOL), End(8, 1, Marker.COMMIT, 0, NEW_PROTOCOL)]
    leader.append_markers(ends, NOW_MS)
    follow(follower, 1)
    shown = []
    for high_watermark in (0, 2, 3, 4, 5):
        leader.high_watermark = high_watermark
        catch_up(leader, follower)
        found = follower.read(0, 10**6, READ_COMMITTED, -1, True, from_follower=True)
        assert found.error_code == 0
        if found.records is not None:
            found.records.release()
        shown.append((found.last_stable_offset, found.aborted))
    assert shown == [(0, []), (1, []), (1, []), (2, [(7, 1)]), (5, [(7, 1)])]


def test_an_error_makes_it_wait(tmp_path: Path) -> None:
    follower = replica(tmp_path, "follower")
    for code in (ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_id, ErrorCode.offset_out_of_range):
        assert next_step(follower.log, ReceivedPartition(0, code, -1, -1)) == Wait(code)
