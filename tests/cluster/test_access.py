"""SCRAM credentials: what is kept of them, what Kafka refuses, and that no key can be seen."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode

import pytest

from tests.cluster.tree import Tree, started
from tidelog.cluster import access
from tidelog.cluster.access import (
    Deletion,
    Upsertion,
    credentials_of,
    decide_alteration,
    derive_credential,
    scram_path,
)
from tidelog.cluster.store import Create, Delete, Write
from tidelog.protocol.errors import ErrorCode, Problem

PASSWORD = b"pencil"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def upsertion(user: str = "ann", mechanism: int = 1, iterations: int = 4_096, **fields: bytes) -> Upsertion:
    values = {"salt": SALT, "salted_password": b"salted password"} | fields
    return Upsertion(user, mechanism, iterations, values["salt"], values["salted_password"])


def altered(tree: Tree, *changes: Deletion | Upsertion) -> dict[str, Problem]:
    """Make the changes; what was refused of them."""
    deletions = [change for change in changes if isinstance(change, Deletion)]
    upsertions = [change for change in changes if isinstance(change, Upsertion)]
    alteration = decide_alteration(tree.image, deletions, upsertions)
    tree.apply(alteration.operations)
    assert not alteration.refused.keys() & {*alteration.altered}
    return alteration.refused


def mechanisms(tree: Tree, user: str = "ann") -> list[tuple[int, int]]:
    return [(mechanism.number, iterations) for mechanism, iterations in credentials_of(tree.image, user)]


def test_the_keys_prove_what_a_client_of_rfc_7677_sends() -> None:
    """The example of the RFC: user, password 'pencil', 4096 iterations."""
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD, SALT, 4_096)
    kept = derive_credential(upsertion(salted_password=salted))
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    stored_key, server_key = b64decode(kept["stored_key"]), b64decode(kept["server_key"])
    signature = hmac.digest(stored_key, message, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == stored_key
    server_signature = hmac.digest(server_key, message, "sha256")
    assert server_signature == b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert (b64decode(kept["salt"]), kept["iterations"]) == (SALT, 4_096)


def test_neither_a_password_nor_a_salted_one_is_kept() -> None:
    tree = started()
    change = upsertion(salted_password=b"a secret that nobody keeps")
    assert altered(tree, change) == {}
    kept = tree.nodes[scram_path("ann")].data
    assert b"YSBzZWNyZXQ" not in kept and b"secret" not in kept
    assert "secret" not in repr(change) and str(SALT) not in repr(change)


def test_a_user_can_have_both_mechanisms_and_lose_them_one_by_one() -> None:
    tree = started()
    altered(tree, upsertion())
    altered(tree, upsertion(mechanism=2, iterations=8_192))
    assert mechanisms(tree) == [(1, 4_096), (2, 8_192)]
    altered(tree, upsertion(iterations=5_000))
    assert mechanisms(tree) == [(1, 5_000), (2, 8_192)]
    assert tree.loaded().scram == tree.image.scram
    assert altered(tree, Deletion("ann", 1)) == {}
    assert mechanisms(tree) == [(2, 8_192)]
    assert altered(tree, Deletion("ann", 2)) == {}
    assert mechanisms(tree) == [] and scram_path("ann") not in tree.nodes


def test_changes_are_guarded_by_what_was_seen() -> None:
    tree = started()
    (made,) = decide_alteration(tree.image, [], [upsertion()]).operations
    assert isinstance(made, Create)
    tree.apply([made])
    (changed,) = decide_alteration(tree.image, [], [upsertion(mechanism=2)]).operations
    assert isinstance(changed, Write) and changed.version == 0
    tree.apply([changed])
    altered(tree, Deletion("ann", 1))
    (gone,) = decide_alteration(tree.image, [Deletion("ann", 2)], []).operations
    assert isinstance(gone, Delete) and gone.version == 2


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (upsertion(user=""), ErrorCode.unacceptable_credential, "Username must not be empty"),
        (upsertion(user="", mechanism=0), ErrorCode.unacceptable_credential, "Username must not be empty"),
        (upsertion(mechanism=0), ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
        (upsertion(mechanism=3), ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
        (upsertion(mechanism=-1), ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
        (upsertion(iterations=4_095), ErrorCode.unacceptable_credential, "Too few iterations"),
        (upsertion(mechanism=2, iterations=4_095), ErrorCode.unacceptable_credential, "Too few iterations"),
        (upsertion(iterations=-1), ErrorCode.unacceptable_credential, "Too few iterations"),
        (upsertion(iterations=16_385), ErrorCode.unacceptable_credential, "Too many iterations"),
        (upsertion(salted_password=b""), ErrorCode.unknown_server_error, ""),
        (Deletion("", 1), ErrorCode.unacceptable_credential, "Username must not be empty"),
        (Deletion("ann", 9), ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
        (
            Deletion("ann", 1),
            ErrorCode.resource_not_found,
            "Attempt to delete a user credential that does not exist",
        ),
        (
            upsertion(user="u" * 1_025),
            ErrorCode.unacceptable_credential,
            "Username has more than 1024 characters",
        ),
        (
            upsertion(salt=b"s" * 1_025),
            ErrorCode.unacceptable_credential,
            "Salt has more than 1024 bytes",
        ),
    ],
)
def test_what_kafka_refuses_is_refused_in_its_words(
    change: Deletion | Upsertion, error: ErrorCode, message: str
) -> None:
    tree = started()
    assert altered(tree, change) == {change.user: Problem(error, message)}
    assert tree.image.scram == {}


@pytest.mark.parametrize("iterations", [4_096, 16_384])
def test_the_bounds_of_iterations_are_allowed(iterations: int) -> None:
    assert altered(started(), upsertion(iterations=iterations)) == {}


@pytest.mark.parametrize(
    "changes",
    [
        (upsertion(), upsertion(mechanism=2)),
        (upsertion(), upsertion(mechanism=2), upsertion(iterations=1)),
        (Deletion("ann", 2), Deletion("ann", 2)),
        (Deletion("ann", 2), upsertion()),
    ],
)
def test_a_user_that_is_altered_twice_is_not_altered(changes: tuple[Deletion | Upsertion, ...]) -> None:
    tree = started()
    altered(tree, upsertion(mechanism=2, iterations=9_000))
    refused = altered(tree, *changes, upsertion(user="bob"))
    assert refused["ann"] == Problem(
        ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"
    )
    assert mechanisms(tree) == [(2, 9_000)] and mechanisms(tree, "bob") == [(1, 4_096)]


def test_the_first_thing_that_is_wrong_with_a_user_is_told() -> None:
    refused = altered(started(), Deletion("ann", 1), upsertion())
    assert refused["ann"].error == ErrorCode.resource_not_found


@pytest.mark.parametrize("user", ["a/b", "..", ".", "é=,\n", "%2E", "a b", "/", "User:x"])
def test_any_name_has_a_path_of_its_own_and_comes_back(user: str) -> None:
    path = scram_path(user)
    assert path.startswith("/scram/") and path.count("/") == 2 and not path.endswith(".")
    tree = started()
    altered(tree, upsertion(user))
    assert [*tree.image.scram] == [*tree.loaded().scram] == [user]
    altered(tree, Deletion(user, 1))
    assert tree.image.scram == {}


def test_one_request_alters_a_bounded_number_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "SCRAM_USERS_CHANGED_MAX", 2)
    tree = started()
    altered(tree, upsertion("z"))
    weak = upsertion("c", iterations=1)
    refused = altered(
        tree, Deletion("z", 1), upsertion("a"), upsertion("b"), upsertion("a"), weak, upsertion("d")
    )
    assert {user: refusal.error for user, refusal in refused.items()} == {
        "b": ErrorCode.policy_violation,
        "a": ErrorCode.duplicate_resource,
        "c": ErrorCode.unacceptable_credential,
    }
    assert [*tree.image.scram] == ["d"]


def test_the_number_of_users_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "SCRAM_USERS_MAX", 2)
    tree = started()
    refused = altered(tree, upsertion("a"), upsertion("b"), upsertion("c"))
    assert [*refused] == ["c"] and refused["c"].error == ErrorCode.policy_violation
    assert altered(tree, upsertion("a", mechanism=2)) == {}
