"""SCRAM credentials and access control lists.

Nobody is asked who they are yet, so there is no authorizer: about access control lists this broker says
what Kafka says without one. Credentials are kept for the day when somebody is asked.

**Invariant:** no key, salt or password is in an answer, a message or a line of the log.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from tidelog.broker.broker import Broker
from tidelog.cluster.access import (
    Alteration,
    Deletion,
    Refusal,
    Upsertion,
    credentials_of,
    decide_alteration,
)
from tidelog.cluster.store import Done, Outcome, Refused
from tidelog.handlers.request import Outstanding, Request, Result
from tidelog.protocol.errors import ErrorCode, MalformedRequest

_ZERO = timedelta(0)
_WAIT_MS = 10_000  # these requests have no timeout of their own
_MESSAGE_LENGTH_MAX = 1_000  # messages quote names, and those may be megabytes long
_ATTEMPTS_MAX = 3
_STORE_IS_LATE = Refusal(ErrorCode.request_timed_out, "The store has not answered in time.")
_UNKNOWN = 0  # of resource types, pattern types, operations and permissions


def handle_describe_acls(broker: Broker, request: Request) -> Result:
    """*Behaviour*: SECURITY_DISABLED; a filter for something unknown closes the connection, as in Kafka.

    *Versions*: 1 adds pattern types; 2 is flexible; 3 adds user resources.
    """
    asked = request.decode()
    _check_known(
        asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type
    )
    return request.respond(
        throttle_time=_ZERO,
        error_code=ErrorCode.security_disabled,
        error_message="No Authorizer is configured on the broker",
        resources=(),
    )


def handle_create_acls(broker: Broker, request: Request) -> Result:
    """*Behaviour*: SECURITY_DISABLED for each. *Versions*: as DescribeAcls."""
    asked = request.decode()
    for acl in asked.creations:
        _check_known(acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)
    refused = request.make("AclCreationResult", **_disabled())
    return request.respond(throttle_time=_ZERO, results=(refused,) * len(asked.creations))


def handle_delete_acls(broker: Broker, request: Request) -> Result:
    """*Behaviour*: SECURITY_DISABLED for each. *Versions*: as DescribeAcls."""
    asked = request.decode()
    for acl in asked.filters:
        _check_known(acl.resource_type_filter, acl.pattern_type_filter, acl.operation, acl.permission_type)
    refused = request.make("DeleteAclsFilterResult", matching_acls=(), **_disabled())
    return request.respond(throttle_time=_ZERO, filter_results=(refused,) * len(asked.filters))


def _disabled() -> dict[str, Any]:
    return {
        "error_code": ErrorCode.security_disabled,
        "error_message": "No Authorizer is configured.",
    }


def _check_known(*numbers: int) -> None:
    if _UNKNOWN in numbers:
        raise MalformedRequest("an access control list with an unknown element")


def handle_describe_user_scram_credentials(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the mechanisms and iterations of the users named, or of all; never a key.

    *Versions*: 0 only.
    """
    asked = request.decode()
    counts = Counter(user.name for user in asked.users or ()) or Counter(sorted(broker.image.scram))
    results = tuple(_described(broker, request, user, count) for user, count in counts.items())
    return request.respond(throttle_time=_ZERO, error_code=ErrorCode.none, error_message="", results=results)


def _described(broker: Broker, request: Request, user: str, count: int) -> Any:
    error, message = ErrorCode.none, ""
    if count > 1:
        error = ErrorCode.duplicate_resource
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    elif user not in broker.image.scram:
        error = ErrorCode.resource_not_found
        message = f"Attempt to describe a user credential that does not exist: {user}"
    credentials = [] if error else credentials_of(broker.image, user)
    return request.make(
        "DescribeUserScramCredentialsResult",
        user=user,
        error_code=error,
        error_message=message[:_MESSAGE_LENGTH_MAX],
        credential_infos=tuple(
            request.make("CredentialInfo", mechanism=mechanism.number, iterations=iterations)
            for mechanism, iterations in credentials
        ),
    )


def handle_alter_user_scram_credentials(broker: Broker, request: Request) -> Result:
    """*Behaviour*: what is acceptable is stored, all in one go; the rest is refused user by user.

    *Versions*: 0 only.
    """
    asked = request.decode()
    deletions = [Deletion(deletion.name, deletion.mechanism) for deletion in asked.deletions]
    upsertions = [
        Upsertion(change.name, change.mechanism, change.iterations, change.salt, change.salted_password)
        for change in asked.upsertions
    ]
    alteration = decide_alteration(broker.image, deletions, upsertions)
    if not alteration.operations:
        return _altered(request, alteration, None)

    def late() -> bytes:
        return _altered(request, alteration, _STORE_IS_LATE)

    parked = Outstanding(broker.uptime_ms + _WAIT_MS, late)

    def attempt(alteration: Alteration, attempts_left: int) -> None:
        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Refused) and attempts_left:  # another request was faster: look again
                attempt(decide_alteration(broker.image, deletions, upsertions), attempts_left - 1)
                return
            failure = None if isinstance(outcome, Done) else _store_failure(outcome)
            broker.waiting.finish(parked, _altered(request, alteration, failure))

        broker.control.write(alteration.operations, on_outcome)

    attempt(alteration, _ATTEMPTS_MAX - 1)
    return parked


def _store_failure(outcome: Outcome) -> Refusal:
    if isinstance(outcome, Refused):
        message = "The credentials were altered by somebody else meanwhile."
    else:
        message = f"The store's answer was lost: {outcome}"
    return Refusal(ErrorCode.request_timed_out, message)


def _altered(request: Request, alteration: Alteration, failure: Refusal | None) -> bytes:
    outcome = failure or Refusal(ErrorCode.none, None)
    outcomes = dict.fromkeys(alteration.altered, outcome) | alteration.refused
    results = tuple(
        request.make(
            "AlterUserScramCredentialsResult",
            user=user,
            error_code=result.error,
            error_message=result.message,
        )
        for user, result in outcomes.items()
    )
    return request.respond(throttle_time=_ZERO, results=results)
