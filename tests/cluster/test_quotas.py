"""Quotas in the tree: names of entities, what may be set, and which ones a filter finds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base import limits
from tidelog.cluster import quotas
from tidelog.cluster.image import Image
from tidelog.cluster.quotas import (
    Component,
    QuotaChange,
    address_of,
    decide_quotas,
    entities_of,
    entity_of,
    matching,
    name_of,
    ordered,
)
from tidelog.cluster.store import Create, Delete, Write

NAMES = st.none() | st.text(min_size=1, max_size=20)
ENTITIES = st.dictionaries(st.sampled_from(["user", "client-id", "ip"]), NAMES, min_size=1)
ANN = {"user": "ann"}


def altered(image: Image, entity: Mapping[str, str | None], **values: float | None) -> list[str]:
    """Applied to the image; what was wrong."""
    decision = decide_quotas(image, [QuotaChange(entity, [*values.items()])])
    image.apply(decision.operations)
    return [problem.message for _, problem in decision.rows if problem is not None]


@given(ENTITIES)
def test_the_name_of_a_node_says_whose_it_is(entity: Mapping[str, str | None]) -> None:
    name = name_of(ordered(entity))
    assert entity_of(name) == ordered(entity)
    assert "/" not in name and not {".", ".."} & {name}


def test_quotas_are_created_written_and_deleted() -> None:
    image = Image()
    kinds = []
    for values in ({"producer_byte_rate": 5.0}, {"request_percentage": 0.5}, {"producer_byte_rate": None}):
        decision = decide_quotas(image, [QuotaChange(ANN, [*values.items()])])
        kinds += [type(operation) for operation in decision.operations]
        image.apply(decision.operations)
    assert entities_of(image) == {(("user", "ann"),): {"request_percentage": 0.5}}
    decision = decide_quotas(image, [QuotaChange(ANN, [("request_percentage", None)])])
    image.apply(decision.operations)
    assert [*kinds, type(decision.operations[0])] == [Create, Write, Write, Delete]
    assert entities_of(image) == {}


def test_nothing_is_written_where_nothing_changes() -> None:
    image = Image()
    altered(image, ANN, producer_byte_rate=5.0)
    for values in ([("producer_byte_rate", 5.0)], [("no.such", None)], []):
        assert decide_quotas(image, [QuotaChange(ANN, values)]).operations == []


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), 0.5, 2.0**63, float("inf")])
def test_a_byte_rate_is_a_whole_number_above_nothing(value: float) -> None:
    image = Image()
    assert altered(image, ANN, producer_byte_rate=value)
    assert entities_of(image) == {}


@pytest.mark.parametrize(
    ("entity", "keys"),
    [
        ({"user": "a"}, ["producer_byte_rate", "request_percentage", "controller_mutation_rate"]),
        ({"client-id": None, "user": "a"}, ["consumer_byte_rate"]),
        ({"ip": "10.0.0.1"}, ["connection_creation_rate"]),
        ({"ip": None}, ["connection_creation_rate"]),
    ],
)
def test_who_may_have_which_quota(entity: Mapping[str, str | None], keys: list[str]) -> None:
    image = Image()
    for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"):
        assert bool(altered(image, entity, **{key: 3.0})) == ("ip" in entity), key
    assert bool(altered(image, entity, connection_creation_rate=3.0)) == ("ip" not in entity)
    assert {*keys} <= {key for found in entities_of(image).values() for key in found}


@pytest.mark.parametrize(
    "entity", [{}, {"group": "g"}, {"user": ""}, {"user": "a", "ip": "10.0.0.1"}, {"ip": "localhost"}]
)
def test_an_entity_that_cannot_be_is_refused(entity: Mapping[str, str | None]) -> None:
    assert altered(Image(), entity, producer_byte_rate=1.0)


def test_an_entity_named_twice_is_refused_and_unchanged() -> None:
    image = Image()
    twice = [QuotaChange(ANN, [("producer_byte_rate", rate)]) for rate in (1.0, 2.0)]
    decision = decide_quotas(image, twice)
    assert decision.operations == []
    assert [problem is not None for _, problem in decision.rows] == [True]


def test_entities_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "QUOTA_ENTITIES_MAX", 3)
    image = Image()
    found = [altered(image, {"user": f"u{place}"}, producer_byte_rate=1.0) for place in range(5)]
    assert [bool(problems) for problems in found] == [False, False, False, True, True]
    assert altered(image, {"user": "u1"}, producer_byte_rate=2.0) == []
    assert altered(image, {"user": "u" * (limits.QUOTA_NAME_LENGTH_MAX + 1)}, producer_byte_rate=2.0)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("1.2.3", "1.2.0.3"),
        ("7", "0.0.0.7"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0:0::1", "::1"),
        ("256.1", None),
        ("localhost", None),
        ("", None),
    ],
)
def test_addresses_are_compared_in_one_form(text: str, address: str | None) -> None:
    assert address_of(text) == address


def test_a_filter_finds_what_it_names_and_where_it_is_strict_nothing_else() -> None:
    image = Image()
    for entity in ({"user": "a"}, {"user": "a", "client-id": "x"}, {"user": None}, {"client-id": "x"}):
        assert altered(image, entity, consumer_byte_rate=1.0) == []

    def found(*components: Component, strict: bool) -> list[str]:
        return sorted(map(name_of, matching(entities_of(image), components, strict)))

    a, any_user, default = Component("user", False, "a"), Component("user", True), Component("user", False)
    assert found(strict=False) == ["client-id:x", "client-id:x+user:a", "user", "user:a"]
    assert found(strict=True) == []
    assert found(a, strict=True) == ["user:a"]
    assert found(a, strict=False) == ["client-id:x+user:a", "user:a"]
    assert found(any_user, strict=True) == ["user", "user:a"]
    assert found(default, strict=False) == ["user"]
    assert found(any_user, Component("client-id", True), strict=True) == ["client-id:x+user:a"]
