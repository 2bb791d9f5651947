"""Where `consume --from` begins."""

from __future__ import annotations

import pytest

from tidelog.cli.failure import BadWord
from tidelog.cli.start import Start, parse_start


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("earliest", Start("earliest")),
        ("latest", Start("latest")),
        ("0", Start("offset", 0)),
        ("17", Start("offset", 17)),
        ("-5", Start("last", 5)),
        ("@1700000000000", Start("timestamp", 1_700_000_000_000)),
        ("@2023-11-14T22:13:20", Start("timestamp", 1_700_000_000_000)),
        ("@2023-11-14T23:13:20+01:00", Start("timestamp", 1_700_000_000_000)),
    ],
)
def test_each_way_to_say_where_is_understood(word: str, expected: Start) -> None:
    assert parse_start(word) == expected


@pytest.mark.parametrize("word", ["", "end", "--5", "1.5", "@", "@tomorrow", "9" * 30])
def test_any_other_word_is_refused_and_named(word: str) -> None:
    with pytest.raises(BadWord, match=f"--from {word}:"):
        parse_start(word)
