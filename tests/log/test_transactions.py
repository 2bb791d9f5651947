"""The index of aborted transactions: Kafka's format, and what of a damaged one is believed."""

from __future__ import annotations

from pathlib import Path
from struct import pack
from typing import Any

from tests.log.making import NOW_MS, append, make_batch, open_new
from tidelog.base.files import DiskDirectory
from tidelog.log.format.txnindex import AbortedTransaction, decode_aborted, encode_aborted
from tidelog.log.markers import End, append_markers
from tidelog.log.transactions import AbortedIndex
from tidelog.protocol.records import Marker

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


def test_an_entry_whose_marker_is_before_the_last_one_cannot_be() -> None:
    entries = [AbortedTransaction(1, 5, 12, 13), AbortedTransaction(2, 3, 11, 15)]
    assert decode_aborted(b"".join(map(encode_aborted, entries)), 10) == entries[:1]


def test_transactions_that_end_in_each_other_stand_as_kafka_writes_them(tmp_path: Path) -> None:
    """Version, producer, first offset, marker, and where the first other one began, or the next offset."""
    log = open_new(tmp_path)
    for producer_id in (1, 2, 3):
        append(log, make_batch(2, producer_id=producer_id, transactional=True))
    ends = [End(2, 0, Marker.ABORT, 0), End(3, 0, Marker.COMMIT, 0), End(1, 0, Marker.ABORT, 0)]
    append_markers(log, ends, 0, NOW_MS)
    content = (tmp_path / f"{0:020}.txnindex").read_bytes()
    assert content == pack(">hqqqq", 0, 2, 2, 6, 0) + pack(">hqqqq", 0, 1, 0, 8, 9)


def test_a_search_ends_where_nothing_behind_can_reach_into_the_range(tmp_path: Path) -> None:
    index = AbortedIndex(DiskDirectory(str(tmp_path)), 0)
    for place in range(0, 1_000, 2):
        index.append(AbortedTransaction(1, place, place + 1, place + 2))

    class Counted(list[AbortedTransaction]):
        looked_at = 0

        def __getitem__(self, place: Any) -> Any:
            self.looked_at += 1
            return super().__getitem__(place)

    index.entries = entries = Counted(index.entries)
    found: list[AbortedTransaction] = []
    assert index.collect(501, 506, found)
    assert [entry.first_offset for entry in found] == [500, 502, 504] and entries.looked_at < 20
    assert not index.collect(998, 1_001, found), "an open one may have begun there"
    assert index.collect(0, 0, []) and not index.collect(2_000, 3_000, [])
