"""What a directory says of the folders in it, also when a crash has torn that."""

from __future__ import annotations

from errno import ENOSPC
from random import Random

import pytest

from tests.sim.disk import SimulatedDisk
from tidelog.log.manifest import MANIFEST, Manifest

ENTRY = ("t-0", "AAAAAAAAAAAAAAAAAAAAAA")


def loaded(disk: SimulatedDisk) -> Manifest:
    manifest = Manifest(disk.root)
    manifest.load()
    return manifest


@pytest.mark.parametrize("torn", [b"\0" * 27, b"t-0 AAAA", b"x y\nt-0"])
def test_a_line_behind_a_torn_one_is_a_line_of_its_own(torn: bytes) -> None:
    disk = SimulatedDisk()
    disk.root.open(MANIFEST).append(torn)
    manifest = loaded(disk)
    assert ENTRY not in manifest
    manifest.add(*ENTRY)
    assert ENTRY in loaded(disk)


def test_what_has_left_is_known_until_it_comes_back() -> None:
    disk = SimulatedDisk()
    manifest = loaded(disk)
    manifest.add(*ENTRY)
    manifest.remove(*ENTRY)
    assert loaded(disk).has_left(*ENTRY) and ENTRY not in loaded(disk)
    loaded(disk).add(*ENTRY)
    assert not loaded(disk).has_left(*ENTRY) and ENTRY in loaded(disk)


def test_what_is_forgotten_is_not_kept_in_memory_and_leaves_the_file_when_it_is_rewritten() -> None:
    disk = SimulatedDisk()
    manifest = loaded(disk)
    other = ("t-1", ENTRY[1])
    for entry in (ENTRY, other, ("t-2", ENTRY[1])):
        manifest.add(*entry)
    manifest.remove(*other)
    manifest.forget(*ENTRY)
    manifest.forget(*other)
    assert ENTRY not in manifest and not manifest.has_left(*other)
    assert ENTRY in loaded(disk)
    manifest.rewrite([])
    assert disk.root.read_whole(MANIFEST) == b""


def test_that_it_came_back_outlasts_a_power_cut() -> None:
    """The directory that it left then says so at once: nobody would have it."""
    for seed in range(20):
        disk = SimulatedDisk()
        manifest = loaded(disk)
        manifest.add(*ENTRY)
        disk.root.sync()
        manifest.remove(*ENTRY)
        manifest.add(*ENTRY)
        disk.crash(Random(seed))
        assert not loaded(disk).has_left(*ENTRY), f"seed {seed}"


def test_a_folder_that_no_line_names_has_not_left() -> None:
    """Its line may have been torn: only what says that a partition has left lets its folder go."""
    disk = SimulatedDisk()
    assert not loaded(disk).has_left(*ENTRY)


def test_a_line_behind_one_that_was_written_in_part_is_a_line_of_its_own() -> None:
    disk = SimulatedDisk()
    manifest = loaded(disk)
    manifest.add(*ENTRY)
    disk.fail_write(code=ENOSPC, partial=0.5)
    with pytest.raises(OSError, match="No space"):
        manifest.remove(*ENTRY)
    disk.repair()
    manifest.add("t-1", ENTRY[1])
    found = loaded(disk)
    assert ENTRY in found and ("t-1", ENTRY[1]) in found and not found.has_left(*ENTRY)


def test_a_line_that_may_not_be_durable_counts_and_is_told() -> None:
    disk = SimulatedDisk()
    manifest = loaded(disk)
    manifest.add(*ENTRY)
    disk.fail_sync()
    assert manifest.remove(*ENTRY) is not None
    assert manifest.has_left(*ENTRY)


def test_a_torn_file_is_whole_once_it_was_rewritten_with_the_same() -> None:
    disk = SimulatedDisk()
    disk.root.open(MANIFEST).append(b"t-0 AAAAAAAAAAAAAAAAAAAAAA\nt-1")
    loaded(disk).rewrite([ENTRY])
    assert disk.root.read_whole(MANIFEST) == b"t-0 AAAAAAAAAAAAAAAAAAAAAA\n"
