"""SCRAM credentials, as facts in the tree and decisions about them (KIP-554).

A credential has the same fields as Kafka's: salt, stored key, server key and iterations (RFC 5802). Neither a
password nor a salted password is kept: the two keys suffice to authenticate a client, and for the broker to
authenticate itself, but not to log in as the user.

**Invariant:** a request has at most one change per user and a bounded number of users;
nothing in here can be printed with its keys.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple

from tidelog.base.limits import (
    SCRAM_ITERATIONS_MAX,
    SCRAM_ITERATIONS_MIN,
    SCRAM_SALT_SIZE_MAX,
    SCRAM_USER_LENGTH_MAX,
    SCRAM_USERS_CHANGED_MAX,
    SCRAM_USERS_MAX,
)
from tidelog.cluster.facts import encode_fields
from tidelog.cluster.image import Image
from tidelog.cluster.paths import SCRAM, escape_name
from tidelog.cluster.store import Create, Delete, Operation, Write
from tidelog.protocol.errors import ErrorCode, Problem


class Mechanism(NamedTuple):
    number: int
    name: str
    digest: str


MECHANISMS = {
    1: Mechanism(1, "SCRAM-SHA-256", "sha256"),
    2: Mechanism(2, "SCRAM-SHA-512", "sha512"),
}


class Deletion(NamedTuple):
    user: str
    mechanism: int


class Upsertion(NamedTuple):
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion(user={self.user!r}, mechanism={self.mechanism})"


_TWICE = Problem(
    ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"
)
_NAMELESS = Problem(ErrorCode.unacceptable_credential, "Username must not be empty")
_NO_MECHANISM = Problem(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
_ABSENT = Problem(ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist")
_TOO_MANY = Problem(
    ErrorCode.policy_violation, f"At most {SCRAM_USERS_CHANGED_MAX} users are altered by one request"
)
_KEYLESS = Problem(ErrorCode.unknown_server_error, "")  # Kafka's answer for an empty key


def scram_path(user: str) -> str:
    return f"{SCRAM}/{escape_name(user)}"


def credentials_of(image: Image, user: str) -> list[tuple[Mechanism, int]]:
    """The mechanisms for which a user has a credential, with the iterations of each."""
    kept = image.scram.get(user, {})
    return [
        (mechanism, kept[mechanism.name]["iterations"])
        for mechanism in MECHANISMS.values()
        if mechanism.name in kept
    ]


def derive_credential(upsertion: Upsertion) -> dict[str, Any]:
    """The stored fields of a salted password."""
    digest = MECHANISMS[upsertion.mechanism].digest
    client_key = hmac.digest(upsertion.salted_password, b"Client Key", digest)
    return {
        "iterations": upsertion.iterations,
        "salt": b64encode(upsertion.salt).decode(),
        "stored_key": b64encode(hashlib.new(digest, client_key).digest()).decode(),
        "server_key": b64encode(hmac.digest(upsertion.salted_password, b"Server Key", digest)).decode(),
    }


class Alteration(NamedTuple):
    operations: list[Operation]
    altered: list[str]  # the users whose change is among the operations
    refused: dict[str, Problem]


def decide_alteration(
    image: Image, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> Alteration:
    """The operations for the changes that are allowed, and the first problem of each refused user."""
    accepted: dict[str, Deletion | Upsertion] = {}
    refused: dict[str, Problem] = {}
    room = SCRAM_USERS_MAX - len(image.scram)
    changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for change in changes:
        user = change.user
        if user in refused:
            continue
        problem = _TWICE if accepted.pop(user, None) is not None else _problem(image, change, room)
        if problem is None and len(accepted) >= SCRAM_USERS_CHANGED_MAX:
            problem = _TOO_MANY
        if problem is not None:
            refused[user] = problem
            continue
        accepted[user] = change
        room -= user not in image.scram
    operations = [_operation(image, change) for change in accepted.values()]
    return Alteration(operations, list(accepted), refused)


def _problem(image: Image, change: Deletion | Upsertion, room: int) -> Problem | None:
    if not change.user:
        return _NAMELESS
    mechanism = MECHANISMS.get(change.mechanism)
    if mechanism is None:
        return _NO_MECHANISM
    if isinstance(change, Deletion):
        return None if mechanism.name in image.scram.get(change.user, {}) else _ABSENT
    if change.iterations < SCRAM_ITERATIONS_MIN:
        return Problem(ErrorCode.unacceptable_credential, "Too few iterations")
    if change.iterations > SCRAM_ITERATIONS_MAX:
        return Problem(ErrorCode.unacceptable_credential, "Too many iterations")
    if not change.salted_password:
        return _KEYLESS
    return _too_much(change, room <= 0 and change.user not in image.scram)


def _too_much(change: Upsertion, is_full: bool) -> Problem | None:
    """Bounds of our own: every broker keeps all credentials in memory."""
    if len(change.user) > SCRAM_USER_LENGTH_MAX:
        return Problem(
            ErrorCode.unacceptable_credential, f"Username has more than {SCRAM_USER_LENGTH_MAX} characters"
        )
    if len(change.salt) > SCRAM_SALT_SIZE_MAX:
        return Problem(ErrorCode.unacceptable_credential, f"Salt has more than {SCRAM_SALT_SIZE_MAX} bytes")
    if is_full:
        return Problem(
            ErrorCode.policy_violation, f"There are {SCRAM_USERS_MAX} users already, which is the limit"
        )
    return None


def _operation(image: Image, change: Deletion | Upsertion) -> Operation:
    path = scram_path(change.user)
    kept = dict(image.scram.get(change.user, {}))
    name = MECHANISMS[change.mechanism].name
    if isinstance(change, Deletion):
        del kept[name]
    else:
        kept[name] = derive_credential(change)
    if not kept:
        return Delete(path, image.versions[path])
    if path in image.versions:
        return Write(path, encode_fields(**kept), image.versions[path])
    return Create(path, encode_fields(**kept))
