"""The disk of the chaos tests is full when it is told to be, and not any more when it is told so."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from tests.chaos.disk import SmallDisk

PIECE = b"x" * 4_096


def test_a_full_disk_takes_nothing_and_an_emptied_one_does(tmp_path: Path) -> None:
    disk = SmallDisk.open(tmp_path / "disk")
    if disk is None:
        pytest.skip("this system gives users no namespaces")
    with disk, open(disk.seen / "file", "wb", buffering=0) as file:
        file.write(PIECE * 100)
        disk.fill()
        with pytest.raises(OSError) as refused:
            for _ in range(100):
                file.write(PIECE)
                os.fsync(file.fileno())
        assert refused.value.errno == errno.ENOSPC
        disk.empty()
        assert file.write(PIECE) == len(PIECE)
        listed = subprocess.run([*disk.inside, "ls", disk.folder], capture_output=True, text=True, check=True)
        assert listed.stdout == "file\n"
    assert not disk.seen.exists()
