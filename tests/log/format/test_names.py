"""Names of files and folders: what they say, and which ones say nothing."""

from __future__ import annotations

import pytest

from tidelog.log.format.names import (
    SEGMENT_SUFFIXES,
    base_in_name,
    deleted_folder_name,
    file_name,
    folder_name,
    future_folder_name,
    offset_in_name,
    partition_in_name,
    stray_folder_name,
)


def test_only_twenty_digits_make_an_offset() -> None:
    assert offset_in_name(f"{12:020}.log", ".log") == 12
    others = (
        "12.log",
        f"{12:020}.log.deleted",
        "x" * 20 + ".log",
        "²" * 20 + ".log",
        f"{12:020}.index",
        "",
    )
    for other in others:
        assert offset_in_name(other, ".log") is None
    assert offset_in_name(f"{12:020}.log.swap", ".log.swap") == 12


@pytest.mark.parametrize("suffix", SEGMENT_SUFFIXES)
def test_every_file_of_a_segment_is_known_by_its_name(suffix: str) -> None:
    assert base_in_name(file_name(2**62, suffix)) == 2**62
    assert base_in_name(file_name(7, suffix + ".deleted")) is None
    assert base_in_name("7" + suffix) is None


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("clicks-1", ("clicks", 1)),
        ("page-views.v2-0", ("page-views.v2", 0)),
        ("x" * 249 + "-7", ("x" * 249, 7)),
        ("x" * 250 + "-7", None),
        ("clicks-01", None),
        ("clicks", None),
        ("-5", None),
        ("..-1", None),
        ("no topic-0", None),
        ("clicks-99999999999", None),
        ("clicks-0\n", None),
    ],
)
def test_a_folder_is_a_partition_s_by_its_name(name: str, partition: tuple[str, int] | None) -> None:
    assert partition_in_name(name) == partition
    assert partition is None or folder_name(*partition) == name


def test_the_name_of_a_deleted_folder_fits_the_file_system() -> None:
    assert deleted_folder_name("t", 3, bytes(16)) == f"t-3.{'0' * 32}-delete"
    assert len(deleted_folder_name("x" * 249, 99_999, bytes(16))) == 255


def test_a_folder_on_its_way_is_no_partition_s() -> None:
    for make in (deleted_folder_name, future_folder_name, stray_folder_name):
        assert partition_in_name(make("t", 3, bytes(16))) is None
