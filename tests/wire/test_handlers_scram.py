"""SCRAM credentials, as Kafka answers about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import (
    ALTER_SCRAM,
    DESCRIBE_SCRAM,
    Harness,
    parts,
)
from tidelog.cluster.store import Action, Multi, Outcome, Refused, Write

SECRET = b"a salted password"


def alter_values(
    upsertions: list[tuple[str, int, int]], deletions: list[tuple[str, int]] | None = None
) -> dict[str, Any]:
    part = parts(ALTER_SCRAM, 0)
    return {
        "deletions": tuple(
            part.ScramCredentialDeletion(name=user, mechanism=mechanism)
            for user, mechanism in deletions or ()
        ),
        "upsertions": tuple(
            part.ScramCredentialUpsertion(
                name=user, mechanism=mechanism, iterations=count, salt=b"salt", salted_password=SECRET
            )
            for user, mechanism, count in upsertions
        ),
    }


def alter(
    harness: Harness, upsertions: list[tuple[str, int, int]], deletions: list[tuple[str, int]] | None = None
) -> list[tuple[str, int, str | None]]:
    answer = harness.ask(ALTER_SCRAM, 0, **alter_values(upsertions, deletions))
    return [(result.user, result.error_code, result.error_message) for result in answer.results]


def describe(harness: Harness, users: list[str] | None) -> dict[str, Any]:
    part = parts(DESCRIBE_SCRAM, 0)
    names = None if users is None else tuple(part.UserName(name=user) for user in users)
    answer = harness.ask(DESCRIBE_SCRAM, 0, users=names)
    assert (answer.error_code, answer.error_message) == (0, "")
    return {
        result.user: (
            result.error_code,
            result.error_message,
            [(credential.mechanism, credential.iterations) for credential in result.credential_infos],
        )
        for result in answer.results
    }


def test_credentials_are_stored_and_described(harness: Harness) -> None:
    assert alter(harness, [("bob", 1, 4_096), ("ann", 2, 8_192)]) == [("bob", 0, None), ("ann", 0, None)]
    assert alter(harness, [("ann", 1, 5_000)]) == [("ann", 0, None)]
    everybody = {"ann": (0, "", [(1, 5_000), (2, 8_192)]), "bob": (0, "", [(1, 4_096)])}
    assert describe(harness, None) == describe(harness, []) == everybody
    assert describe(harness, ["bob"]) == {"bob": everybody["bob"]}
    assert alter(harness, [], [("ann", 2), ("bob", 1)]) == [("ann", 0, None), ("bob", 0, None)]
    assert describe(harness, None) == {"ann": (0, "", [(1, 5_000)])}


def test_a_user_who_is_not_there_or_asked_for_twice_is_told_so(harness: Harness) -> None:
    alter(harness, [("ann", 1, 4_096)])
    twice = "Cannot describe SCRAM credentials for the same user twice in a single request: "
    absent = "Attempt to describe a user credential that does not exist: "
    assert describe(harness, ["ann", "x", "x", "", "nobody"]) == {
        "ann": (0, "", [(1, 4_096)]),
        "x": (ErrorCode.duplicate_resource, twice + "x", []),
        "": (ErrorCode.resource_not_found, absent, []),
        "nobody": (ErrorCode.resource_not_found, absent + "nobody", []),
    }
    assert describe(harness, ["ann", "ann"]) == {"ann": (ErrorCode.duplicate_resource, twice + "ann", [])}


def test_one_bad_user_does_not_keep_the_others_out(harness: Harness) -> None:
    alter(harness, [("old", 1, 4_096)])
    results = alter(harness, [("new", 1, 4_096), ("weak", 1, 1)], [("nobody", 1), ("old", 1)])
    assert results[:2] == [("old", 0, None), ("new", 0, None)]
    assert {user: error for user, error, _ in results[2:]} == {
        "nobody": ErrorCode.resource_not_found,
        "weak": ErrorCode.unacceptable_credential,
    }
    assert [*describe(harness, None)] == ["new"]


def test_an_alteration_of_nothing_is_answered_with_nothing(harness: Harness) -> None:
    assert alter(harness, []) == []


def test_credentials_outlive_the_broker(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    alter(harness, [("a/b.c", 1, 4_096)])
    harness.broker.stop()
    harness.start()
    assert describe(harness, None) == {"a/b.c": (0, "", [(1, 4_096)])}


def test_no_answer_and_no_line_of_the_log_has_a_secret(harness: Harness) -> None:
    harness.send(ALTER_SCRAM, 0, **alter_values([("ann", 1, 4_096), ("weak", 1, 1)]))
    harness.send(DESCRIBE_SCRAM, 0, users=None)
    kept = harness.broker.image.scram["ann"]["SCRAM-SHA-256"]
    said = b"".join(harness.answers()) + repr(harness.broker.outbox.events).encode()
    for secret in (SECRET, kept["stored_key"].encode(), kept["server_key"].encode()):
        assert secret not in said


def test_two_requests_at_once_do_not_undo_each_other(harness: Harness) -> None:
    harness.holds_store = True
    harness.send(ALTER_SCRAM, 0, **alter_values([("ann", 1, 4_096)]))
    harness.send(ALTER_SCRAM, 0, **alter_values([("ann", 2, 8_192)]))
    assert harness.answers() == []
    harness.release_store()
    assert len(harness.answers()) == 2
    assert describe(harness, ["ann"]) == {"ann": (0, "", [(1, 4_096), (2, 8_192)])}


def test_a_store_that_is_slow_is_told_and_one_that_is_ahead_is_looked_at_again(harness: Harness) -> None:
    harness.holds_store = True
    harness.send(ALTER_SCRAM, 0, **alter_values([("ann", 1, 4_096), ("weak", 1, 1)]))
    harness.advance(10_001)
    late = harness.answer(ALTER_SCRAM, 0).results
    assert [(r.user, r.error_code) for r in late] == [
        ("ann", ErrorCode.request_timed_out),
        ("weak", ErrorCode.unacceptable_credential),
    ]
    harness.release_store()
    harness.store.perform(Multi((Write("/scram/ann", b"{}"),)))
    ((user, error, _),) = alter(harness, [("ann", 2, 4_096)])
    assert (user, error) == ("ann", ErrorCode.none)
    assert describe(harness, ["ann"]) == {"ann": (0, "", [(2, 4_096)])}


def test_a_store_that_is_always_ahead_is_told(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    perform = harness.store.perform

    def ahead(action: Action) -> Outcome:
        return Refused(1, "somebody was faster") if isinstance(action, Multi) else perform(action)

    monkeypatch.setattr(harness.store, "perform", ahead)
    ((user, error, message),) = alter(harness, [("ann", 2, 4_096)])
    assert (user, error) == ("ann", ErrorCode.request_timed_out)
    assert message == "The credentials were altered by somebody else meanwhile."
