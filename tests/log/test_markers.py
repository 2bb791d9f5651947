"""Which ends of transactions a leader writes (decision 0014): each rule as a story of what it prevents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.making import NOW_MS, append, flush, make_batch, open_new, read_bytes, refusal, reopen, split
from tidelog.base import limits
from tidelog.base.files import Buffer, DiskFile
from tidelog.log import markers as markers_module
from tidelog.log.log import Log
from tidelog.log.markers import NEW_PROTOCOL, End, Marked, append_markers
from tidelog.log.replica import append_replica
from tidelog.protocol.batch import read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Marker, build_batch, build_control_batch

NONE, FENCED = ErrorCode.none, ErrorCode.invalid_producer_epoch
OLD_COORDINATOR = ErrorCode.transaction_coordinator_fenced
NOT_LEADER = ErrorCode.not_leader_or_follower
P = 7
LEADER_EPOCH = 3


def write(log: Log, epoch: int, sequence: int = 0, producer_id: int = P) -> int:
    batch = make_batch(producer_id=producer_id, producer_epoch=epoch, sequence=sequence, transactional=True)
    return append(log, batch, LEADER_EPOCH).base_offset


def end_new(log: Log, epoch: int, marker: Marker = Marker.COMMIT, coordinator: int = 0) -> Marked:
    """By the new protocol: the epoch is above that of the transaction."""
    (marked,) = append_markers(log, [End(P, epoch, marker, coordinator, NEW_PROTOCOL)], LEADER_EPOCH, NOW_MS)
    return marked


def end_old(log: Log, number: int, coordinator: int = 0, leader_epoch: int = LEADER_EPOCH) -> Marked:
    """By the old protocol: all of epoch 0."""
    end = End(P, 0, Marker.COMMIT, coordinator, 0, number, leader_epoch)
    (marked,) = append_markers(log, [end], LEADER_EPOCH, NOW_MS)
    return marked


def is_open(log: Log) -> bool:
    known = log.producers.get(P)
    return known is not None and known.transaction_offset >= 0


@pytest.mark.parametrize("numbers", [(-1, 0, 0), (P, -1, 0), (P, 0, -1)])
def test_a_marker_without_an_identity_is_not_written(tmp_path: Path, numbers: tuple[int, int, int]) -> None:
    producer_id, epoch, coordinator = numbers
    log = open_new(tmp_path)
    for version in (0, NEW_PROTOCOL):
        end = End(producer_id, epoch, Marker.COMMIT, coordinator, version)
        (marked,) = append_markers(log, [end], LEADER_EPOCH, NOW_MS)
        assert (marked.code, log.end_offset) == (ErrorCode.unknown_server_error, 0)


def test_a_late_marker_does_not_end_the_transaction_behind_its_own(tmp_path: Path) -> None:
    """The abort of the first is repeated while the second, which has its epoch, is open (KAFKA-19446)."""
    log = open_new(tmp_path)
    write(log, 0)
    assert end_new(log, 1, Marker.ABORT).code is NONE
    write(log, 1)
    assert end_new(log, 1, Marker.ABORT) == Marked(FENCED)
    assert is_open(log) and log.end_offset == 3


def test_a_repeat_is_done_when_the_log_end_it_met_is_committed(tmp_path: Path) -> None:
    """Its first frame was written, and lost its answer with a leader or a connection."""
    log = open_new(tmp_path)
    write(log, 0)
    assert end_new(log, 1) == Marked(NONE, 2)
    append(log, make_batch())
    assert end_new(log, 1) == Marked(NONE, 3) and log.end_offset == 3


def test_a_marker_of_an_old_epoch_is_refused_whatever_is_open(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    write(log, 4)
    for version in (0, 1, NEW_PROTOCOL):
        end = End(P, 3, Marker.COMMIT, 9, version)
        assert append_markers(log, [end], LEADER_EPOCH, NOW_MS) == [Marked(FENCED)]
    assert is_open(log)


def test_of_an_unknown_producer_a_marker_is_written_and_its_epochs_are_kept(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    assert end_new(log, 5, coordinator=4) == Marked(NONE, 1)
    late = make_batch(producer_id=P, producer_epoch=4, transactional=True)
    assert refusal(log, late) == FENCED
    assert end_new(log, 6, coordinator=3) == Marked(OLD_COORDINATOR)


def test_a_marker_of_the_old_protocol_that_comes_again_does_not_end_the_next_transaction(
    tmp_path: Path,
) -> None:
    """A frame of a connection that was given up: only the number tells it from the marker that is due."""
    log = open_new(tmp_path)
    write(log, 0)
    assert end_old(log, 1) == Marked(NONE, 2)
    write(log, 0, sequence=1)
    assert end_old(log, 1) == Marked(NONE, 3) and is_open(log), "a repeat"
    assert end_old(log, 2) == Marked(NONE, 4) and not is_open(log)
    assert end_old(log, 1) == Marked(NONE, 4), "and what is older"


def test_a_marker_that_was_meant_for_another_leadership_is_not_taken(tmp_path: Path) -> None:
    """Numbers are known to the leader that has written them: none may pass it by."""
    log = open_new(tmp_path)
    write(log, 0)
    for leader_epoch in (LEADER_EPOCH - 1, LEADER_EPOCH + 1):
        assert end_old(log, 1, leader_epoch=leader_epoch) == Marked(NOT_LEADER)
    assert is_open(log)


def test_numbers_of_the_last_leadership_say_nothing_of_this_one(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    write(log, 0)
    end_old(log, 1)
    end = End(P, 0, Marker.COMMIT, 0, 0, 1, LEADER_EPOCH + 1)
    assert append_markers(log, [end], LEADER_EPOCH + 1, NOW_MS) == [Marked(NONE, 3)], "written once more"


def test_a_marker_of_a_coordinator_that_was_replaced_is_not_taken(tmp_path: Path) -> None:
    """By the old protocol, after a fail-over: its number may be above any that this leader has seen."""
    log = open_new(tmp_path)
    write(log, 0)
    assert end_old(log, 1, coordinator=1).code is NONE
    write(log, 0, sequence=1)
    assert end_old(log, 2, coordinator=0) == Marked(OLD_COORDINATOR)
    assert is_open(log)


def test_a_repeat_by_a_later_coordinator_fences_the_one_before(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    write(log, 0)
    end_new(log, 1, coordinator=1)
    assert end_new(log, 1, coordinator=2) == Marked(NONE, 3)
    assert end_new(log, 1, coordinator=2) == Marked(NONE, 3)
    assert end_new(log, 1, coordinator=1) == Marked(OLD_COORDINATOR)


def test_markers_of_the_old_protocol_without_a_number_are_taken_as_kafka_does(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    end = End(P, 0, Marker.ABORT, 0)
    for _ in range(2):
        assert append_markers(log, [end], LEADER_EPOCH, NOW_MS)[0].code is NONE
    assert log.end_offset == 2


def test_a_producer_has_one_transaction_open_at_a_time(tmp_path: Path) -> None:
    """The next one, of a higher epoch, is told to come again; also a batch of it that is not its first."""
    log = open_new(tmp_path)
    write(log, 0)
    for sequence in (0, 4):
        batch = make_batch(producer_id=P, producer_epoch=1, sequence=sequence, transactional=True)
        assert refusal(log, batch) == ErrorCode.concurrent_transactions
    assert refusal(log, make_batch(producer_id=P, producer_epoch=1)) == ErrorCode.invalid_txn_state
    end_new(log, 1)
    assert write(log, 1) == 2


# Many in one write.


def test_many_markers_are_one_write_and_read_as_many_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_new(tmp_path, index_interval_bytes=0)
    for producer_id in range(20):
        write(log, 0, producer_id=producer_id)
    writes: list[int] = []
    put = DiskFile.append

    def counted(file: DiskFile, data: Buffer) -> int:
        writes.append(len(data))
        return put(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(DiskFile, "append", counted)
        ends = [End(p, 1, Marker.COMMIT, 0, NEW_PROTOCOL) for p in range(20)]
        assert append_markers(log, ends, LEADER_EPOCH, NOW_MS) == [Marked(NONE, 21 + p) for p in range(20)]
    assert writes == [20 * limits.MARKER_SIZE]
    for p in range(20):
        expected = build_control_batch(
            Marker.COMMIT, p, 1, 0, NOW_MS, base_offset=20 + p, leader_epoch=LEADER_EPOCH
        )
        assert split(read_bytes(log, 20 + p, max_bytes=1)) == [(read_header(expected), bytes(expected))]
    assert log.last_stable_offset(40) == 40


def test_each_end_in_a_list_is_looked_at_after_those_before_it(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    write(log, 0)
    ends = [
        End(P, 1, Marker.COMMIT, 0, NEW_PROTOCOL),
        End(P, 1, Marker.COMMIT, 0, NEW_PROTOCOL),  # a repeat of the first
        End(8, 0, Marker.ABORT, 5, NEW_PROTOCOL),
        End(8, 1, Marker.ABORT, 4, NEW_PROTOCOL),
        End(P, 0, Marker.COMMIT, 0, NEW_PROTOCOL),
    ]
    assert append_markers(log, ends, LEADER_EPOCH, NOW_MS) == [
        Marked(NONE, 2),
        Marked(NONE, 2),
        Marked(NONE, 3),
        Marked(OLD_COORDINATOR),
        Marked(FENCED),
    ]
    assert log.end_offset == 3


def test_a_write_of_markers_is_no_larger_than_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers_module, "MARKERS_PER_WRITE_MAX", 9)
    log = open_new(tmp_path, segment_bytes=1_024)
    ends = [End(p, 0, Marker.COMMIT, 0, NEW_PROTOCOL) for p in range(40)]
    assert [m.end_offset for m in append_markers(log, ends, LEADER_EPOCH, NOW_MS)] == list(range(1, 41))
    assert all(segment.size <= 1_024 for segment in log.segments) and len(log.segments) == 4
    assert all(producer.coordinator_epoch == 0 for producer in log.producers)


def test_what_a_leader_wrote_is_found_again(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    for producer_id in range(5):
        write(log, 0, producer_id=producer_id)
    append_markers(log, [End(p, 1, Marker.ABORT, 0, NEW_PROTOCOL) for p in range(4)], LEADER_EPOCH, NOW_MS)
    flush(log)
    state = log.producers.encode()
    log.close(clean=False)
    again, report = reopen(tmp_path, log.end_offset)
    assert not report.problems and sorted(again.producers.encode()) == sorted(state)
    assert [a.last_stable_offset for a in again.aborted_between(0, 9)] == [1, 2, 3, 4]


# A batch of a transaction that the broker has built itself.


def test_what_the_leader_itself_writes_in_a_transaction_is_known_to_it_as_to_its_followers(
    tmp_path: Path,
) -> None:
    leader, follower = open_new(tmp_path / "a"), open_new(tmp_path / "b")
    record = (b"k", b"v", (), NOW_MS)
    plain = build_batch([record])
    own = build_batch([record, record], producer_id=P, producer_epoch=2, transactional=True)
    for batch in (plain, own):
        leader.append_own(batch, LEADER_EPOCH, NOW_MS)
        append_replica(follower, memoryview(batch), NOW_MS, may_have_gaps=False)
    assert leader.last_stable_offset(3) == follower.last_stable_offset(3) == 1
    assert leader.producers.encode() == follower.producers.encode()
    assert end_new(leader, 3).code is NONE and leader.last_stable_offset(4) == 4
