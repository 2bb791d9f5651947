"""Java's .properties format, as `java.util.Properties` reads it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.failure import BadWord
from tidelog.cli.properties import parse_properties, parse_setting, read_properties, write_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\n c : 3\nd 4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# comment\n! comment\n\n  # comment\na=1", {"a": "1"}),
        ("a=1,\\\n    2,\\\n    3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a\\ b=c\\=d", {"a b": "c=d"}),
        ("a=\\u00e4\\t\\n", {"a": "ä\t\n"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b=c", {"a": "b=c"}),
        ("listeners=PLAINTEXT://127.0.0.1:9092", {"listeners": "PLAINTEXT://127.0.0.1:9092"}),
        ("a=1\\", {"a": "1"}),
        ("a=#1 # kept", {"a": "#1 # kept"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text, "file") == expected


@pytest.mark.parametrize(("text", "line"), [("a=1\n=2", 2), ("a=1\\\n2\nb=\\u12", 3)])
def test_a_bad_line_is_named_by_its_number(text: str, line: int) -> None:
    with pytest.raises(BadWord, match=f"file, line {line}: "):
        parse_properties(text, "file")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadWord, match="nowhere: No such file"):
        read_properties(str(tmp_path / "nowhere"))


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"a=\xff\xfe")
    with pytest.raises(BadWord, match="binary: not UTF-8"):
        read_properties(str(tmp_path / "binary"))


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_written_is_read_back(properties: dict[str, str]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "server.properties"
        write_properties(path, properties, "a heading")
        assert read_properties(str(path)) == properties
        assert path.stat().st_mode & 0o077 == 0, "there may be passwords in it"


def test_a_setting_splits_at_its_first_equals_sign() -> None:
    assert parse_setting("a.b=c=d") == ("a.b", "c=d")


@pytest.mark.parametrize("word", ["", "a", "=1"])
def test_a_setting_without_key_or_sign_is_refused(word: str) -> None:
    with pytest.raises(BadWord, match="write -o key=value"):
        parse_setting(word)
