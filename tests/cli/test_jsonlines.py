"""Records as JSON lines: nothing is lost on the way out and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.failure import BadWord
from tidelog.cli.jsonlines import OutgoingRecord, bytes_of, record_of, text_of


@given(st.none() | st.binary())
def test_bytes_survive_the_way_through_json(content: bytes | None) -> None:
    assert bytes_of(json.loads(json.dumps(text_of(content))), "x") == content


def test_a_full_line_becomes_a_record() -> None:
    line = (
        b'{"topic": "t", "offset": 9, "partition": 2, "timestamp": 5, "key": "k", '
        b'"value": {"base64": "/w=="}, "headers": [["a", "b"], ["a", null]]}'
    )
    assert record_of(line, "line 1") == OutgoingRecord(b"k", b"\xff", [("a", b"b"), ("a", None)], 2, 5)


def test_headers_may_be_an_object_and_everything_may_be_absent() -> None:
    assert record_of(b'{"headers": {"a": "b"}}', "line 1") == OutgoingRecord(None, None, [("a", b"b")])
    assert record_of(b"{}", "line 1") == OutgoingRecord(None, None)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"not json",
        b"\xff",
        b'{"value": 1}',
        b'{"value": {"base64": "?"}}',
        b'{"value": {"other": "x"}}',
        b'{"headers": 1}',
        b'{"headers": [["a"]]}',
        b'{"headers": [[1, "a"]]}',
        b'{"partition": "0"}',
        b'{"partition": true}',
        b'{"timestamp": -1}',
    ],
)
def test_a_wrong_line_is_refused_by_its_number(line: bytes) -> None:
    with pytest.raises(BadWord, match="line 7"):
        record_of(line, "line 7")
