"""Reads that do not wait for the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tidelog.base.descriptors import Descriptors
from tidelog.base.files import Cold, DiskDirectory, DiskFile
from tidelog.base.limits import PAGE_SIZE

DATA = bytes(range(256)) * 100


@pytest.fixture
def file(tmp_path: Path) -> DiskFile:
    file = DiskDirectory(str(tmp_path), Descriptors()).open("pages")
    file.append(DATA)
    return file


@pytest.mark.parametrize(
    "position, size",
    [(0, 10), (5, PAGE_SIZE), (7, PAGE_SIZE + 1), (len(DATA) - 3, 100), (len(DATA), 5), (0, len(DATA) + 9)],
)
def test_what_is_in_memory_is_read_as_ever(file: DiskFile, position: int, size: int) -> None:
    assert bytes(file.read_now(position, size)) == file.read(position, size)


def test_a_file_that_is_shorter_than_it_was_is_not_cold(file: DiskFile) -> None:
    os.truncate(os.path.join(file.folder, file.name), 100)
    assert bytes(file.read_now(90, 50)) == DATA[90:100] and bytes(file.read_now(500, 50)) == b""


@pytest.mark.parametrize("warm_size", [0, 7])
def test_what_is_not_in_memory_is_cold(
    file: DiskFile, monkeypatch: pytest.MonkeyPatch, warm_size: int
) -> None:
    def preadv(descriptor: int, buffers: Any, position: int, flags: int) -> int:
        if position >= warm_size:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return warm_size - position

    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(Cold) as cold:
        file.read_now(0, 100)
    assert (cold.value.file, cold.value.position, cold.value.size) == (file, 0, 100)
    file._directory.descriptors.count_max = 0
    assert file.read_now(0, 100) == DATA[:100], "nothing more can be pinned: it waits"


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_that_cannot_say_is_waited_for_and_a_failed_disk_is_told(
    file: DiskFile, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def preadv(*_: Any) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "preadv", preadv)
    if code == errno.EIO:
        with pytest.raises(OSError, match="Input/output"):
            file.read_now(0, 100)
        return
    assert file.read_now(0, 100) == DATA[:100] and not file._directory.descriptors.tells_cold
