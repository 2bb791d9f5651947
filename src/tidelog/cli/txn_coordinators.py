"""Transactional ids from their coordinators: which there are, and where the transaction of each stands.

**Invariant:** an id that is missing because its coordinator does not answer is never taken for one that does
not exist.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidelog.base.limits import TRANSACTIONS_TOLD_MAX
from tidelog.cli import coordinators
from tidelog.cli.coordinators import PASSING, RETRY_S, Answer, Coordinators
from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.group_members import Partition
from tidelog.cli.nodes import Node, describe_cluster
from tidelog.cli.remote import RemoteBroker, check
from tidelog.protocol import apis
from tidelog.protocol.errors import ErrorCode

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
_NO_TIME_MS = -1


class Filters(NamedTuple):
    """What is left empty, or is negative, lets all through."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    longer_than_ms: int = -1
    pattern: str = ""


ALL = Filters()


@dataclass(frozen=True, slots=True)
class Listed:
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """`started_ms` is None if no transaction has begun; `partitions` are those without a marker."""

    transactional_id: str
    coordinator: Node
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[Partition, ...]

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES


class TransactionCoordinators(Coordinators):
    """Of transactional ids."""

    noun = "transactional id"
    key_type = 1

    def describe(self, names: Sequence[str]) -> dict[str, Transaction | Failure | None]:
        """Each transaction, or its failure; None for an id that does not exist."""
        return self._ask(names, _describe)


def _describe(broker: RemoteBroker, node: Node, names: list[str]) -> dict[str, Answer]:
    answers = {}
    for start in range(0, len(names), TRANSACTIONS_TOLD_MAX):
        some = tuple(names[start : start + TRANSACTIONS_TOLD_MAX])
        for found in broker.ask(apis.DESCRIBE_TRANSACTIONS, transactional_ids=some).transaction_states:
            code = found.error_code
            value = _transaction(found, node) if code is ErrorCode.none else None
            is_unknown = code is ErrorCode.transactional_id_not_found
            answers[str(found.transactional_id)] = Answer(ErrorCode.none if is_unknown else code, None, value)
    return answers


def _transaction(found: Any, node: Node) -> Transaction:
    started_ms = round(found.transaction_start_time.timestamp() * 1_000)
    return Transaction(
        str(found.transactional_id),
        node,
        int(found.producer_id),
        int(found.producer_epoch),
        found.transaction_state,
        round(found.transaction_timeout.total_seconds() * 1_000),
        started_ms if started_ms != _NO_TIME_MS else None,
        tuple(
            sorted(
                Partition(str(topic.topic), int(index))
                for topic in found.topics
                for index in topic.partitions
            )
        ),
    )


def no_such_id(name: str) -> Failure:
    return Failure(f"transactional id {name!r} does not exist; see 'tidelog txn list'")


def list_transactions(bootstrap_server: str, filters: Filters = ALL) -> tuple[list[Listed], list[Failure]]:
    """The transactional ids of the cluster, by name, and the failures of brokers that did not answer."""
    found: list[Listed] = []
    failures: list[Failure] = []
    for node in describe_cluster(bootstrap_server).nodes:
        try:
            found += _transactions_at(node, filters)
        except BadWord:
            raise
        except Failure as failure:
            failures.append(
                Failure(f"broker {node.id} does not answer; its transactional ids are missing: {failure}")
            )
    return sorted(found, key=lambda listed: listed.transactional_id), failures


def _transactions_at(node: Node, filters: Filters) -> list[Listed]:
    """What a broker coordinates; one that loads is asked again for a while."""
    with RemoteBroker(node.address) as broker:
        _check_filters(broker, filters)
        for attempt in range(coordinators.RETRIES_MAX):
            if attempt:
                time.sleep(RETRY_S)
            answer = broker.ask(
                apis.LIST_TRANSACTIONS,
                state_filters=filters.states,
                producer_id_filters=filters.producer_ids,
                duration_filter=filters.longer_than_ms,
                transactional_id_pattern=filters.pattern,
            )
            if answer.error_code not in PASSING:
                break
    if answer.error_code is ErrorCode.invalid_regular_expression:
        raise BadWord(f"--pattern {filters.pattern}: not a regular expression (RE2)")
    check(f"the transactions of broker {node.id}", answer.error_code, None)
    return [
        Listed(str(listed.transactional_id), node.id, int(listed.producer_id), str(listed.transaction_state))
        for listed in answer.transaction_states
    ]


def _check_filters(broker: RemoteBroker, filters: Filters) -> None:
    """An older broker would leave out a filter, and list all."""
    fields = broker.types(apis.LIST_TRANSACTIONS).ListTransactionsRequest.__dataclass_fields__
    for option, field, is_given in (
        ("--longer-than", "duration_filter", filters.longer_than_ms >= 0),
        ("--pattern", "transactional_id_pattern", bool(filters.pattern)),
    ):
        if is_given and field not in fields:
            raise Failure(f"the broker at {broker.address} is older than {option}; leave the option out")


def owners_of(
    bootstrap_server: str, producer_ids: Iterable[int]
) -> tuple[dict[int, Transaction], list[Failure]]:
    """What the coordinators have of these producers, and why what they have may be more."""
    listed, failures = list_transactions(bootstrap_server, Filters(producer_ids=tuple(producer_ids)))
    owners: dict[int, Transaction] = {}
    with TransactionCoordinators(bootstrap_server) as asked:
        for found in asked.describe([each.transactional_id for each in listed]).values():
            if isinstance(found, Transaction):
                owners[found.producer_id] = found
            elif found is not None:
                failures.append(found)
    return owners, failures
