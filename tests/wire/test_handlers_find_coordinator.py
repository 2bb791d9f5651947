"""FindCoordinator: groups and transactional ids, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire.harness import FIND_COORDINATOR, Harness
from tests.wire.test_handlers_group_membership import LONG, each_version
from tidelog.cluster.features import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.protocol.errors import ErrorCode


def find(harness: Harness, version: int, *keys: str, key_type: int = 0) -> list[Any]:
    values = {"key": keys[0] if keys else "", "key_type": key_type, "coordinator_keys": keys}
    answer = harness.ask(FIND_COORDINATOR, version, **values)
    return list(answer.coordinators) if version >= 4 else [answer]


@each_version(FIND_COORDINATOR)
def test_the_coordinator_of_every_group_is_this_broker(harness: Harness, version: int) -> None:
    for key in ("group", "", LONG, "ü", "a b"):
        (row,) = find(harness, version, key)
        assert (row.error_code, row.node_id, row.host, row.port) == (0, 1, "127.0.0.1", 9092)
    assert GROUPS_TOPIC in harness.broker.image.topics


@pytest.mark.parametrize("version", range(4, 7))
def test_coordinators_are_found_for_many_keys_at_once(harness: Harness, version: int) -> None:
    assert find(harness, version) == []
    assert [row.key for row in find(harness, version, "a", "b", "a")] == ["a", "b", "a"]


def test_whoever_asks_while_the_topic_is_made_is_answered_when_it_is(harness: Harness) -> None:
    harness.holds_store = True
    for _ in range(3):
        harness.send(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("group",))
    assert harness.answers() == []
    harness.release_store()
    assert len(harness.answers()) == 3


def test_a_topic_that_cannot_be_made_is_no_coordinator(harness: Harness) -> None:
    harness.holds_store = True
    harness.send(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("group",))
    harness.advance(60_000)
    (row,) = harness.answer(FIND_COORDINATOR, 4).coordinators
    assert row.error_code == ErrorCode.coordinator_not_available


@pytest.mark.parametrize("version", range(1, 7))
def test_the_coordinator_of_every_transactional_id_is_this_broker(harness: Harness, version: int) -> None:
    for key in ("writer", "", LONG, "ü", "a b"):
        (row,) = find(harness, version, key, key_type=1)
        assert (row.error_code, row.node_id, row.host, row.port) == (0, 1, "127.0.0.1", 9092)
    assert TRANSACTIONS_TOPIC in harness.broker.image.topics
    assert GROUPS_TOPIC not in harness.broker.image.topics


@pytest.mark.parametrize("version", range(4, 7))
def test_many_transactional_ids_are_found_at_once(harness: Harness, version: int) -> None:
    found = find(harness, version, "writer", "other", key_type=1)
    assert [(row.key, row.error_code, row.node_id) for row in found] == [("writer", 0, 1), ("other", 0, 1)]


@pytest.mark.parametrize("key_type", [-1, 2, 3])
def test_a_coordinator_of_no_kind_is_an_invalid_request(harness: Harness, key_type: int) -> None:
    answer = harness.ask(FIND_COORDINATOR, 6, key_type=key_type, coordinator_keys=("group",))
    assert answer.coordinators[0].error_code == ErrorCode.invalid_request
