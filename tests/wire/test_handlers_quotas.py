"""Quotas of clients: there are none, and a filter for them is checked as Kafka checks it."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import Harness, parts

DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49
Filter = list[tuple[str, int, str | None]]


def ask(harness: Harness, version: int, asked: Filter) -> tuple[ErrorCode, str, object]:
    component = parts(DESCRIBE_CLIENT_QUOTAS, version).ComponentData
    components = tuple(
        component(entity_type=kind, match_type=match_type, match=match) for kind, match_type, match in asked
    )
    answer = harness.ask(DESCRIBE_CLIENT_QUOTAS, version, components=components, strict=False)
    return answer.error_code, answer.error_message, answer.entries


@pytest.mark.parametrize("version", [0, 1])
def test_a_quota_is_refused_with_the_reason(harness: Harness, version: int) -> None:
    part = parts(ALTER_CLIENT_QUOTAS, version)
    entry = part.EntryData(
        entity=(part.EntityData(entity_type="user", entity_name="ann"),),
        ops=(part.OpData(key="producer_byte_rate", value=1.0, remove=False),),
    )
    answer = harness.ask(ALTER_CLIENT_QUOTAS, version, entries=(entry,), validate_only=False)
    (refused,) = answer.entries
    assert refused.error_code == ErrorCode.unsupported_version
    assert refused.error_message.startswith("quotas: not supported")
    assert [(each.entity_type, each.entity_name) for each in refused.entity] == [("user", "ann")]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "asked", [[], [("user", 0, "ann")], [("user", 1, None), ("client-id", 2, None)], [("ip", 2, None)]]
)
def test_nobody_has_a_quota(harness: Harness, version: int, asked: Filter) -> None:
    assert ask(harness, version, asked) == (ErrorCode.none, "", ())


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([("", 0, "a")], "Invalid empty entity type."),
        (
            [("user", 0, "a"), ("user", 2, None)],
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("user", 0, None)], "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", 1, "a")], "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", 2, "a")], "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 3, None)], "Unknown match type 3"),
        ([("ip", -1, "a"), ("user", 2, None)], "Unknown match type -1"),
        (
            [("ip", 0, "a"), ("user", 2, None)],
            "Invalid entity filter component combination. "
            "IP filter component should not be used with user or clientId filter component.",
        ),
    ],
)
def test_a_filter_that_cannot_be_is_refused(harness: Harness, asked: Filter, message: str) -> None:
    assert ask(harness, 1, asked) == (ErrorCode.invalid_request, message, None)


def test_a_kind_that_nobody_knows_is_refused_with_a_bounded_message(harness: Harness) -> None:
    error, message, _ = ask(harness, 1, [("w" * 5_000, 0, "a")])
    assert error == ErrorCode.unsupported_version
    assert message.startswith("Unsupported entity type www") and len(message) == 1_000
