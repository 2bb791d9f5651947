"""Checkpoints: whole or not at all."""

from __future__ import annotations

import pytest

from tidelog.log.format.checkpoint import (
    decode_epochs,
    decode_offset_rows,
    decode_offsets,
    encode_epochs,
    encode_offsets,
)


def test_offsets_are_written_in_kafka_s_form_and_read_back() -> None:
    offsets = {("a-b.c", 0): 5, ("t", 12): 2**62}
    assert encode_offsets(offsets) == f"0\n2\na-b.c 0 5\nt 12 {2**62}\n".encode()
    assert decode_offsets(encode_offsets(offsets)) == offsets


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"0",
        b"0\n",
        b"0\n1\n",
        b"0\n1\nt 0 55",
        b"0\n2\nt 0 5\n",
        b"0\n1\nt 0 5\nu 0 6\n",
        b"1\n1\nt 0 5\n",
        b"0\nx\nt 0 5\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 5 6\n",
        b"0\n1\nt zero 5\n",
        b"0\n1\nt 0 five\n",
        b"\xff\xfe\n",
        bytes(40),
    ],
)
def test_a_bad_file_counts_as_no_file(content: bytes | None) -> None:
    assert decode_offsets(content) == {}


def test_a_missing_file_is_told_from_an_empty_list() -> None:
    assert decode_offset_rows(None) is None
    assert decode_offset_rows(encode_offsets({})) == []


def test_epochs_end_at_the_line_that_does_not_follow() -> None:
    assert encode_epochs([(1, 0), (4, 10)]) == b"0\n2\n1 0\n4 10\n"
    assert decode_epochs(encode_epochs([(1, 0), (4, 10)])) == ([(1, 0), (4, 10)], None)
    assert decode_epochs(b"0\n3\n1 0\n1 10\n2 20\n") == ([(1, 0)], "1 10")
    assert decode_epochs(b"0\n2\n1 10\n2 5\n") == ([(1, 10)], "2 5")
    assert decode_epochs(b"0\n2\n1 0\nx 5\n") == ([(1, 0)], "x 5")
    assert decode_epochs(b"0\n9\n1 0\n") is None
