"""Checkpoint files: whole or not at all."""

from __future__ import annotations

from pathlib import Path

from tidelog.base.files import DiskDirectory
from tidelog.log.checkpoint import read_offsets, write_offsets

NAME = "recovery-point-offset-checkpoint"


def test_offsets_are_written_in_kafka_s_form_and_read_back(tmp_path: Path) -> None:
    directory = DiskDirectory(str(tmp_path))
    offsets = {("a-b.c", 0): 5, ("t", 12): 2**62}
    write_offsets(directory, NAME, offsets)
    assert (tmp_path / NAME).read_text() == f"0\n2\na-b.c 0 5\nt 12 {2**62}\n"
    assert read_offsets(directory, NAME) == offsets
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_missing_file_holds_no_offsets(tmp_path: Path) -> None:
    assert read_offsets(DiskDirectory(str(tmp_path)), NAME) == {}
