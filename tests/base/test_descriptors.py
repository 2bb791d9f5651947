"""Files share a bounded number of descriptors: those in use keep theirs, the others get one when needed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tidelog.base.descriptors import Descriptors
from tidelog.base.files import DiskDirectory, DiskFile, FileSlice
from tidelog.base.limits import OPEN_FILES_MIN

COUNT_MAX = 20


@pytest.fixture
def directory(tmp_path: Path) -> DiskDirectory:
    return DiskDirectory(str(tmp_path), Descriptors(COUNT_MAX))


def made(directory: DiskDirectory, count: int) -> list[DiskFile]:
    return [directory.open(str(number)) for number in range(count)]


def test_more_files_than_descriptors_are_written_and_read(directory: DiskDirectory) -> None:
    files = made(directory, 10 * COUNT_MAX)
    for turn in range(3):
        for number, file in enumerate(files):
            file.append(b"%03d%d" % (number, turn))
    assert len(directory.descriptors) <= COUNT_MAX
    for number, file in enumerate(files):
        assert (file.size, file.read(4, 4)) == (12, b"%03d1" % number)
    assert len(directory.descriptors) <= COUNT_MAX


def test_a_pinned_file_keeps_its_descriptor(directory: DiskDirectory) -> None:
    (pinned, *others) = made(directory, 2)
    pinned.append(b"0123456789")
    held = FileSlice(pinned, 2, 3)
    descriptor = pinned.fileno()
    for _ in range(5):
        made(directory, 3 * COUNT_MAX)
        others += made(directory, 3 * COUNT_MAX)
    assert pinned.fileno() == descriptor and held.read() == b"234"
    held.release()
    others += made(directory, 3 * COUNT_MAX)
    assert pinned._descriptor == -1, "and loses it when it is let go"


def test_a_file_in_use_outlasts_those_that_are_not(directory: DiskDirectory) -> None:
    used, *_ = kept = made(directory, COUNT_MAX)
    kept += made(directory, 2)  # everybody has had a second chance by now
    for number in range(10 * COUNT_MAX):
        used.append(b"x")
        descriptor = used.fileno()
        kept.append(directory.open(f"more-{number}"))
    assert used.fileno() == descriptor


def test_too_many_pins_make_more_open_than_there_should_be(directory: DiskDirectory) -> None:
    files = made(directory, 2 * COUNT_MAX)
    for file in files:
        file.pin()
    assert len(directory.descriptors) == 2 * COUNT_MAX and files[0].is_scarce
    for file in files:
        file.unpin()
    files.append(directory.open("one more"))
    assert len(directory.descriptors) <= COUNT_MAX and not files[0].is_scarce


def test_a_folder_that_was_renamed_is_where_its_files_are_found(directory: DiskDirectory) -> None:
    folder = directory.folder("old")
    file = folder.open("a")
    file.append(b"before")
    file.suspend()
    directory.rename("old", "new")
    folder.path = os.path.join(directory.path, "new")
    file.append(b" and after")
    assert file.read(0, 100) == b"before and after"


def test_a_file_that_vanished_is_not_made_anew(directory: DiskDirectory) -> None:
    file = directory.open("a")
    file.append(b"lost")
    file.suspend()
    directory.remove("a")
    with pytest.raises(FileNotFoundError):
        file.append(b"more")


def test_a_closed_file_is_not_opened_again(directory: DiskDirectory) -> None:
    file = directory.open("a")
    file.append(b"x")
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.append(b"y")
    assert file.fileno() == -1


def test_dropped_files_leave_no_descriptor(directory: DiskDirectory) -> None:
    files = made(directory, 5)
    assert len(directory.descriptors) == 5
    del files
    assert len(directory.descriptors) == 0


def test_the_limit_of_the_process_is_learned_when_it_is_met(
    directory: DiskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 18
    files = made(directory, limit)
    for file in files:
        file.was_used = False
    really_open = os.open

    def limited(path: str, flags: int, mode: int = 0o777) -> int:
        if len(directory.descriptors) >= limit:
            raise OSError(errno.EMFILE, "Too many open files")
        return really_open(path, flags, mode)

    monkeypatch.setattr(os, "open", limited)
    files.append(directory.open("one more"))
    assert len(directory.descriptors) <= limit and directory.descriptors.count_max == OPEN_FILES_MIN
    assert [file.append(b"x") for file in files] == [0] * len(files)
