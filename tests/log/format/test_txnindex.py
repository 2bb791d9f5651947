"""Entries of aborted transactions: the layout byte for byte, and the first that cannot be one."""

from __future__ import annotations

from struct import pack

import pytest

from tidelog.log.format.txnindex import ABORTED_SIZE, AbortedTransaction, decode_aborted, encode_aborted

ENTRIES = [AbortedTransaction(1, 5, 12, 13), AbortedTransaction(2, 3, 14, 15)]
CONTENT = b"".join(map(encode_aborted, ENTRIES))


def test_the_layout_is_the_one_that_is_documented() -> None:
    assert encode_aborted(ENTRIES[0]) == pack(">h", 0) + pack(">q", 1) + pack(">q", 5) + pack(
        ">q", 12
    ) + pack(">q", 13)
    assert decode_aborted(CONTENT, 10) == ENTRIES


def test_every_cut_leaves_the_whole_entries() -> None:
    for size in range(len(CONTENT)):
        assert decode_aborted(CONTENT[:size], 10) == ENTRIES[: size // ABORTED_SIZE]


@pytest.mark.parametrize(
    "bad",
    [pack(">hqqqq", 1, 1, 5, 30, 31), pack(">hqqqq", 0, 1, 31, 30, 31), pack(">hqqqq", 0, 1, 2, 9, 10)],
    ids=["version", "ends before it begins", "below the segment"],
)
def test_an_entry_that_cannot_be_ends_the_list(bad: bytes) -> None:
    assert decode_aborted(encode_aborted(ENTRIES[0]) + bad + CONTENT, 10) == ENTRIES[:1]
