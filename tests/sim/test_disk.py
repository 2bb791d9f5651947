"""The simulated disk itself: it must lose what a real one may lose, and nothing else."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from tests.sim.disk import SimulatedDirectory, SimulatedDisk

SEED_COUNT = 60


def outcomes(prepare: Callable[[SimulatedDirectory], None], name: str = "a") -> set[bytes | None]:
    """What a file may hold after a crash, over many crashes."""
    found = set()
    for seed in range(SEED_COUNT):
        disk = SimulatedDisk()
        prepare(disk.root)
        found.add(disk.crash(Random(seed)).read_whole(name))
    return found


def test_synced_bytes_under_a_synced_name_survive_every_crash() -> None:
    def prepare(root: SimulatedDirectory) -> None:
        file = root.open("a")
        file.append(b"durable")
        file.sync()
        root.sync()

    assert outcomes(prepare) == {b"durable"}


def test_unsynced_bytes_are_lost_torn_zeroed_or_garbled() -> None:
    def prepare(root: SimulatedDirectory) -> None:
        file = root.open("a")
        file.append(b"durable")
        file.sync()
        root.sync()
        file.append(b"-not-yet")

    found = outcomes(prepare)
    assert all(content is not None and content.startswith(b"durable") for content in found)
    assert {b"durable", b"durable-not-yet", b"durable" + bytes(8)} < found
    assert len(found) > 8


def test_a_name_that_was_not_synced_may_vanish_with_its_bytes() -> None:
    def prepare(root: SimulatedDirectory) -> None:
        file = root.open("a")
        file.append(b"x")
        file.sync()

    assert outcomes(prepare) == {None, b"x"}


def test_a_rename_that_was_not_synced_may_revert() -> None:
    def prepare(root: SimulatedDirectory) -> None:
        root.replace_whole("a", b"x")
        root.rename("a", "b")

    assert outcomes(prepare) == {b"x", None}
    assert outcomes(prepare, "b") == {None, b"x"}


def test_a_removal_that_was_not_synced_may_revert() -> None:
    def prepare(root: SimulatedDirectory) -> None:
        root.replace_whole("a", b"x")
        root.remove("a")

    assert outcomes(prepare) == {b"x", None}


def test_a_durable_replacement_is_whole_after_every_crash() -> None:
    def prepare(root: SimulatedDirectory) -> None:
        root.replace_whole("a", b"old")
        root.replace_whole("a", b"new")

    assert outcomes(prepare) == {b"new"}


def test_a_replacement_that_was_not_synced_may_leave_the_name_without_its_bytes() -> None:
    def prepare(root: SimulatedDirectory) -> None:
        root.replace_whole("a", b"old")
        root.replace_whole("a", b"new", durable=False)

    assert {b"old", b"new", b""} < outcomes(prepare)


def test_a_truncation_that_was_not_synced_may_revert() -> None:
    def prepare(root: SimulatedDirectory) -> None:
        root.replace_whole("a", b"0123456789")
        root.open("a").truncate(4)

    assert outcomes(prepare) == {b"0123", b"0123456789"}


def test_an_old_end_may_come_back_behind_what_was_written_over_a_truncation() -> None:
    def prepare(root: SimulatedDirectory) -> None:
        root.replace_whole("a", b"0123456789")
        file = root.open("a")
        file.truncate(4)
        file.append(b"new")

    assert {b"0123", b"0123new", b"0123456789", b"0123new789", b"0123n56789"} < outcomes(prepare)


def test_bytes_dropped_by_a_failed_fsync_stay_lost_though_the_next_one_succeeds() -> None:
    def prepare(root: SimulatedDirectory) -> None:
        file = root.open("a")
        root.sync()
        file.append(b"lost")
        root.disk.fail_sync()
        with pytest.raises(OSError):
            file.sync()
        file.append(b"kept")
        file.sync()
        assert file.read(0, 8) == b"lostkept"

    assert outcomes(prepare) == {bytes(4) + b"kept"}


def test_a_full_disk_takes_a_part_and_then_nothing_more() -> None:
    disk = SimulatedDisk()
    file = disk.root.open("a")
    file.append(b"first")
    disk.fail_write(after=0, code=errno.ENOSPC, partial=0.5)
    for _ in range(2):
        with pytest.raises(OSError) as raised:
            file.append(b"second")
        assert raised.value.errno == errno.ENOSPC
    assert (file.size, disk.root.read_whole("a")) == (5, b"firstsecsec")


def test_a_handle_from_before_the_crash_is_dead() -> None:
    disk = SimulatedDisk()
    file = disk.root.open("a")
    disk.crash(Random(0))
    with pytest.raises(AssertionError):
        file.read(0, 1)
