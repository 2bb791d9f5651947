"""Log directories that fail, and what is reported and kept of each failure."""

from __future__ import annotations

import errno
import os

import pytest

from tests.broker.parts import disk_of, make_kernel, told
from tests.jobs import run_job
from tests.sim.disk import SimulatedDisk
from tidelog.broker.data_plane.disks import Disks, NextNotes, NoteRemoval, NoteSync
from tidelog.broker.kernel import Kernel
from tidelog.broker.standing import Standing
from tidelog.log.directory import RUNNING, LogDirectory
from tidelog.log.trust import Life, read_note


def failure(code: int = errno.EIO) -> OSError:
    return OSError(code, os.strerror(code))


class Claimed:
    """Two directories that are in use by a registered broker."""

    def __init__(self) -> None:
        self.kernel: Kernel = make_kernel()
        numbers = iter(range(1, 100))
        self.kernel.entropy = lambda size: next(numbers).to_bytes(size, "big")
        self.standing = Standing(self.kernel.node_id)
        self.disks = Disks(self.kernel, self.standing, [LogDirectory(SimulatedDisk().root) for _ in range(2)])
        self.disks.claim("cluster", Life())
        self.disks.vouch(1)
        self.standing.has_registered = True
        self.failed: list[LogDirectory] = []
        self.disks.failed.connect(self.failed.append)
        self.first, self.second = self.disks.directories


@pytest.fixture
def claimed() -> Claimed:
    return Claimed()


def test_a_directory_that_fails_is_offline_and_the_other_one_notes_it(claimed: Claimed) -> None:
    disks = claimed.disks
    disks.fail(claimed.first, failure())
    assert claimed.failed == [claimed.first] and disks.working == [claimed.second]
    assert told(claimed.kernel.outbox) == ["directory offline"]
    note = read_note(claimed.second.directory.read_whole(RUNNING))
    assert note is not None and note.failed == (claimed.first.directory_id,)
    (removal,) = claimed.kernel.outbox.take_effects()
    assert isinstance(removal, NoteRemoval)


def test_a_second_failure_says_nothing_new(claimed: Claimed) -> None:
    claimed.disks.fail(claimed.first, failure())
    claimed.kernel.outbox.take_events()
    claimed.disks.fail(claimed.first, OSError("again"))
    assert told(claimed.kernel.outbox) == []


def test_too_many_open_files_fail_no_directory(claimed: Claimed) -> None:
    claimed.disks.fail(claimed.first, failure(errno.EMFILE))
    assert claimed.failed == [] and claimed.first.failure is None
    assert told(claimed.kernel.outbox) == ["file open failed"]


@pytest.mark.parametrize("is_flush", [False, True])
def test_a_full_disk_has_lost_something_only_if_an_fsync_has_failed(claimed: Claimed, is_flush: bool) -> None:
    claimed.disks.fail(claimed.first, failure(errno.ENOSPC), is_flush)
    assert claimed.first.failure is not None and claimed.first.is_lost is is_flush


def test_nothing_is_lost_before_this_process_has_registered(claimed: Claimed) -> None:
    claimed.standing.has_registered = False
    claimed.disks.fail(claimed.first, failure())
    assert claimed.first.failure is not None and not claimed.first.is_lost


def test_the_broker_cannot_go_on_when_the_last_directory_has_failed(claimed: Claimed) -> None:
    for directory in (claimed.first, claimed.second):
        claimed.disks.fail(directory, failure())
    assert claimed.disks.are_all_failed


def test_notes_of_the_next_epoch_count_when_they_are_written_and_last_when_they_are_synced(
    claimed: Claimed,
) -> None:
    disks, outbox, done = claimed.disks, claimed.kernel.outbox, list[str]()
    disks.vouch_later(2, lambda: done.append("durable"))
    (notes,) = outbox.take_effects()
    assert isinstance(notes, NextNotes) and claimed.standing.vouched_epoch == 1
    run_job(notes)
    assert claimed.standing.vouched_epoch == 2 and done == []
    (sync,) = outbox.take_effects()
    assert isinstance(sync, NoteSync)
    run_job(sync)
    assert done == ["durable"] and {each.noted_epoch for each in disks.directories} == {2}


def test_notes_are_written_again_if_a_disk_fails_meanwhile(claimed: Claimed) -> None:
    disks, outbox = claimed.disks, claimed.kernel.outbox
    disks.vouch_later(2, lambda: None)
    (notes,) = outbox.take_effects()
    assert isinstance(notes, NextNotes)
    notes.run()
    disks.fail(claimed.first, failure())
    outbox.take_effects()
    notes.on_done(None)
    (again,) = outbox.take_effects()
    assert isinstance(again, NextNotes) and again.failed == [claimed.first.directory_id]
    assert claimed.standing.vouched_epoch == 1


def test_a_disk_that_cannot_keep_the_next_note_fails_and_the_other_one_goes_on(claimed: Claimed) -> None:
    disk_of(claimed.disks).refuse(lambda path: True, errno.EIO)
    claimed.disks.vouch_later(2, lambda: None)
    (notes,) = claimed.kernel.outbox.take_effects()
    assert isinstance(notes, NextNotes)
    run_job(notes)
    assert claimed.failed == [claimed.first]
    assert claimed.second.failure is None
