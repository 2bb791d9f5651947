"""The real disk: whole writes, slices that never lie, pins, replacements, the lock."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.base import files
from tidelog.base.files import DirectoryLock, DiskDirectory, DiskFile, FileSlice
from tidelog.base.limits import RESERVED_AHEAD_MAX, RESERVED_FOR_SIZE
from tidelog.base.reserve import find_fallocate, reserve


@pytest.fixture
def directory(tmp_path: Path) -> DiskDirectory:
    return DiskDirectory(str(tmp_path))


def test_appends_go_to_the_end_and_tell_where(directory: DiskDirectory) -> None:
    file = directory.open("a")
    assert [file.append(b"one"), file.append(bytearray(b"two")), file.append(memoryview(b"!"))] == [0, 3, 6]
    assert (file.size, file.read(0, 100), file.read(2, 3), file.read(7, 5)) == (7, b"onetwo!", b"etw", b"")
    assert directory.open("a").size == 7


def test_a_short_write_is_continued(directory: DiskDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    file = directory.open("a")
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, memoryview(data)[:3]))
    assert file.append(b"0123456789") == 0
    assert (file.size, file.read(0, 20)) == (10, b"0123456789")


def test_a_write_that_cannot_be_finished_raises(
    directory: DiskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = directory.open("a")
    results = iter([4])

    def full(fd: int, data: bytes) -> int:
        for size in results:
            return size
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="full"):
        file.append(b"0123456789")
    assert file.size == 0


LARGE = (b"not zeros, as blocks are that nobody has written to" * RESERVED_FOR_SIZE)[:RESERVED_FOR_SIZE]
BLOCK_SIZE_MAX = 8_192  # of the file systems that tests run on


def blocks_size(file: DiskFile) -> int:
    return os.fstat(file.fileno()).st_blocks * 512


@pytest.fixture
def large(directory: DiskDirectory, tmp_path: Path) -> DiskFile:
    """A file with a large batch in it, on a disk that can reserve blocks."""
    with (tmp_path / "probe").open("wb") as probe:
        is_had = reserve(probe.fileno(), 0, 1 << 20) and os.fstat(probe.fileno()).st_blocks >= 1 << 11
    if not is_had:
        pytest.skip("this file system reserves nothing ahead of a file's end")
    file = directory.open("large")
    file.append(LARGE)
    return file


def test_room_is_reserved_behind_large_batches_and_given_back(large: DiskFile) -> None:
    assert blocks_size(large) >= 2 * len(LARGE), "as much again as there is"
    assert (large.size, os.fstat(large.fileno()).st_size) == (len(LARGE), len(LARGE))
    large.append(LARGE)
    assert large.read(0, 3 * len(LARGE)) == 2 * LARGE
    large.append(LARGE)
    os.utime(large.fileno(), (1, 1))
    large.trim()
    assert blocks_size(large) <= 3 * len(LARGE) + BLOCK_SIZE_MAX
    assert large.modified_ms() == 1_000, "when it was last written to is what retention may go by"
    large.append(b"small")
    assert large.read(0, 4 * len(LARGE)) == 3 * LARGE + b"small"


def test_a_file_of_another_size_than_it_should_have_is_left_alone(large: DiskFile) -> None:
    os.write(large.fileno(), b"somebody else's")
    large.trim()
    assert os.fstat(large.fileno()).st_size == large.size + len(b"somebody else's")


def test_what_cannot_be_given_back_is_kept(large: DiskFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, size: int) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "ftruncate", refuse)
    large.trim()
    large.append(LARGE)
    assert large.read(0, 3 * len(LARGE)) == 2 * LARGE


def test_what_is_reserved_has_a_bound(large: DiskFile) -> None:
    large.append(bytes(3 * RESERVED_AHEAD_MAX))
    assert large.size < blocks_size(large) <= large.size + RESERVED_AHEAD_MAX + BLOCK_SIZE_MAX


def test_what_a_crash_left_reserved_is_given_back_when_the_file_is_closed(
    large: DiskFile, directory: DiskDirectory
) -> None:
    large.suspend()
    again = directory.open("large")
    assert blocks_size(again) >= 2 * len(LARGE)
    again.close()
    assert blocks_size(directory.open("large")) <= len(LARGE) + BLOCK_SIZE_MAX


def test_closing_leaves_a_file_alone_that_has_taken_the_name(
    large: DiskFile, directory: DiskDirectory
) -> None:
    large.suspend()
    directory.remove("large")
    other = directory.open("large")
    other.append(3 * LARGE)
    large.close()
    assert os.fstat(other.fileno()).st_size == 3 * len(LARGE)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much a disk that reserves nothing was asked for."""
    sizes: list[int] = []

    def refuse(descriptor: int, position: int, size: int) -> bool:
        sizes.append(size)
        return False

    monkeypatch.setattr(files, "reserve", refuse)
    return sizes


def test_small_batches_reserve_nothing(directory: DiskDirectory, asked: list[int]) -> None:
    file = directory.open("small")
    for _ in range(3):
        file.append(LARGE[1:])
    assert asked == []


def test_a_disk_that_reserves_nothing_is_asked_once_for_each_file(
    directory: DiskDirectory, asked: list[int]
) -> None:
    file = directory.open("a")
    for _ in range(3):
        file.append(LARGE)
    file.close()
    assert len(asked) == 1
    assert directory.open("a").read(0, 4 * len(LARGE)) == 3 * LARGE


def test_without_ctypes_nothing_is_reserved_and_all_is_written(
    directory: DiskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    find_fallocate.cache_clear()
    try:
        file = directory.open("a")
        file.append(LARGE)
        assert file.read(0, 2 * len(LARGE)) == LARGE
        assert blocks_size(file) <= len(LARGE) + BLOCK_SIZE_MAX
    finally:
        find_fallocate.cache_clear()


def test_a_slice_knows_when_its_file_was_cut_under_it(directory: DiskDirectory) -> None:
    file = directory.open("a")
    file.append(b"0123456789")
    held = FileSlice(file, 4, 4)
    assert held.is_valid() and held.read() == b"4567"
    file.append(b"more")
    assert held.is_valid(), "growth does not matter"
    file.truncate(5)
    file.append(b"other")
    assert not held.is_valid()
    held.release()


def test_a_closed_file_stays_open_for_whoever_pinned_it(directory: DiskDirectory) -> None:
    file = directory.open("a")
    file.append(b"0123")
    first, second = FileSlice(file, 0, 2), FileSlice(file, 2, 2)
    file.close()
    directory.remove("a")
    assert (first.read(), file.fileno() >= 0) == (b"01", True)
    first.release()
    assert second.read() == b"23"
    second.release()
    assert file.fileno() == -1
    file.close()


def test_a_replacement_is_whole_and_leaves_nothing_beside_it(directory: DiskDirectory) -> None:
    assert directory.read_whole("a") is None
    for durable in (True, False):
        directory.replace_whole("a", b"new" * 100, durable)
        assert directory.read_whole("a") == b"new" * 100
    assert directory.names() == ["a"]


def test_a_failed_replacement_leaves_the_old_content(
    directory: DiskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.replace_whole("a", b"old")

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "failed")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="failed"):
        directory.replace_whole("a", b"new")
    assert directory.read_whole("a") == b"old"


def test_a_copy_goes_on_where_it_ended(directory: DiskDirectory) -> None:
    file, target = directory.open("a"), directory.folder("target")
    file.append(b"one two three")
    directory.copy("a", 3, target)
    directory.copy("a", 7, target, 3)
    assert target.read_whole("a") == b"one two"
    directory.copy("a", 5, target)
    assert target.read_whole("a") == b"one t"
    with pytest.raises(FileNotFoundError):
        directory.copy("a", 7, directory.folder("other"), 3)


def test_folders_are_made_listed_renamed_and_removed_whole(directory: DiskDirectory, tmp_path: Path) -> None:
    inner = directory.folder("t-0")
    inner.folder("deep").open("x").append(b"1")
    inner.open("y").append(b"22")
    assert (directory.names(), directory.sizes(), inner.sizes()) == (["t-0"], {}, {"y": 2})
    directory.rename("t-0", "gone")
    assert directory.exists("gone") and not directory.exists("t-0")
    directory.remove("gone")
    directory.remove("gone")
    assert list(tmp_path.iterdir()) == []


def test_the_descriptor_of_a_file_does_not_reach_child_processes(directory: DiskDirectory) -> None:
    assert not os.get_inheritable(directory.open("a").fileno())


HOLD = "import sys; from tidelog.base.files import DirectoryLock; DirectoryLock(sys.argv[1])"


def test_a_second_process_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode != 0
    assert "BlockingIOError" in refused.stderr or "PermissionError" in refused.stderr
    lock.release()
    assert subprocess.run(command, check=False, timeout=60).returncode == 0


def test_the_lock_counts_and_not_the_file(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    DirectoryLock(str(tmp_path)).release()


def test_a_sync_reaches_the_disk(directory: DiskDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the file itself, and of the folder: what the kernel was asked for, by what is open there."""
    synced: list[str] = []
    for name in ("fdatasync", "fsync"):
        real = getattr(os, name)

        def counted(descriptor: int, real: Callable[[int], None] = real) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            real(descriptor)

        monkeypatch.setattr(os, name, counted)
    file = directory.open("a")
    file.append(b"one")
    file.sync()
    assert synced == [os.path.join(directory.path, "a")]
    file.append(b"two")
    file.sync()
    assert len(synced) == 2, "what was written since is synced again"
    directory.sync()
    assert synced[2:] == [directory.path]
