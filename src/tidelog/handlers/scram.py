"""DescribeUserScramCredentials and AlterUserScramCredentials: kept for the day when clients are asked who
they are (KIP-554).

**Invariant:** no key, salt or password is in an answer, a message or a line of the log.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tidelog.base.limits import MESSAGE_LENGTH_MAX, SCRAM_WAIT_MS
from tidelog.broker.broker import Broker
from tidelog.broker.store_change import Settled, StoreChange
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.access import Alteration, Deletion, Upsertion, credentials_of, decide_alteration
from tidelog.cluster.store import Outcome, Refused
from tidelog.handlers.request import Request, Result
from tidelog.handlers.store_changes import FINE, LATE, change_store, problem_of
from tidelog.protocol.errors import ErrorCode, Problem

_OUTDATED = Problem(ErrorCode.request_timed_out, "The credentials were altered by somebody else meanwhile.")


def handle_describe_user_scram_credentials(broker: Broker, request: Request) -> Result:
    """*Behaviour*: the mechanisms and iterations of the users named, or of all; never a key.

    *Versions*: 0 only.
    """
    asked = request.decode()
    counts = Counter(user.name for user in asked.users or ()) or Counter(sorted(broker.image.scram))
    results = tuple(_described(broker, request, user, count) for user, count in counts.items())
    return request.respond(error_code=ErrorCode.none, error_message="", results=results)


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
        error_message=message[:MESSAGE_LENGTH_MAX],
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
    change = _CredentialsChange(broker, deletions, upsertions)

    def answer(problems: list[Problem]) -> bytes:
        return _altered(request, change.alteration, problems[0])

    return change_store(broker, broker.clock.uptime_ms + SCRAM_WAIT_MS, [change], LATE, answer)


class _CredentialsChange(StoreChange[Alteration, Problem]):
    def __init__(self, broker: Broker, deletions: list[Deletion], upsertions: list[Upsertion]) -> None:
        self._broker = broker
        self._deletions = deletions
        self._upsertions = upsertions
        self.alteration = Alteration([], [], {})  # as decided last

    def decide(self) -> Alteration | Settled[Problem]:
        self.alteration = decide_alteration(self._broker.image, self._deletions, self._upsertions)
        return self.alteration if self.alteration.operations else Settled(FINE)

    def write(self, alteration: Alteration, on_outcome: OnOutcome) -> None:
        self._broker.control.write(alteration.operations, on_outcome)

    def row_of(self, alteration: Alteration, outcome: Outcome) -> Problem:
        return _OUTDATED if isinstance(outcome, Refused) else problem_of(outcome)


def _altered(request: Request, alteration: Alteration, problem: Problem) -> bytes:
    problems = dict.fromkeys(alteration.altered, problem) | alteration.refused
    results = tuple(
        request.make(
            "AlterUserScramCredentialsResult",
            user=user,
            error_code=each.error,
            error_message=each.message or None,
        )
        for user, each in problems.items()
    )
    return request.respond(results=results)
