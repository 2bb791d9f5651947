"""Partitions that change their directory, by themselves: copies on threads, and what a failure leaves."""

from __future__ import annotations

import errno

import pytest

from tests.broker.parts import (
    append,
    disk_of,
    make_disks,
    make_kernel,
    make_partitions,
    make_topic,
    told,
)
from tests.jobs import run_job
from tidelog.broker.data_plane.checkpoints import Checkpoint, Checkpoints
from tidelog.broker.data_plane.relocation import CopyRequest, Relocation
from tidelog.broker.outbox import Job, Removal
from tidelog.broker.standing import Standing


class Moving:
    """A partition with three records in the first of two directories."""

    def __init__(self) -> None:
        self.kernel = make_kernel()
        self.disks = make_disks(self.kernel, 2)
        partitions = make_partitions(self.kernel, self.disks, make_topic())
        (self.partition,) = partitions.all()
        self.home, self.target = self.disks.directories
        self.checkpoints = Checkpoints(self.kernel, Standing(1), self.disks, partitions)
        self.relocation = Relocation(self.kernel, self.disks, partitions, self.checkpoints)
        self.removals: list[Removal] = []
        append(self.partition, 3)

    def jobs(self) -> list[Job]:
        effects = self.kernel.outbox.take_effects()
        self.removals += [effect for effect in effects if isinstance(effect, Removal)]
        return [effect for effect in effects if isinstance(effect, Job)]

    def run_copies(self) -> None:
        while jobs := [job for job in self.jobs() if isinstance(job, CopyRequest)]:
            for job in jobs:
                run_job(job)
            self.relocation.advance()

    def write_checkpoints(self) -> None:
        self.checkpoints.write_urgent()
        for job in self.jobs():
            if isinstance(job, Checkpoint):
                run_job(job)

    def logs_in(self, place: int) -> list[str]:
        return [name for name in self.disks.directories[place].directory.names() if name.startswith("t-0")]


@pytest.fixture
def moving() -> Moving:
    return Moving()


def test_a_copy_takes_the_place_of_the_log_when_it_has_everything(moving: Moving) -> None:
    moving.relocation.move(moving.partition, moving.target)
    assert moving.partition.directory is moving.home, "the copy has not been made"
    append(moving.partition)
    moving.run_copies()
    assert moving.partition.directory is moving.target and moving.partition.log.end_offset == 4
    assert not moving.relocation.moves


def test_the_old_folder_stays_until_the_checkpoints_know_the_new_one(moving: Moving) -> None:
    moving.relocation.move(moving.partition, moving.target)
    moving.run_copies()
    assert moving.relocation.is_leaving(moving.partition) and moving.logs_in(0) == ["t-0"]
    moving.write_checkpoints()
    moving.run_copies()
    assert not moving.relocation.is_leaving(moving.partition)
    assert [removal.names for removal in moving.removals] == [moving.logs_in(0)]
    assert told(moving.kernel.outbox) == ["partition moved"]


def test_a_copy_that_fails_leaves_the_partition_and_is_removed(moving: Moving) -> None:
    moving.relocation.move(moving.partition, moving.target)
    (copy,) = moving.jobs()
    copy.on_done(OSError(errno.ENOSPC, "No space left on device"))
    moving.run_copies()
    assert moving.partition.directory is moving.home and not moving.relocation.moves
    assert told(moving.kernel.outbox) == ["partition move failed"]
    assert [removal.names for removal in moving.removals] == [moving.logs_in(1)]


def test_a_move_that_is_called_off_ends_when_its_copy_does(moving: Moving) -> None:
    moving.relocation.move(moving.partition, moving.target)
    (copy,) = moving.jobs()
    moving.relocation.cancel(moving.partition)
    assert not moving.jobs(), "its folder is in use"
    run_job(copy)
    moving.run_copies()
    assert moving.partition.directory is moving.home
    assert [removal.names for removal in moving.removals] == [moving.logs_in(1)]


def test_a_directory_that_fails_ends_the_moves_out_of_it_and_into_it(moving: Moving) -> None:
    moving.relocation.move(moving.partition, moving.target)
    moving.disks.failed.connect(moving.relocation.cancel_touching)
    moving.disks.fail(moving.target, OSError(errno.EIO, "Input/output error"))
    assert moving.relocation.moves.of(moving.partition) is None


def test_an_old_home_that_cannot_be_synced_has_failed(moving: Moving) -> None:
    moving.relocation.move(moving.partition, moving.target)
    moving.run_copies()
    moving.write_checkpoints()
    disk_of(moving.disks, 0).fail_sync()
    moving.run_copies()
    assert moving.home.failure is not None and moving.target.failure is None
