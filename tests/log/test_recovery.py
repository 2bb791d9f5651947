"""Opening a log after a stop, a crash, or somebody's hand: what is cut, what is rebuilt, what is believed."""

from __future__ import annotations

from pathlib import Path
from struct import pack_into

import pytest

from tests.log.making import (
    NOW_MS,
    append,
    append_marker,
    find_timestamp,
    flush,
    make_batch,
    make_settings,
    open_new,
    read_bytes,
    read_log,
    reopen,
)
from tidelog.base.files import DiskDirectory
from tidelog.base.limits import BATCH_HEADER_SIZE
from tidelog.log.format.names import LEADER_EPOCHS
from tidelog.log.log import Log
from tidelog.log.recovery import open_log
from tidelog.protocol.batch import CRC_POSITION, LENGTH_OVERHEAD, compute_crc
from tidelog.protocol.records import Marker, build_control_batch

SEGMENT_COUNT = 4
BATCH_COUNT = 8  # in a segment
SETTINGS = {"index_interval_bytes": 100}


def name(base: int, suffix: str) -> str:
    return f"{base:020}{suffix}"


def filled(folder: Path) -> Log:
    """Four segments of eight batches of two records; producer 7 wrote them, transaction 1 was aborted in
    each segment but the last, where it is open."""
    log = open_new(folder, **SETTINGS)
    sequence = 0
    for segment in range(SEGMENT_COUNT):
        if segment:
            log.roll(NOW_MS)
        for number in range(BATCH_COUNT - 2):
            timestamp = NOW_MS + 1_000 * segment + 10 * number
            append(log, make_batch(2, timestamp=timestamp, producer_id=7, sequence=sequence), epoch=segment)
            sequence += 2
        append(log, make_batch(2, producer_id=1, sequence=2 * segment, transactional=True), epoch=segment)
        if segment < SEGMENT_COUNT - 1:
            append_marker(log, Marker.ABORT, 1, epoch=segment)
    return log


BASES = [0, 15, 30, 45]


def snapshot_of(log: Log) -> tuple[object, ...]:
    """Everything that can be asked of a log."""
    times = range(NOW_MS - 1, NOW_MS + 3_200, 7)
    return (
        (log.start_offset, log.end_offset),
        read_log(log),
        [read_bytes(log, offset, max_bytes=1) for offset in range(log.start_offset, log.end_offset)],
        [find_timestamp(log, timestamp, log.end_offset) for timestamp in times],
        find_timestamp(log, None, log.end_offset),
        log.epochs.entries(),
        log.last_stable_offset(log.end_offset),
        log.aborted_between(0, log.end_offset),
        sorted((p.producer_id, p.epoch, p.recent[-1][:3], p.transaction_offset) for p in log.producers),
    )


def crashed(folder: Path, flushed: bool = False) -> tuple[object, ...]:
    """Leave a log as a killed process does: the files are closed, nothing else is done."""
    log = filled(folder)
    assert log.bases == BASES
    if flushed:
        flush(log)
    expected = snapshot_of(log)
    log.close(clean=False)
    return expected


def stopped(folder: Path) -> tuple[object, ...]:
    log = filled(folder)
    expected = snapshot_of(log)
    log.close(clean=True)
    return expected


def test_a_clean_stop_is_opened_without_a_scan(tmp_path: Path) -> None:
    expected = stopped(tmp_path)
    log, report = reopen(tmp_path, 59, 0, True, **SETTINGS)
    assert (report.scanned_bytes, report.cut_bytes, report.rebuilt, report.problems) == (0, 0, [], [])
    assert snapshot_of(log) == expected
    assert log.recovery_point == log.end_offset == 59


def test_a_crash_is_opened_by_a_scan_of_everything_unflushed(tmp_path: Path) -> None:
    expected = crashed(tmp_path)
    log, report = reopen(tmp_path, 0, 0, False, **SETTINGS)
    assert report.scanned_bytes == log.size and report.cut_bytes == 0
    assert snapshot_of(log) == expected


@pytest.mark.parametrize(("recovery_point", "first"), [(1, 0), (20, 1), (31, 2), (50, 3), (59, 3)])
def test_only_segments_from_the_recovery_point_on_are_scanned(
    tmp_path: Path, recovery_point: int, first: int
) -> None:
    expected = crashed(tmp_path)
    log, report = reopen(tmp_path, recovery_point, 0, False, **SETTINGS)
    assert report.scanned_bytes == sum(segment.size for segment in log.segments[first:])
    assert snapshot_of(log) == expected
    assert log.recovery_point == recovery_point


def test_a_recovery_point_beyond_the_end_is_taken_back(tmp_path: Path) -> None:
    crashed(tmp_path)
    log, _ = reopen(tmp_path, 10**6, 0, False, **SETTINGS)
    assert log.recovery_point == log.end_offset == 59


def test_a_clean_sign_that_does_not_fit_the_files_is_not_believed(tmp_path: Path) -> None:
    expected = crashed(tmp_path)
    log, report = reopen(tmp_path, 20, 0, True, **SETTINGS)
    assert report.scanned_bytes > 0
    assert snapshot_of(log) == expected


def damage_positions(size: int, batch: int) -> list[int]:
    """Bytes to be cut off or hit: the last one, around the header, the whole batch, in the one before."""
    return [
        1,
        2,
        30,
        batch - 62,
        batch - 61,
        batch - 60,
        batch - 21,
        batch - 1,
        batch,
        batch + 1,
        batch + 70,
        size,
    ]


TAIL = len(make_batch(2))


@pytest.mark.parametrize("cut", damage_positions(7 * TAIL, TAIL))
def test_a_truncated_tail_is_cut_at_the_last_whole_batch(tmp_path: Path, cut: int) -> None:
    crashed(tmp_path)
    path = tmp_path / name(45, ".log")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - cut])
    log, report = reopen(tmp_path, 45, 0, False, **SETTINGS)
    left = (len(whole) - cut) // TAIL
    assert log.end_offset == 45 + 2 * left
    assert path.read_bytes() == whole[: left * TAIL]
    assert report.cut_bytes == len(whole) - cut - left * TAIL
    assert append(log, make_batch(), epoch=9).base_offset == log.end_offset - 1


@pytest.mark.parametrize("back", damage_positions(7 * TAIL, TAIL))
def test_a_flipped_bit_cuts_its_batch_and_all_behind_it(tmp_path: Path, back: int) -> None:
    crashed(tmp_path)
    path = tmp_path / name(45, ".log")
    whole = path.read_bytes()
    place = len(whole) - back
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :])
    log, report = reopen(tmp_path, 45, 0, False, **SETTINGS)
    assert log.end_offset == 45 + 2 * (place // TAIL)
    assert path.stat().st_size == place // TAIL * TAIL
    assert report.problems


@pytest.mark.parametrize("zeros", [1, 11, 12, 60, 61, 62, TAIL, 5_000])
def test_a_zero_filled_tail_is_cut(tmp_path: Path, zeros: int) -> None:
    expected = crashed(tmp_path)
    path = tmp_path / name(45, ".log")
    path.write_bytes(path.read_bytes() + bytes(zeros))
    log, report = reopen(tmp_path, 45, 0, False, **SETTINGS)
    assert report.cut_bytes == zeros
    assert snapshot_of(log) == expected


def test_a_good_batch_behind_a_torn_one_does_not_come_back(tmp_path: Path) -> None:
    crashed(tmp_path)
    path = tmp_path / name(45, ".log")
    whole = path.read_bytes()
    path.write_bytes(whole[:TAIL] + bytes(TAIL) + whole[2 * TAIL :])
    log, _ = reopen(tmp_path, 45, 0, False, **SETTINGS)
    assert log.end_offset == 47


def test_a_batch_repeated_at_the_end_is_cut(tmp_path: Path) -> None:
    expected = crashed(tmp_path)
    path = tmp_path / name(45, ".log")
    path.write_bytes(path.read_bytes() + path.read_bytes()[-TAIL:])
    log, _ = reopen(tmp_path, 45, 0, False, **SETTINGS)
    assert snapshot_of(log) == expected


def test_segments_behind_a_cut_one_are_dropped(tmp_path: Path) -> None:
    crashed(tmp_path)
    path = tmp_path / name(15, ".log")
    path.write_bytes(path.read_bytes()[:-1])
    log, report = reopen(tmp_path, 15, 0, False, **SETTINGS)
    assert log.bases == [0, 15] and log.end_offset == 29
    assert not (tmp_path / name(30, ".log")).exists()
    assert any("dropped" in problem for problem in report.problems)
    assert log.epochs.entries() == [(0, 0), (1, 15)]


def test_damage_below_the_recovery_point_is_left_alone(tmp_path: Path) -> None:
    crashed(tmp_path)
    path = tmp_path / name(0, ".log")
    damaged = bytearray(path.read_bytes())
    damaged[70] ^= 1
    path.write_bytes(damaged)
    log, report = reopen(tmp_path, 45, 0, False, **SETTINGS)
    assert report.cut_bytes == 0 and log.end_offset == 59
    assert path.read_bytes() == damaged


def rewrite(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "short":
        path.write_bytes(content[:-1])
    elif how == "zeros":
        path.write_bytes(bytes(len(content)))
    elif how == "garbage":
        path.write_bytes(bytes(b ^ 0xA5 for b in content))


DAMAGES = ["missing", "empty", "short", "zeros", "garbage"]
INDEXES = [(base, suffix) for base in BASES for suffix in (".index", ".timeindex")]
SNAPSHOTS = [(base, ".snapshot") for base in BASES[1:]]


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize(("base", "suffix"), [*INDEXES, *SNAPSHOTS])
def test_a_damaged_file_beside_the_log_changes_nothing_after_a_crash(
    tmp_path: Path, base: int, suffix: str, how: str
) -> None:
    expected = crashed(tmp_path, flushed=True)
    rewrite(tmp_path / name(base, suffix), how)
    log, _ = reopen(tmp_path, 59, 0, False, **SETTINGS)
    assert snapshot_of(log) == expected


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize(("base", "suffix"), [*INDEXES, *SNAPSHOTS, (59, ".snapshot")])
def test_a_damaged_file_beside_the_log_changes_nothing_after_a_clean_stop(
    tmp_path: Path, base: int, suffix: str, how: str
) -> None:
    expected = stopped(tmp_path)
    rewrite(tmp_path / name(base, suffix), how)
    log, _ = reopen(tmp_path, 59, 0, True, **SETTINGS)
    assert snapshot_of(log) == expected


@pytest.mark.parametrize("how", ["short", "garbage", "zeros"])
@pytest.mark.parametrize("base", BASES[:3])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_damaged_transaction_index_is_made_anew(
    tmp_path: Path, is_clean: bool, base: int, how: str
) -> None:
    expected = stopped(tmp_path) if is_clean else crashed(tmp_path, flushed=True)
    rewrite(tmp_path / name(base, ".txnindex"), how)
    log, _ = reopen(tmp_path, 59, 0, is_clean, **SETTINGS)
    assert snapshot_of(log) == expected
    log.close(clean=True)
    log, report = reopen(tmp_path, 59, 0, True, **SETTINGS)
    assert snapshot_of(log) == expected and report.rebuilt == []


def test_without_any_snapshot_the_producers_are_read_from_the_log(tmp_path: Path) -> None:
    expected = stopped(tmp_path)
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    log, _ = reopen(tmp_path, 59, 0, True, **SETTINGS)
    assert snapshot_of(log) == expected


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("is_clean", [True, False])
def test_damaged_leader_epochs_are_read_from_the_log(tmp_path: Path, is_clean: bool, how: str) -> None:
    expected = stopped(tmp_path) if is_clean else crashed(tmp_path)
    rewrite(tmp_path / "leader-epoch-checkpoint", how)
    log, _ = reopen(tmp_path, 59, 0, is_clean, **SETTINGS)
    assert snapshot_of(log) == expected


def test_a_rebuilt_index_is_the_one_that_was_lost(tmp_path: Path) -> None:
    stopped(tmp_path)
    kept = {
        path.name: path.read_bytes()
        for suffix in (".index", ".timeindex")
        for path in tmp_path.glob(f"*{suffix}")
    }
    for file_name in kept:
        (tmp_path / file_name).unlink()
    log, report = reopen(tmp_path, 59, 0, True, **SETTINGS)
    assert report.rebuilt
    log.close(clean=True)
    assert {file_name: (tmp_path / file_name).read_bytes() for file_name in kept} == kept


def timed(folder: Path, *timestamps: int) -> Log:
    """Three segments, each of batches of one record with these timestamps."""
    log = open_new(folder, **SETTINGS)
    for segment in range(3):
        if segment:
            log.roll(NOW_MS)
        for timestamp in timestamps:
            append(log, make_batch(1, timestamp=timestamp))
    return log


@pytest.mark.parametrize("timestamp", [-1, 0])
def test_a_log_without_times_is_opened_without_a_scan(tmp_path: Path, timestamp: int) -> None:
    timed(tmp_path, *[timestamp] * 6).close(clean=True)
    log, report = reopen(tmp_path, 18, 0, True, **SETTINGS)
    assert (report.scanned_bytes, report.rebuilt, report.problems) == (0, [], [])
    assert find_timestamp(log, 0, 18) == (None if timestamp else (0, 0))


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("timestamps", [(0, 0, 5, 5, 6, 7), (5, 0, 0, 6, -1, 7)])
def test_a_damaged_time_index_of_early_times_is_made_anew(
    tmp_path: Path, timestamps: tuple[int, ...], how: str
) -> None:
    timed(tmp_path, *timestamps).close(clean=True)
    path = tmp_path / name(0, ".timeindex")
    before = path.read_bytes()
    rewrite(path, how)
    _, report = reopen(tmp_path, 18, 0, True, **SETTINGS)
    assert report.rebuilt == [name(0, ".index")]
    assert path.read_bytes() == before


def test_a_lost_time_index_is_made_anew_though_the_first_record_has_no_time(tmp_path: Path) -> None:
    timed(tmp_path, -1, 7).close(clean=True)
    path = tmp_path / name(0, ".timeindex")
    before = path.read_bytes()
    path.unlink()
    reopen(tmp_path, 6, 0, True, **SETTINGS)
    assert path.read_bytes() == before != b""


def test_the_checkpointed_log_start_counts_if_it_is_above_the_first_segment(tmp_path: Path) -> None:
    crashed(tmp_path)
    log, _ = reopen(tmp_path, 59, 20, False, **SETTINGS)
    assert log.start_offset == 20
    log.close(clean=False)
    for path in tmp_path.glob(f"{0:020}*"):
        path.unlink()
    log, _ = reopen(tmp_path, 59, 5, False, **SETTINGS)
    assert log.start_offset == 15


def test_a_log_that_ends_below_its_start_is_emptied_and_begins_there(tmp_path: Path) -> None:
    crashed(tmp_path)
    log, _ = reopen(tmp_path, 59, 100, False, **SETTINGS)
    assert (log.start_offset, log.end_offset, log.size) == (100, 100, 0)
    assert append(log, make_batch()).base_offset == 100


def test_a_second_crash_right_after_recovery_finds_the_same_log(tmp_path: Path) -> None:
    expected = crashed(tmp_path)
    path = tmp_path / name(45, ".log")
    path.write_bytes(path.read_bytes() + b"torn")
    for _ in range(3):
        log, _ = reopen(tmp_path, 20, 0, False, **SETTINGS)
        assert snapshot_of(log) == expected
        log.close(clean=False)


def test_a_partition_folder_without_files_opens_as_an_empty_log(tmp_path: Path) -> None:
    log, report = reopen(tmp_path, 0, 0, False)
    assert (log.start_offset, log.end_offset, log.bases) == (0, 0, [0])
    assert report.problems == []


@pytest.mark.parametrize("count", [0, 3])
def test_a_clean_start_writes_no_leader_epochs(tmp_path: Path, count: int) -> None:
    log = open_new(tmp_path)
    if count:
        append(log, make_batch(count), epoch=1)
    log.epochs.assign(2, log.end_offset)  # somebody led, and nothing was written
    entries = log.epochs.entries()
    log.close(clean=True)
    file = tmp_path / LEADER_EPOCHS
    before = file.stat().st_ino
    log, _ = reopen(tmp_path, count, is_clean=True)
    log.epochs.assign(2, log.end_offset)
    assert log.epochs.entries() == entries and file.stat().st_ino == before
    log, _ = reopen(tmp_path, count)  # after a crash nobody knows whether that epoch was ever led
    assert log.epochs.entries() == entries[:-1]


def test_snapshots_of_clean_stops_do_not_pile_up(tmp_path: Path) -> None:
    log = open_new(tmp_path)
    for _ in range(4):
        append(log, make_batch(producer_id=7, sequence=log.end_offset))
        end = log.end_offset
        log.close(clean=True)
        log, _ = reopen(tmp_path, end, 0, True)
    assert len(list(tmp_path.glob("*.snapshot"))) <= 2


def control_batch_of(body: bytes, record_count: int) -> bytearray:
    """A batch that says it is a control batch, with a checksum that fits whatever is in it."""
    batch = build_control_batch(Marker.ABORT, 1, 0, 0, NOW_MS)
    batch = batch[:BATCH_HEADER_SIZE] + body
    pack_into(">i", batch, 8, len(batch) - LENGTH_OVERHEAD)
    pack_into(">i", batch, BATCH_HEADER_SIZE - 4, record_count)
    pack_into(">I", batch, CRC_POSITION, compute_crc(memoryview(batch), 0, len(batch)))
    return batch


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    ("body", "record_count"), [(b"", 0), (b"\xff" * 40, 1), (b"\0" * 20, 1)], ids=["empty", "ones", "zeros"]
)
def test_a_control_batch_without_its_record_does_not_stop_a_log_from_opening(
    tmp_path: Path, body: bytes, record_count: int, is_clean: bool
) -> None:
    log = open_new(tmp_path)
    batch = control_batch_of(body, record_count)
    log.write_batch(memoryview(batch), 0, 0, 0, NOW_MS, NOW_MS)
    append(log, make_batch(2))
    log.close(clean=is_clean)
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()  # so that the clean log replays its batches too
    log, report = reopen(tmp_path, 3 if is_clean else 0, 0, is_clean)
    assert (log.end_offset, report.cut_bytes) == (3, 0)
    assert len(report.problems) == record_count, report.problems
    assert append(log, make_batch()).base_offset == 3


def damage_offset(path: Path, position: int, base_offset: int) -> None:
    """Change a batch's base offset, which no checksum covers."""
    data = bytearray(path.read_bytes())
    pack_into(">q", data, position, base_offset)
    path.write_bytes(data)


@pytest.mark.parametrize("base_offset", [2**40, 2**31 + 15, 2**63 - 9])
def test_an_offset_that_no_index_could_hold_cuts_its_batch(tmp_path: Path, base_offset: int) -> None:
    filled(tmp_path).close(clean=False)
    size = len(make_batch(2, producer_id=7, sequence=0))
    damage_offset(tmp_path / name(15, ".log"), size, base_offset)
    log, report = reopen(tmp_path, index_interval_bytes=100)
    assert log.end_offset == 17 and report.cut_bytes > 0
    append(log, make_batch(1))
    log.roll(NOW_MS)
    log.close(clean=True)


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("left", [0, 1, 3])
def test_segments_behind_one_whose_end_never_reached_the_disk_are_dropped(
    tmp_path: Path, left: int, policy: str
) -> None:
    """Whole batches are missing, so that nothing looks torn."""
    crashed(tmp_path)
    second = tmp_path / name(15, ".log")
    size = len(make_batch(2, producer_id=7, sequence=0))
    second.write_bytes(second.read_bytes()[: left * size])
    log, report = reopen(tmp_path, 15, 0, False, cleanup_policy=policy, **SETTINGS)
    assert (log.end_offset, log.bases) == (15 + 2 * left, [0, 15])
    assert len(report.problems) == 2, report.problems


@pytest.mark.parametrize("left", [0, 1, 3])
@pytest.mark.parametrize("was_stopped", [True, False])
def test_what_compaction_took_between_segments_is_not_missed(
    tmp_path: Path, was_stopped: bool, left: int
) -> None:
    """After a clean stop anything may be gone; after a crash it is known by a gap within a segment."""
    crashed(tmp_path)
    second, third = tmp_path / name(15, ".log"), tmp_path / name(30, ".log")
    size = len(make_batch(2, producer_id=7, sequence=0))
    second.write_bytes(second.read_bytes()[: left * size])
    if not was_stopped:
        third.write_bytes(third.read_bytes()[size:])
    log, report = reopen(tmp_path, 0, 0, was_stopped, cleanup_policy="compact", **SETTINGS)
    assert (log.end_offset, log.bases) == (59, [0, 15, 30, 45])
    assert report.cut_bytes == 0


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("is_cleaned", [True, False])
def test_a_gap_below_the_cleaner_s_checkpoint_is_none(tmp_path: Path, policy: str, is_cleaned: bool) -> None:
    """Compaction took the end of a segment and nothing else; the recovery point is old."""
    crashed(tmp_path)
    second = tmp_path / name(15, ".log")
    second.write_bytes(second.read_bytes()[: 3 * len(make_batch(2, producer_id=7, sequence=0))])
    settings = make_settings(cleanup_policy=policy, **SETTINGS)
    folder, cleaned = DiskDirectory(str(tmp_path)), 30 if is_cleaned else 15
    log, _ = open_log(folder, settings, NOW_MS, cleaned_offset=cleaned)
    assert (log.end_offset, log.bases[:3]) == ((59, [0, 15, 30]) if is_cleaned else (21, [0, 15]))
    assert log.cleaned_offset == cleaned


def test_a_cleaner_s_checkpoint_above_the_end_is_of_another_log(tmp_path: Path) -> None:
    crashed(tmp_path)
    log, _ = open_log(DiskDirectory(str(tmp_path)), make_settings(**SETTINGS), NOW_MS, cleaned_offset=60)
    assert log.cleaned_offset == 0


def test_what_is_written_behind_a_gap_that_a_cut_laid_open_is_kept_by_the_next_recovery(
    tmp_path: Path,
) -> None:
    filled(tmp_path).close(clean=False)
    first = tmp_path / name(0, ".log")
    size = len(make_batch(2, producer_id=7, sequence=0))
    damage_offset(first, 0, 1)  # as if compaction had taken the first record
    damage_offset(first, size, 3)
    data = bytearray(first.read_bytes())
    data[3 * size + 100] ^= 1
    first.write_bytes(data)
    log, _ = reopen(tmp_path, index_interval_bytes=100)
    end_offset = append(log, make_batch(1)).end_offset
    log.close(clean=False)
    again, report = reopen(tmp_path, index_interval_bytes=100)
    assert (again.end_offset, report.cut_bytes) == (end_offset, 0)
