"""What an interrupted removal or compaction leaves: removed, or finished."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.log.making import NOW_MS, append, make_batch, open_new, read_log, reopen, split
from tests.sim.disk import Killed, SimulatedDirectory, SimulatedDisk
from tidelog.base.files import DiskDirectory
from tidelog.log.leftovers import tidy_leftovers
from tidelog.protocol.batch import stamp


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


# Every state that a crash finds of a swap, Kafka's or ours, of segments 10 and 15, beside 5 and 20.

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
OTHERS = {name(5, ".log"): b"old", name(20, ".log"): b"old", name(20, ".txnindex"): b"old"}
OLD = {name(base, suffix): b"old" for base in (10, 15) for suffix in (*SUFFIXES, ".snapshot")}


def segment(offsets: tuple[int, ...]) -> bytes:
    data = b""
    for offset in offsets:
        batch = make_batch()
        stamp(memoryview(batch), 0, offset, 0)
        data += batch
    return data


NEW = {name(10, suffix): segment((14, 19)) if suffix == ".log" else b"new" for suffix in SUFFIXES}
AFTER = NEW | {name(10, ".snapshot"): b"old"}
Files = dict[str, bytes]


def renamed(files: Files, names: list[str], old: str, new: str) -> list[Files]:
    """The states between here and where all of these have got another mark, this one left out."""
    states = []
    for each in names:
        files = {(each + new if found == each + old else found): files[found] for found in files}
        states.append(files)
    return states


def swap_states() -> tuple[list[Files], list[Files]]:
    """What a crash finds before the decision, and behind it."""
    new_names, old_names = list(NEW), [each for each in OLD if each != name(10, ".snapshot")]
    cleaned = {each + ".cleaned": content for each, content in NEW.items()}
    before = [OTHERS | OLD | dict(list(cleaned.items())[:count]) for count in range(len(cleaned) + 1)]
    before += renamed(before[-1], new_names, ".cleaned", ".swap")
    behind = [before.pop()]
    behind += renamed(behind[-1], old_names, "", ".deleted")
    behind += renamed(behind[-1], new_names, ".swap", "")
    marked = [each + ".deleted" for each in old_names]
    behind += [
        {each: behind[-1][each] for each in behind[-1] if each not in marked[:count]} for count in (1, 4)
    ]
    return before, behind


BEFORE, BEHIND = swap_states()


def found_after(files: Files, kills_after: int | None = None) -> tuple[Files, bool]:
    """What a tidying leaves of them, after one that was killed; and whether it was."""
    disk = SimulatedDisk()
    for each, content in files.items():
        disk.root.open(each).append(content)
    disk.kills_after, was_killed = kills_after, False
    try:
        tidy_leftovers(disk.root)
    except Killed:
        was_killed = True
    folder = disk.kill() if was_killed else disk.root
    tidy_leftovers(folder)
    return content_of(folder), was_killed


def content_of(folder: SimulatedDirectory) -> Files:
    return {each: folder.read_whole(each) or b"" for each in folder.names()}


@pytest.mark.parametrize("place", range(len(BEFORE)))
def test_a_swap_that_is_not_decided_leaves_the_old_segments(place: int) -> None:
    assert_always(BEFORE[place], OTHERS | OLD)


@pytest.mark.parametrize("place", range(len(BEHIND)))
def test_a_decided_swap_is_finished_wherever_it_was_broken_off(place: int) -> None:
    assert_always(BEHIND[place], OTHERS | AFTER)


def assert_always(files: Files, expected: Files) -> None:
    """Also if the tidying is killed at any step, and done once more."""
    was_killed, step = True, 0
    while was_killed:
        found, was_killed = found_after(files, step)
        assert found == expected, f"killed at step {step}"
        step += 1
    assert step > 1 or files == expected


def test_the_output_of_a_later_group_does_not_undo_a_finished_swap() -> None:
    later = {name(20, suffix + ".cleaned"): b"new" for suffix in SUFFIXES}
    for files in BEHIND:
        assert_always(files | later, OTHERS | AFTER)


def test_old_indexes_do_not_outlive_their_log() -> None:
    """An aborted transaction of theirs, whose marker is gone, would hide what its producer wrote next."""
    new = {each + ".swap": content for each, content in NEW.items() if not each.endswith(".txnindex")}
    old = {each: content for each, content in OLD.items() if each != name(10, ".log")}
    found, _ = found_after(OTHERS | old | new)
    assert name(10, ".txnindex") not in found and found[name(10, ".index")] == b"new"
