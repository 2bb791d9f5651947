"""Quotas of clients: set, removed and described; a filter for them is checked as Kafka checks it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import Harness, parts
from tidelog.base.limits import ALTER_WAIT_MS

DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49
Filter = list[tuple[str, int, str | None]]
Entity = Mapping[str, str | None]


def ask(harness: Harness, version: int, asked: Filter) -> tuple[ErrorCode, str, object]:
    component = parts(DESCRIBE_CLIENT_QUOTAS, version).ComponentData
    components = tuple(
        component(entity_type=kind, match_type=match_type, match=match) for kind, match_type, match in asked
    )
    answer = harness.ask(DESCRIBE_CLIENT_QUOTAS, version, components=components, strict=False)
    return answer.error_code, answer.error_message, answer.entries


def alter(
    harness: Harness, version: int, *entries: tuple[Entity, Mapping[str, float | None]], dry: bool = False
) -> list[tuple[ErrorCode, Entity]]:
    part = parts(ALTER_CLIENT_QUOTAS, version)
    asked = tuple(
        part.EntryData(
            entity=tuple(
                part.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
            ),
            ops=tuple(
                part.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()
            ),
        )
        for entity, ops in entries
    )
    answer = harness.ask(ALTER_CLIENT_QUOTAS, version, entries=asked, validate_only=dry)
    return [
        (entry.error_code, {each.entity_type: each.entity_name for each in entry.entity})
        for entry in answer.entries
    ]


def described(harness: Harness, version: int, asked: Filter) -> dict[str, dict[str, float]]:
    _, _, entries = ask(harness, version, asked)
    assert isinstance(entries, tuple)
    return {
        ",".join(f"{each.entity_type}={each.entity_name}" for each in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in entries
    }


@pytest.mark.parametrize("version", [0, 1])
def test_what_is_altered_is_described_and_gone_when_it_is_removed(harness: Harness, version: int) -> None:
    ann, default = {"user": "ann"}, {"user": None}
    done = alter(harness, version, (ann, {"producer_byte_rate": 5.0}), (default, {"request_percentage": 0.5}))
    assert done == [(ErrorCode.none, ann), (ErrorCode.none, default)]
    assert described(harness, version, []) == {
        "user=ann": {"producer_byte_rate": 5.0},
        "user=None": {"request_percentage": 0.5},
    }
    assert described(harness, version, [("user", 1, None)]) == {"user=None": {"request_percentage": 0.5}}
    assert alter(harness, version, (ann, {"producer_byte_rate": None})) == [(ErrorCode.none, ann)]
    assert [*described(harness, version, [("user", 2, None)])] == ["user=None"]


def test_quotas_outlive_the_broker(harness: Harness) -> None:
    alter(harness, 1, ({"user": "ann", "client-id": "a/b c"}, {"producer_byte_rate": 5.0}))
    harness.start()
    assert described(harness, 1, []) == {"client-id=a/b c,user=ann": {"producer_byte_rate": 5.0}}
    assert harness.broker.quotas.is_on


def test_a_rehearsal_changes_nothing(harness: Harness) -> None:
    good, bad = {"user": "ann"}, {"user": ""}
    done = alter(
        harness, 1, (good, {"producer_byte_rate": 5.0}), (bad, {"producer_byte_rate": 5.0}), dry=True
    )
    assert done == [(ErrorCode.none, good), (ErrorCode.invalid_request, bad)]
    assert described(harness, 1, []) == {}


def test_good_entries_are_kept_beside_bad_ones(harness: Harness) -> None:
    good, bad = {"user": "ann"}, {"ip": "nowhere"}
    done = alter(harness, 1, (good, {"producer_byte_rate": 5.0}), (bad, {"connection_creation_rate": 5.0}))
    assert done == [(ErrorCode.none, good), (ErrorCode.invalid_request, bad)]
    assert [*described(harness, 1, [])] == ["user=ann"]


def test_a_store_that_does_not_answer_leaves_it_open(harness: Harness) -> None:
    harness.holds_store = True
    part = parts(ALTER_CLIENT_QUOTAS, 1)
    entry = part.EntryData(
        entity=(part.EntityData(entity_type="user", entity_name="ann"),),
        ops=(part.OpData(key="producer_byte_rate", value=1.0, remove=False),),
    )
    harness.send(ALTER_CLIENT_QUOTAS, 1, entries=(entry,), validate_only=False)
    assert harness.answers() == []
    harness.advance(ALTER_WAIT_MS)
    (refused,) = harness.answer(ALTER_CLIENT_QUOTAS, 1).entries
    assert refused.error_code == ErrorCode.request_timed_out


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
