"""In which directory a partition lives, and what becomes of folders in its way."""

from __future__ import annotations

import pytest

from tests.broker.parts import TOPIC_ID, make_topic
from tests.sim.disk import SimulatedDisk
from tidelog.broker.data_plane.homes import DirectoryFailed, Homes
from tidelog.cluster.controller import encode_id
from tidelog.log.directory import LogDirectory, write_topic_id
from tidelog.log.format.names import DELETE_MARK

NAME = "t-0"
OTHER_ID = bytes(reversed(range(16)))
TOPIC = make_topic()


class Row:
    """Log directories side by side."""

    def __init__(self, count: int) -> None:
        self.directories = [LogDirectory(SimulatedDisk().root) for _ in range(count)]
        self.homes = Homes(1, self.directories)

    def put(self, place: int, topic_id: bytes = TOPIC_ID, size: int = 0, name: str = NAME) -> None:
        """A folder of a partition with so many bytes in its log."""
        folder = self.directories[place].directory.folder(name)
        write_topic_id(folder, encode_id(topic_id))
        folder.open("00000000000000000000.log").append(b"x" * size)

    def find(self, is_new: bool = False) -> int:
        return self.directories.index(self.homes.find(NAME, TOPIC, 0, is_new).directory)

    def names(self, place: int) -> list[str]:
        return self.directories[place].directory.names()


def test_a_new_partition_goes_where_the_fewest_are() -> None:
    row = Row(3)
    for directory, count in zip(row.directories, (2, 1, 2), strict=True):
        directory.partition_count = count
    assert row.find(is_new=True) == 1


def test_a_folder_is_found_wherever_it_is() -> None:
    row = Row(3)
    row.put(2)
    assert row.find() == 2 and row.names(2) == [NAME]


def test_a_folder_of_a_deleted_topic_of_that_name_makes_room() -> None:
    row = Row(1)
    row.put(0, OTHER_ID)
    row.directories[0].start_offsets["t", 0] = 40
    assert row.homes.find(NAME, TOPIC, 0, is_new=True).folder is None
    ((directory, stray),) = row.homes.take_strays()
    assert directory is row.directories[0].directory and stray.endswith(DELETE_MARK)
    assert row.names(0) == [stray] and row.directories[0].start_offsets == {}


def test_of_two_folders_the_longer_one_is_right() -> None:
    row = Row(2)
    row.put(0, size=10)
    row.put(1, size=20)
    row.directories[0].start_offsets["t", 0] = 7
    assert row.find() == 1
    assert row.directories[1].start_offsets["t", 0] == 7, "where the log starts is not forgotten"
    assert [stray for _, stray in row.homes.take_strays()] == row.names(0)


def test_a_folder_that_the_partition_has_left_is_not_its_home() -> None:
    row = Row(2)
    row.put(0, size=20)
    row.put(1, size=10)
    row.directories[0].manifest.add(NAME, encode_id(TOPIC_ID))
    row.directories[0].manifest.remove(NAME, encode_id(TOPIC_ID))
    assert row.find() == 1


def test_a_folder_that_may_be_on_a_failed_disk_is_not_begun_elsewhere() -> None:
    row = Row(2)
    row.directories[0].failure = "broken"
    with pytest.raises(DirectoryFailed, match="broken"):
        row.find()
    assert row.find(is_new=True) == 1


def test_folders_of_other_brokers_go_and_those_of_unknown_topics_are_kept() -> None:
    row = Row(1)
    moved = make_topic("moved")
    moved.partitions[0].replicas = [2, 3]
    row.put(0, name="moved-0")
    row.put(0, OTHER_ID, name="unknown-0")
    known = {row.directories[0]: set[str]()}
    assert row.homes.set_strays_aside({TOPIC_ID: moved}, known, is_all=True) == []
    assert [event.name for event in row.homes.take_events()] == [
        "log of reassigned replica removed",
        "orphaned log set aside",
    ]
    removed = [stray for _, stray in row.homes.take_strays()]
    assert len(removed) == 1 and removed[0].startswith("moved-0")
    assert len(row.names(0)) == 2 and "unknown-0" not in row.names(0)


def test_nothing_is_removed_from_a_directory_that_is_ahead_of_its_store() -> None:
    row = Row(1)
    row.put(0, OTHER_ID)
    row.directories[0].is_ahead = True
    row.find(is_new=True)
    assert row.homes.take_strays() == [] and len(row.names(0)) == 1
