"""How resources and changes are written."""

from __future__ import annotations

import pytest

from tidelog.cli.failure import BadWord
from tidelog.cli.settings import Change, Operation, Resource, parse_change, parse_changes, parse_resource


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("topic/orders", Resource("topic", "orders")),
        ("broker/1", Resource("broker", "1")),
        ("broker/default", Resource("broker", "default")),
        ("group/a/b", Resource("group", "a/b")),
        ("client-metrics/all", Resource("client-metrics", "all")),
    ],
)
def test_a_resource_is_a_kind_and_a_name(word: str, expected: Resource) -> None:
    assert parse_resource(word) == expected
    assert str(expected) == word


@pytest.mark.parametrize("word", ["", "orders", "topic/", "/orders", "table/x", "broker/one", "broker/-1"])
def test_any_other_word_is_refused_and_named(word: str) -> None:
    with pytest.raises(BadWord, match=f"^{word}: not a"):
        parse_resource(word)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("a.b=1", Change("a.b", Operation.SET, "1")),
        ("a=", Change("a", Operation.SET, "")),
        ("a=x=y", Change("a", Operation.SET, "x=y")),
        ("a=-1", Change("a", Operation.SET, "-1")),
        ("a+=x", Change("a", Operation.APPEND, "x")),
        ("a-=x", Change("a", Operation.SUBTRACT, "x")),
        ("a-b=x,y", Change("a-b", Operation.SET, "x,y")),
    ],
)
def test_a_change_sets_adds_or_takes_away(word: str, expected: Change) -> None:
    assert parse_change(word) == expected


@pytest.mark.parametrize("word", ["", "a", "=x", "+=x", "a b=x"])
def test_what_is_no_change_is_refused(word: str) -> None:
    with pytest.raises(BadWord, match="not a setting"):
        parse_change(word)


def test_a_key_is_changed_once() -> None:
    with pytest.raises(BadWord, match="named twice"):
        parse_changes(["a=1"], ["a"])
    with pytest.raises(BadWord, match="without a value"):
        parse_changes([], ["a=1"])
