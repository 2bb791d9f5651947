"""What a directory says of the folders in it, also when a crash has torn that."""

from __future__ import annotations

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


def test_a_folder_that_no_line_names_has_not_left() -> None:
    """Its line may have been torn: only what says that a partition has left lets its folder go."""
    disk = SimulatedDisk()
    assert not loaded(disk).has_left(*ENTRY)


def test_a_torn_file_is_whole_once_it_was_rewritten_with_the_same() -> None:
    disk = SimulatedDisk()
    disk.root.open(MANIFEST).append(b"t-0 AAAAAAAAAAAAAAAAAAAAAA\nt-1")
    loaded(disk).rewrite([ENTRY])
    assert disk.root.read_whole(MANIFEST) == b"t-0 AAAAAAAAAAAAAAAAAAAAAA\n"
