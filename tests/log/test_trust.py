"""What opening a log finds decides what it has kept, and is on the disk before it is destroyed (R16)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.making import NOW_MS, append, make_batch, make_settings
from tests.sim.disk import SimulatedDisk
from tidelog.base.files import DiskDirectory
from tidelog.log.log import Log
from tidelog.log.recovery import Recovery, open_log
from tidelog.log.trust import (
    LOSS_MARK,
    PAGE_SIZE,
    Kept,
    StorePosition,
    is_broken_off,
    read_mark,
    read_position,
    write_mark,
)

LOG = "00000000000000000000.log"
VALUE = b"x" * 1_000


def filled(folder: Path, count: int = 9) -> Log:
    log, _ = open_log(DiskDirectory(str(folder)), make_settings(), NOW_MS)
    for _ in range(count):
        append(log, make_batch(value=VALUE))
    log.close(clean=False)
    return log


def reopened(
    folder: Path, kept: Kept, recovery_point: int = 0, high_watermark: int = 0, **config: str
) -> tuple[Log, Recovery]:
    return open_log(
        DiskDirectory(str(folder)),
        make_settings(**config),
        NOW_MS,
        recovery_point,
        high_watermark=high_watermark,
        kept=kept,
        broker_epoch=5,
    )


def flip(folder: Path, position: int) -> None:
    data = bytearray((folder / LOG).read_bytes())
    data[position] ^= 1
    (folder / LOG).write_bytes(data)


def size_of_batch() -> int:
    return len(make_batch(value=VALUE))


@pytest.mark.parametrize("kept", [Kept.WHOLE, Kept.UNFLUSHED, Kept.LOST])
def test_a_log_of_which_nothing_is_cut_has_kept_what_its_directory_has(tmp_path: Path, kept: Kept) -> None:
    filled(tmp_path)
    _, report = reopened(tmp_path, kept, 5, 9)
    assert report.kept is kept and not (tmp_path / LOSS_MARK).exists()


@pytest.mark.parametrize("place", [0, 4, 8])
def test_damage_after_a_kill_may_have_taken_anything(tmp_path: Path, place: int) -> None:
    filled(tmp_path)
    flip(tmp_path, place * size_of_batch() + 100)
    log, report = reopened(tmp_path, Kept.WHOLE)
    assert (report.kept, log.end_offset) == (Kept.LOST, place)
    assert read_mark(log.directory) == (Kept.LOST, 5)


def test_after_a_power_cut_an_unflushed_end_is_torn_and_a_flushed_one_is_lost(tmp_path: Path) -> None:
    filled(tmp_path)
    flip(tmp_path, 6 * size_of_batch() + 100)
    _, report = reopened(tmp_path, Kept.UNFLUSHED, recovery_point=6)
    assert report.kept is Kept.TORN
    flip(tmp_path, 4 * size_of_batch() + 100)
    _, report = reopened(tmp_path, Kept.UNFLUSHED, recovery_point=6)
    assert report.kept is Kept.LOST


def test_a_log_that_ends_below_what_was_flushed_or_committed_is_lost_though_nothing_is_cut(
    tmp_path: Path,
) -> None:
    filled(tmp_path)
    for recovery_point, high_watermark, kept, flush, found in (
        (10, 0, Kept.UNFLUSHED, "1000", Kept.LOST),
        (0, 10, Kept.WHOLE, "1000", Kept.LOST),
        (0, 10, Kept.UNFLUSHED, "1", Kept.LOST),
        (0, 10, Kept.UNFLUSHED, "1000", Kept.UNFLUSHED),  # a power cut takes what is committed and unflushed
        (9, 9, Kept.WHOLE, "1", Kept.WHOLE),
    ):
        (tmp_path / LOSS_MARK).unlink(missing_ok=True)
        _, report = reopened(tmp_path, kept, recovery_point, high_watermark, flush_messages=flush)
        assert report.kept is found
        assert (tmp_path / LOSS_MARK).exists() == (found > kept)


def test_the_mark_is_durable_before_anything_is_cut() -> None:
    disk = SimulatedDisk()
    log, _ = open_log(disk.root, make_settings(), NOW_MS)
    for _ in range(3):
        append(log, make_batch(value=VALUE))
    log.active.file.sync()
    log.close(clean=False)
    whole = disk.root.open(LOG)
    whole.truncate(whole.size - 10)
    whole.close()
    disk.synced_names.clear()
    _, report = open_log(disk.root, make_settings(), NOW_MS, kept=Kept.WHOLE)
    assert report.kept is Kept.LOST
    assert disk.synced_names.index(LOSS_MARK) < disk.synced_names.index(LOG)


@pytest.mark.parametrize("content", [b"", b"{}", b"{", b'{"kept":9,"brokerEpoch":1}'])
def test_a_mark_that_cannot_be_read_says_the_worst_and_is_never_void(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOSS_MARK).write_bytes(content)
    found = read_mark(DiskDirectory(str(tmp_path)))
    assert found is not None and found[0] is Kept.LOST
    write_mark(DiskDirectory(str(tmp_path)), Kept.TORN, 3)
    assert read_mark(DiskDirectory(str(tmp_path))) == (Kept.TORN, 3)


# A write that a kill broke off.


def broken_off(folder: Path, end: int) -> tuple[Log, Recovery]:
    filled(folder)
    data = (folder / LOG).read_bytes()
    assert end < len(data)
    (folder / LOG).write_bytes(data[:end])
    return reopened(folder, Kept.WHOLE)


def test_a_write_that_a_kill_broke_off_costs_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    log, report = broken_off(tmp_path, 2 * PAGE_SIZE)
    assert (report.kept, log.end_offset) == (Kept.WHOLE, 2 * PAGE_SIZE // size_of_batch())
    assert report.cut_bytes > 0 and not (tmp_path / LOSS_MARK).exists()


def test_an_end_that_no_kill_leaves_is_damage(tmp_path: Path) -> None:
    _, report = broken_off(tmp_path, 2 * PAGE_SIZE - 1)
    assert report.kept is Kept.LOST


@pytest.mark.parametrize("count", [9, 1])
def test_a_batch_with_a_damaged_length_is_not_taken_for_one_that_was_broken_off(
    tmp_path: Path, count: int
) -> None:
    """The file may end at a page by chance: others follow inside, or the checksum is right at its end."""
    filled(tmp_path, count)
    log = tmp_path / LOG
    padding = -log.stat().st_size % PAGE_SIZE
    if count == 1:
        log.unlink()
        value = b"x" * (PAGE_SIZE - len(make_batch(value=b"")) - 2)
        again, _ = open_log(DiskDirectory(str(tmp_path)), make_settings(), NOW_MS)
        append(again, make_batch(value=value))
        again.close(clean=False)
        assert log.stat().st_size == PAGE_SIZE
        padding = 0
    data = bytearray(log.read_bytes() + bytes(padding))
    data[8] ^= 1  # a length of 16 MB more
    log.write_bytes(data)
    file = DiskDirectory(str(tmp_path)).open(LOG)
    assert not is_broken_off(file, 0, file.size, 0)
    _, report = reopened(tmp_path, Kept.WHOLE)
    assert report.kept is Kept.LOST


def test_half_a_header_may_be_what_a_kill_left(tmp_path: Path) -> None:
    begun = (7).to_bytes(8, "big") + make_batch()[8:40]
    for left, is_its in ((begun, True), (begun[:5], True), (bytes(range(40)), False)):
        data = bytes(PAGE_SIZE - len(left)) + bytes(left)
        (tmp_path / LOG).write_bytes(data)
        file = DiskDirectory(str(tmp_path)).open(LOG)
        assert is_broken_off(file, PAGE_SIZE - len(left), PAGE_SIZE, 7) == is_its


# Records that compaction took, in a topic that is not compacted any more.


def test_a_gap_in_the_last_segment_costs_nothing_where_the_next_batch_follows(tmp_path: Path) -> None:
    filled(tmp_path)
    data = bytearray((tmp_path / LOG).read_bytes())
    for place in range(4, 9):  # as in the log of a follower whose leader was compacted
        data[place * size_of_batch() : place * size_of_batch() + 8] = (place + 3).to_bytes(8, "big")
    (tmp_path / LOG).write_bytes(data)
    log, report = reopened(tmp_path, Kept.WHOLE)
    assert (log.end_offset, report.cut_bytes, report.kept) == (12, 0, Kept.WHOLE)
    assert log.active.base_offset == 12  # and nothing is written behind the gap
    data[8 * size_of_batch() : 8 * size_of_batch() + 8] = (20).to_bytes(8, "big")
    (tmp_path / LOG).write_bytes(data)
    for file in tmp_path.iterdir():
        if file.name != LOG:
            file.unlink()
    log, report = reopened(tmp_path, Kept.WHOLE)
    assert (log.end_offset, report.kept) == (11, Kept.LOST)  # nothing follows the last one


def test_a_position_of_the_store_is_read_as_it_was_written() -> None:
    assert read_position(StorePosition(2, 31).encode()) == StorePosition(2, 31)


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b"[1]", b'{"generation":1}', b'{"generation":"1","change":2}']
)
def test_a_position_that_cannot_be_read_comes_before_all_others(content: bytes | None) -> None:
    assert read_position(content) == StorePosition() < StorePosition(0, 0)


def test_a_later_restoration_comes_after_any_change() -> None:
    assert StorePosition(0, 9_000) < StorePosition(1, 3)
