"""What an interrupted removal or compaction leaves: removed, or finished."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.log.making import NOW_MS, append, make_batch, open_new, read_log, reopen, split
from tidelog.base.files import DiskDirectory
from tidelog.log.leftovers import tidy_leftovers


def name(base: int, suffix: str) -> str:
    return f"{base:020}{suffix}"


def filled(folder: Path) -> bytes:
    """Three segments of two batches each."""
    log = open_new(folder)
    for number in range(6):
        if number in (2, 4):
            log.roll(NOW_MS)
        append(log, make_batch())
    data = read_log(log)
    log.close(clean=True)
    return data


@pytest.mark.parametrize(
    "leftover",
    [
        name(0, ".log.deleted"),
        name(2, ".snapshot.deleted"),
        "leader-epoch-checkpoint.tmp",
        name(0, ".log.cleaned"),
        name(0, ".index.cleaned"),
        name(7, ".index"),
        name(7, ".timeindex"),
        name(7, ".txnindex"),
        name(2, ".index.swap"),
    ],
)
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_leftover_is_removed_and_the_log_is_as_it_was(
    tmp_path: Path, leftover: str, is_clean: bool
) -> None:
    data = filled(tmp_path)
    (tmp_path / leftover).write_bytes(b"left over")
    log, _ = reopen(tmp_path, 6, 0, is_clean)
    assert read_log(log) == data
    assert not (tmp_path / leftover).exists()


def test_a_finished_swap_replaces_the_segments_in_its_range(tmp_path: Path) -> None:
    data = filled(tmp_path)
    batches = [batch for _, batch in split(data)]
    (tmp_path / name(0, ".log.swap")).write_bytes(batches[1] + batches[3])
    log, _ = reopen(tmp_path, 0, 0, False, cleanup_policy="compact")
    assert log.bases == [0, 4]
    assert read_log(log) == b"".join([batches[1], batches[3], batches[4], batches[5]])
    assert not list(tmp_path.glob("*.swap"))


def test_a_swap_above_an_unfinished_output_is_unfinished_too(tmp_path: Path) -> None:
    data = filled(tmp_path)
    shutil.copy(tmp_path / name(2, ".log"), tmp_path / name(2, ".log.swap"))
    (tmp_path / name(0, ".log.cleaned")).write_bytes(b"")
    log, _ = reopen(tmp_path, 0, 0, False, cleanup_policy="compact")
    assert read_log(log) == data and log.bases == [0, 2, 4]


def test_files_of_other_kinds_are_left_alone(tmp_path: Path) -> None:
    for kept in ("partition.metadata", "leader-epoch-checkpoint", "123.index", "notes.txt"):
        (tmp_path / kept).touch()
    tidy_leftovers(DiskDirectory(str(tmp_path)))
    assert len(list(tmp_path.iterdir())) == 4
