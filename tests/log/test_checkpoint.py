"""Checkpoint files: whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.base.files import DiskDirectory
from tidelog.log.checkpoint import read_offsets, read_rows, write_offsets

NAME = "recovery-point-offset-checkpoint"


def test_offsets_are_written_in_kafka_s_form_and_read_back(tmp_path: Path) -> None:
    directory = DiskDirectory(str(tmp_path))
    offsets = {("a-b.c", 0): 5, ("t", 12): 2**62}
    write_offsets(directory, NAME, offsets)
    assert (tmp_path / NAME).read_text() == f"0\n2\na-b.c 0 5\nt 12 {2**62}\n"
    assert read_offsets(directory, NAME) == offsets
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0",
        b"0\n",
        b"0\n1\n",
        b"0\n1\nt 0 55",
        b"0\n2\nt 0 5\n",
        b"0\n1\nt 0 5\nu 0 6\n",
        b"1\n1\nt 0 5\n",
        b"0\nx\nt 0 5\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 5 6\n",
        b"0\n1\nt zero 5\n",
        b"0\n1\nt 0 five\n",
        b"\xff\xfe\n",
        bytes(40),
    ],
)
def test_a_bad_file_counts_as_no_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    assert read_offsets(DiskDirectory(str(tmp_path)), NAME) == {}


def test_a_missing_file_is_told_from_an_empty_list(tmp_path: Path) -> None:
    directory = DiskDirectory(str(tmp_path))
    assert read_rows(directory, NAME, 3) is None
    write_offsets(directory, NAME, {})
    assert read_rows(directory, NAME, 3) == []
