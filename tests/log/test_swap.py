"""New segments take the place of old ones: beside readers and appends, whenever a crash comes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.log.cleaning import write_cleaned
from tests.log.making import (
    NOW_MS,
    append,
    append_marker,
    cut,
    find_timestamp,
    flush,
    make_batch,
    make_settings,
    read_bytes,
    split,
)
from tests.sim.disk import Killed, SimulatedDirectory, SimulatedDisk
from tidelog.log.compaction.cleaning import remove_cleaned
from tidelog.log.compaction.request import NewSegment
from tidelog.log.log import Log
from tidelog.log.recovery import open_log
from tidelog.log.swap import Sources, carry_out, prepare
from tidelog.log.time_search import TimeSearch
from tidelog.protocol.records import Marker

FOLDER = "t-0"
BASES = [0, 6, 12, 18, 24]
GROUPS = [[0, 6], [12]]
SETTINGS = make_settings(cleanup_policy="compact", index_interval_bytes=100)


def filled(folder: SimulatedDirectory) -> Log:
    """Five segments of six batches of one record, the fifth one active; in the second and in the third a
    transaction was aborted. All is flushed."""
    log, _ = open_log(folder, SETTINGS, NOW_MS)
    for base in BASES:
        if base:
            log.roll(NOW_MS)
        for place in range(6):
            is_marker = base in (6, 12) and place == 4
            if is_marker:
                append_marker(log, Marker.ABORT, 9)
            elif base in (6, 12) and place == 2:
                append(log, make_batch(producer_id=9, sequence=base // 6 - 1, transactional=True))
            else:
                append(log, make_batch(key=b"%d" % place, timestamp=NOW_MS + base + place))
    flush(log)
    assert log.bases == BASES
    return log


def is_kept(offset: int) -> bool:
    return offset % 2 == 1 or offset in (8, 10, 14, 16)


def offsets_in(log: Log) -> list[int]:
    """What a reader finds, as a consumer reads."""
    found: list[int] = []
    offset = log.start_offset
    while data := read_bytes(log, offset):
        found += [header.base_offset for header, _ in split(data)]
        offset = found[-1] + 1
    return found


OLD = list(range(30))
HALF = [*filter(is_kept, range(12)), *range(12, 30)]
WHOLE = [*filter(is_kept, range(18)), *range(18, 30)]
STATES = {tuple(OLD): BASES, tuple(HALF): [0, 12, 18, 24], tuple(WHOLE): [0, 12, 18, 24]}


def swap(log: Log, new: NewSegment) -> list[str]:
    assert prepare(log.directory, new)
    log.directory.sync()
    return carry_out(log, new, NOW_MS)


def test_a_swap_shows_the_new_segments_and_keeps_what_is_appended_meanwhile() -> None:
    log = filled(SimulatedDisk().root.folder(FOLDER))
    sources = Sources(log, 4)
    made = write_cleaned(log, GROUPS, is_kept)
    append(log, make_batch(key=b"new"))
    for new, expected in zip(made, (HALF, WHOLE), strict=True):
        assert sources.are_unchanged()
        swap(log, new)
        sources.note_swapped(new)
        assert offsets_in(log) == [*expected, 30]
        assert log.bases == STATES[tuple(expected)]
    assert sources.are_unchanged()
    assert [entry.last_offset for entry in log.aborted_between(0, 30)] == [10, 16]
    flush(log)
    assert find_timestamp(log, NOW_MS + 2, 31) == (NOW_MS + 3, 3)


def test_a_reader_that_has_a_slice_gets_the_bytes_it_was_promised() -> None:
    log = filled(SimulatedDisk().root.folder(FOLDER))
    slice_ = log.read(0, 30, 1 << 20)
    assert slice_ is not None
    expected = slice_.read()
    for new in write_cleaned(log, GROUPS, is_kept):
        for name in swap(log, new):
            log.directory.remove(name)
    assert slice_.is_valid() and slice_.read() == expected
    slice_.release()


def test_old_files_are_closed_before_they_lose_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose descriptor others need is opened again by its name."""
    log = filled(SimulatedDisk().root.folder(FOLDER))
    read_bytes(log, 0)
    new, _ = write_cleaned(log, GROUPS, is_kept)
    files = [file for segment in log.segments[:2] for file in segment.open_files()]
    rename = SimulatedDirectory.rename

    def renames(folder: SimulatedDirectory, old: str, new: str) -> None:
        assert not [file.name for file in files if file.name == old and file.is_open]  # type: ignore[attr-defined]
        rename(folder, old, new)

    monkeypatch.setattr(SimulatedDirectory, "rename", renames)
    swap(log, new)
    assert files


def test_a_search_by_time_that_is_under_way_begins_again() -> None:
    """It has come to a segment that is in the middle of another one now."""
    log = filled(SimulatedDisk().root.folder(FOLDER))
    search = TimeSearch(log, NOW_MS + 11, 30)
    search._base_offset = 6  # where a search has come to that is done with the first segment
    for new in write_cleaned(log, GROUPS, is_kept):
        swap(log, new)
    while not search.step():
        pass
    assert search.found == (NOW_MS + 11, 11)


def test_a_flush_that_began_before_a_swap_ends_well_after_it() -> None:
    log = filled(SimulatedDisk().root.folder(FOLDER))
    made = write_cleaned(log, [[12, 18]], is_kept)
    append(log, make_batch())
    job = log.begin_flush()
    swap(log, made[0])
    job.run()
    job.release()
    log.end_flush(job, NOW_MS)
    assert log.recovery_point == 31


Change = Callable[[Log], object]


def _cut_and_write_again(log: Log) -> None:
    """The same bases and sizes, and other records."""
    size = log.segments[3].size
    cut(log, 20)
    for place in range(4):
        append(log, make_batch(key=b"%d" % place))
    log.roll(NOW_MS)
    assert log.segments[3].size == size


CHANGES: dict[str, Change] = {
    "cut": _cut_and_write_again,
    "cut to nothing": lambda log: cut(log, 0),
    "retention": lambda log: log.remove_segments(1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_the_segments_is_noticed(change: str) -> None:
    log = filled(SimulatedDisk().root.folder(FOLDER))
    sources = Sources(log, 4)
    CHANGES[change](log)
    assert not sources.are_unchanged()


def test_what_is_appended_and_rolled_is_no_change() -> None:
    log = filled(SimulatedDisk().root.folder(FOLDER))
    sources = Sources(log, 4)
    append(log, make_batch())
    log.roll(NOW_MS)
    assert sources.are_unchanged()


def test_files_that_are_not_those_of_the_round_are_not_swapped() -> None:
    log = filled(SimulatedDisk().root.folder(FOLDER))
    new, _ = write_cleaned(log, GROUPS, is_kept)
    assert not prepare(log.directory, new._replace(size=new.size + 1))
    assert offsets_in(log) == OLD
    remove_cleaned(log.directory)
    assert not [name for name in log.directory.names() if name.endswith(".cleaned")]


def test_what_a_dead_round_writes_late_below_does_not_undo_a_swap() -> None:
    """Beside it, recovery would take a swap that was decided for unfinished."""
    log = filled(SimulatedDisk().root.folder(FOLDER))
    made = write_cleaned(log, [[12]], is_kept)
    log.directory.open(f"{6:020}.index.cleaned")
    prepare(log.directory, made[0])
    assert f"{6:020}.index.cleaned" not in log.directory.names()


class Crash:
    """Two swaps of one round, killed after so many steps that change the disk."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.decided = 0

    def live(self, kills_after: int | None) -> bool:
        """Whether it was killed."""
        log = filled(self.disk.root.folder(FOLDER))
        self.disk.root.sync()
        self.disk.kills_after = kills_after
        try:
            made = write_cleaned(log, GROUPS, is_kept)
            removed: list[str] = []
            for new in made:
                prepare(log.directory, new)
                log.directory.sync()
                self.decided += 1
                removed += carry_out(log, new, NOW_MS)
            log.clean_to(18)
            flush(log)
            for name in removed:
                log.directory.remove(name)
        except Killed:
            return True
        return False

    def check(self, folder: SimulatedDirectory, recovery_point: int) -> None:
        log, report = open_log(folder, SETTINGS, NOW_MS, recovery_point)
        found = offsets_in(log)
        assert tuple(found) in STATES and log.bases == STATES[tuple(found)], found
        assert found in [OLD, HALF, WHOLE][self.decided :], "a decided swap was undone"
        assert not report.problems and report.cut_bytes == 0, report
        assert [entry.last_offset for entry in log.aborted_between(0, 30)] == [10, 16]
        names = folder.names()
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        snapshots = [name for name in names if name.endswith(".snapshot")]
        assert [int(name[:20]) for name in snapshots] == [
            *log.bases[1:],
            *([30] if 30 not in log.bases else []),
        ]


def test_whatever_moment_a_crash_comes_at_the_log_is_the_old_or_the_new() -> None:
    step, was_killed = 0, True
    while was_killed:
        for seed in range(12):
            crash = Crash()
            was_killed = crash.live(step)
            root = crash.disk.kill() if seed == 0 else crash.disk.crash(Random(seed))
            try:
                crash.check(root.folder(FOLDER), Random(seed).choice((0, 8, 30)))
            except Exception as failure:
                failure.add_note(f"step {step}, seed {seed}")
                raise
        step += 1
    assert step > 30
