"""The index of aborted transactions: Kafka's format, and what of a damaged one is believed."""

from __future__ import annotations

from pathlib import Path
from struct import pack

from tidelog.base.files import DiskDirectory
from tidelog.log.transactions import AbortedIndex, AbortedTransaction

ENTRIES = [
    AbortedTransaction(1, 5, 12, 13),
    AbortedTransaction(2, 3, 14, 15),
    AbortedTransaction(1, 20, 22, 19),
]
NAME = f"{10:020}.txnindex"


def filled(folder: Path) -> bytes:
    index = AbortedIndex(DiskDirectory(str(folder)), 10)
    for entry in ENTRIES:
        index.append(entry)
    index.close()
    return (folder / NAME).read_bytes()


def opened(folder: Path) -> AbortedIndex:
    return AbortedIndex(DiskDirectory(str(folder)), 10)


def test_the_file_is_made_with_the_first_entry(tmp_path: Path) -> None:
    index = opened(tmp_path)
    assert not (tmp_path / NAME).exists() and index.files() == []
    index.append(ENTRIES[0])
    assert (tmp_path / NAME).read_bytes() == pack(">hqqqq", 0, 1, 5, 12, 13)
    assert len(index.files()) == 1


def test_entries_are_read_back(tmp_path: Path) -> None:
    filled(tmp_path)
    index = opened(tmp_path)
    assert index.entries == ENTRIES and not index.is_damaged


def test_every_cut_leaves_the_whole_entries_and_is_noticed(tmp_path: Path) -> None:
    content = filled(tmp_path)
    for size in range(len(content)):
        (tmp_path / NAME).write_bytes(content[:size])
        index = opened(tmp_path)
        assert index.entries == ENTRIES[: size // 34]
        assert index.is_damaged == (size % 34 != 0)


def test_an_entry_that_cannot_be_ends_the_list(tmp_path: Path) -> None:
    filled(tmp_path)
    for bad in (
        pack(">hqqqq", 1, 1, 5, 30, 31),
        pack(">hqqqq", 0, 1, 31, 30, 31),
        pack(">hqqqq", 0, 1, 2, 9, 10),
        bytes(34),
    ):
        content = pack(">hqqqq", 0, *ENTRIES[0]) + bad + pack(">hqqqq", 0, *ENTRIES[1])
        (tmp_path / NAME).write_bytes(content)
        index = opened(tmp_path)
        assert index.entries == ENTRIES[:1] and index.is_damaged


def test_what_is_appended_goes_behind_the_last_good_entry(tmp_path: Path) -> None:
    content = filled(tmp_path)
    (tmp_path / NAME).write_bytes(content[:-10])
    index = opened(tmp_path)
    index.append(ENTRIES[2])
    index.close()
    assert (tmp_path / NAME).read_bytes() == content


def test_reset_removes_the_file(tmp_path: Path) -> None:
    filled(tmp_path)
    index = opened(tmp_path)
    index.reset()
    assert index.entries == [] and not (tmp_path / NAME).exists()
