"""Who may come in: SCRAM credentials, as facts in the tree and decisions about them (KIP-554).

A credential is what Kafka keeps: salt, stored key, server key and iterations (RFC 5802). Neither a password
nor a salted password is kept: with the first two keys one can check a client and prove oneself to it, not
log in as it.

**Invariant:** a user has one change in a request or none, and a request changes a bounded number of users;
nothing in here can be printed with its keys.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple

from tidelog.base.limits import (
    SCRAM_SALT_SIZE_MAX,
    SCRAM_USER_LENGTH_MAX,
    SCRAM_USERS_CHANGED_MAX,
    SCRAM_USERS_MAX,
)
from tidelog.cluster.image import SCRAM, Image, encode_fields, escape_name
from tidelog.cluster.store import Create, Delete, Operation, Write
from tidelog.protocol.errors import ErrorCode

ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384


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


class Refusal(NamedTuple):
    error: ErrorCode
    message: str | None


_TWICE = Refusal(
    ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"
)
_NAMELESS = Refusal(ErrorCode.unacceptable_credential, "Username must not be empty")
_NO_MECHANISM = Refusal(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
_ABSENT = Refusal(ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist")
_TOO_MANY = Refusal(
    ErrorCode.policy_violation, f"At most {SCRAM_USERS_CHANGED_MAX} users are altered by one request"
)
_KEYLESS = Refusal(ErrorCode.unknown_server_error, None)  # so says Kafka, which cannot sign with no key


def scram_path(user: str) -> str:
    return f"{SCRAM}/{escape_name(user)}"


def credentials_of(image: Image, user: str) -> list[tuple[Mechanism, int]]:
    """The mechanisms that the user has a credential of, and the iterations of each."""
    kept = image.scram.get(user, {})
    return [
        (mechanism, kept[mechanism.name]["iterations"])
        for mechanism in MECHANISMS.values()
        if mechanism.name in kept
    ]


def derive_credential(upsertion: Upsertion) -> dict[str, Any]:
    """What is kept of a salted password."""
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
    altered: list[str]  # the users whose change is in the operations
    refused: dict[str, Refusal]


def decide_alteration(
    image: Image, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> Alteration:
    """What can be changed, in one go; the first thing that is wrong with a user's changes is told."""
    accepted: dict[str, Deletion | Upsertion] = {}
    refused: dict[str, Refusal] = {}
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


def _problem(image: Image, change: Deletion | Upsertion, room: int) -> Refusal | None:
    if not change.user:
        return _NAMELESS
    mechanism = MECHANISMS.get(change.mechanism)
    if mechanism is None:
        return _NO_MECHANISM
    if isinstance(change, Deletion):
        return None if mechanism.name in image.scram.get(change.user, {}) else _ABSENT
    if change.iterations < ITERATIONS_MIN:
        return Refusal(ErrorCode.unacceptable_credential, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        return Refusal(ErrorCode.unacceptable_credential, "Too many iterations")
    if not change.salted_password:
        return _KEYLESS
    return _too_much(change, room <= 0 and change.user not in image.scram)


def _too_much(change: Upsertion, is_full: bool) -> Refusal | None:
    """Bounds of our own: what is kept stays in the memory of every broker."""
    if len(change.user) > SCRAM_USER_LENGTH_MAX:
        return Refusal(
            ErrorCode.unacceptable_credential, f"Username has more than {SCRAM_USER_LENGTH_MAX} characters"
        )
    if len(change.salt) > SCRAM_SALT_SIZE_MAX:
        return Refusal(ErrorCode.unacceptable_credential, f"Salt has more than {SCRAM_SALT_SIZE_MAX} bytes")
    if is_full:
        return Refusal(ErrorCode.policy_violation, f"There are {SCRAM_USERS_MAX} users; no more are kept")
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
