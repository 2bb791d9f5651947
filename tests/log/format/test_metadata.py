"""The small files: their bytes are Kafka's, and what cannot be read says nothing."""

from __future__ import annotations

import pytest

from tidelog.log.format.metadata import (
    decode_clean_shutdown,
    decode_properties,
    decode_topic_id,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_topic_id,
)

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def test_a_topic_id_is_written_as_kafka_writes_it() -> None:
    assert encode_topic_id(TOPIC_ID) == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert decode_topic_id(encode_topic_id(TOPIC_ID)) == TOPIC_ID


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"\xff\xfe",
        b"version: 0",
        b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: !AAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ x",
    ],
)
def test_a_topic_id_that_is_none_is_not_read(content: bytes | None) -> None:
    assert decode_topic_id(content) is None


def test_properties_are_lines_with_comments_and_spaces_between() -> None:
    assert decode_properties(encode_meta_properties("c", 1, "d")) == {
        "version": "1",
        "cluster.id": "c",
        "node.id": "1",
        "directory.id": "d",
    }
    assert decode_properties(b"#version=7\n a = b=c \nnothing\n\xff=1") == {"a": "b=c", "\ufffd": "1"}


def test_a_clean_stop_says_whose_it_was() -> None:
    assert encode_clean_shutdown(12) == b'{"version":0,"brokerEpoch":12}'
    assert decode_clean_shutdown(encode_clean_shutdown(12)) == 12


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{", b"\xff", b'{"brokerEpoch":"12"}'])
def test_a_clean_stop_that_cannot_be_read_is_nobody_s(content: bytes | None) -> None:
    assert decode_clean_shutdown(content) == -1
