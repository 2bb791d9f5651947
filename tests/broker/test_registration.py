"""A broker whose session has ended comes back under a new epoch, and nobody waits for its disks meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wire.harness import Harness
from tidelog.base.files import DiskDirectory
from tidelog.broker.data_plane.disks import NextNotes, NoteSync
from tidelog.broker.outbox import Job
from tidelog.cluster.facts import NOBODY
from tidelog.cluster.store import SessionEnded
from tidelog.log.directory import RUNNING
from tidelog.log.trust import Note, read_note


class Lapsed(Harness):
    """A broker with two log directories; the jobs that write notes are held."""

    def __init__(self, path: Path) -> None:
        self.jobs: list[Job] = []
        super().__init__(path / "a", path / "b")
        self.create_topic("t", partitions=2)
        self.broker.on_store_event(SessionEnded())
        self.settle()

    def _start(self, job: Job) -> None:
        if isinstance(job, NextNotes | NoteSync):
            self.jobs.append(job)
        else:
            super()._start(job)

    def end_job(self) -> None:
        (job,) = self.jobs
        self.jobs.clear()
        job.run()
        job.on_done(None)
        self.settle()

    def noted(self) -> list[Note | None]:
        return [read_note(home.directory.read_whole(RUNNING)) for home in self.broker.disks.directories]

    def epochs(self) -> list[int]:
        return [note.broker_epoch if note is not None else -1 for note in self.noted()]


@pytest.fixture
def lapsed(tmp_path: Path) -> Lapsed:
    return Lapsed(tmp_path)


def test_notes_have_the_epoch_and_last_before_the_store_has_it(lapsed: Lapsed) -> None:
    broker, before = lapsed.broker, lapsed.broker.standing.epoch
    for noted in (before, before + 1):  # written beside the old ones, then in their places and synced
        assert not broker.standing.is_registered and broker.image.broker_epochs[1].epoch == before
        assert lapsed.epochs() == [noted, noted]
        lapsed.end_job()
    assert broker.standing.is_registered and broker.standing.epoch == before + 1 and lapsed.jobs == []
    assert {*broker.image.broker_epochs[1].notes.values()} == {before + 1}


def test_who_decides_is_unknown_from_a_lapse_until_the_store_was_read(lapsed: Lapsed) -> None:
    control, image = lapsed.broker.control, lapsed.broker.image
    assert (control.controller_id, control.is_controller, control.deciding_id) == (NOBODY, False, NOBODY)
    assert image.controller_id == 1, "the image has what was seen last"
    lapsed.end_job()
    lapsed.end_job()
    assert (control.controller_id, control.is_controller, control.deciding_id) == (1, True, 1)


def test_a_lapse_syncs_nothing_on_the_loop(lapsed: Lapsed, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append("fsync"))
    monkeypatch.setattr(DiskDirectory, "sync", lambda folder, name="": synced.append("sync"))
    while lapsed.jobs:
        (job,) = lapsed.jobs
        lapsed.jobs.clear()
        job.run()
        assert synced, "by the job"
        synced.clear()
        job.on_done(None)
        lapsed.settle()
        assert synced == []
    lapsed.broker.on_store_event(SessionEnded())
    lapsed.settle()
    assert synced == [] and lapsed.broker.standing.has_registered


def test_a_lapse_while_notes_are_written_waits_for_those(lapsed: Lapsed) -> None:
    epoch = lapsed.broker.standing.epoch
    lapsed.broker.on_store_event(SessionEnded())
    lapsed.settle()
    lapsed.end_job()
    lapsed.end_job()
    assert lapsed.broker.standing.is_registered and lapsed.broker.standing.epoch == epoch + 1


@pytest.mark.parametrize("steps", [0, 1])
def test_a_disk_that_fails_while_notes_are_written_is_not_vouched_for(lapsed: Lapsed, steps: int) -> None:
    for _ in range(steps):
        lapsed.end_job()
    failed, other = lapsed.broker.disks.directories
    (job,) = lapsed.jobs
    lapsed.jobs.clear()
    lapsed.broker.disks.fail(failed, OSError(5, "Input/output error"))
    job.run()
    job.on_done(None)
    lapsed.settle()
    while lapsed.jobs:
        lapsed.end_job()
    first, second = lapsed.noted()
    assert first is None, "also if the thread wrote one after that"
    assert second is not None and second.failed == (failed.directory_id,)
    assert lapsed.broker.standing.is_registered
    assert lapsed.broker.image.broker_epochs[1].notes[other.directory_id] == second.broker_epoch


def test_a_directory_that_is_full_keeps_its_older_note(
    lapsed: Lapsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, other = lapsed.broker.disks.directories
    before = full.noted_epoch

    def write_next_note(*values: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(full, "write_next_note", write_next_note)
    lapsed.end_job()
    lapsed.end_job()
    assert lapsed.epochs() == [before, before + 1] and full.failure is not None
    notes = lapsed.broker.image.broker_epochs[1].notes
    assert (notes[full.directory_id], notes[other.directory_id]) == (before, before + 1)
