"""Transactions that one process opens and another one may end: every request of them but Produce.

    opened = cluster.transactions.begin("my-id", timeout_ms=60_000)  # fences, and aborts what is open
    Sender(cluster, properties={}, identity=identity_of(opened))     # writes in the transaction
    cluster.transactions.end([opened], commits=True, timeout_ms=120_000)  # in any process

Retriable errors are retried, with short pauses: most of them pass when the markers of the transaction before
are written. Needs a cluster with `transaction.version` 2 (KIP-890): there a transaction is known by its
identity, because the epoch rises with each end.

**Invariant:** an answer that was lost is never taken for a success: a request is repeated, or the caller
hears `GaveUp`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tidelog.client.attempts import Attempts
from tidelog.client.codes import name_of, passes
from tidelog.client.connection import Connection
from tidelog.client.coordinators import GROUP, TRANSACTION, Coordinators
from tidelog.client.errors import (
    ClientError,
    ConnectionLost,
    MalformedAnswer,
    Refused,
    TopicGone,
    TopicPartition,
    UnsupportedByBroker,
)
from tidelog.client.exchange import KioExchange
from tidelog.client.properties import Address, Properties, read_number
from tidelog.client.routes import Routes
from tidelog.client.transaction_messages import (
    ONGOING,
    CommittedOffset,
    Described,
    Opened,
    commit_exchange,
    describe_exchange,
    end_exchange,
    init_exchange,
    list_exchange,
    stable_fetch_exchange,
)
from tidelog.protocol.errors import ErrorCode

FEATURE, LEVEL = "transaction.version", 2
DESCRIBED_AT_ONCE = 1_000
_PAUSES = {"retry.backoff.ms": "5", "retry.backoff.max.ms": "200"}


class Transactions:
    def __init__(self, routes: Routes, properties: Properties) -> None:
        self._routes = routes
        self._properties = {**properties, **_PAUSES}
        self._timeout_ms = read_number(properties, "default.api.timeout.ms", 60_000)
        self._coordinators = Coordinators(routes)

    def begin(self, transactional_id: str, timeout_ms: int) -> Opened:
        """A new identity. Every earlier one of the id is fenced, and its open transaction is aborted."""
        attempts = self._attempts(f"beginning a transaction of {transactional_id}")
        exchange = init_exchange(transactional_id, timeout_ms)
        while True:
            answers, problem = self._ask(TRANSACTION, [(transactional_id, exchange)], attempts)
            if problem is None:
                answer = answers[0]
                if answer.error_code == ErrorCode.none:
                    return Opened(transactional_id, answer.producer_id, answer.producer_epoch)
                problem = self._problem(TRANSACTION, transactional_id, "InitProducerId", answer.error_code)
            attempts.again(problem)

    def end(self, opened: Collection[Opened], *, commits: bool, timeout_ms: int) -> dict[Opened, int]:
        """End each transaction; the error code of each, none of which is retriable."""
        attempts = self._attempts("ending transactions", timeout_ms)
        codes: dict[Opened, int] = {}
        while left := [each for each in opened if each not in codes]:
            asked = [(each.transactional_id, end_exchange(each, commits)) for each in left]
            answers, problem = self._ask(TRANSACTION, asked, attempts)
            for place, answer in answers.items():
                code = answer.error_code
                if passes(code):
                    name = left[place].transactional_id
                    problem = problem or self._problem(TRANSACTION, name, "EndTxn", code)
                else:
                    codes[left[place]] = code
            if problem is not None:
                attempts.again(problem)
        return codes

    def commit_offsets(
        self, opened: Opened, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Add offsets of a group to the transaction."""
        attempts = self._attempts(f"committing offsets of group {group_id}")
        exchange = commit_exchange(opened, group_id, offsets)
        while True:
            answers, problem = self._ask(GROUP, [(group_id, exchange)], attempts)
            if problem is None:
                codes = [row.error_code for topic in answers[0].topics for row in topic.partitions]
                refused = [code for code in codes if code != ErrorCode.none]
                if not refused:
                    return
                worst = min(refused, key=passes)
                if worst == ErrorCode.unknown_topic_or_partition:
                    message = f"{', '.join(map(str, offsets))}: TxnOffsetCommit: {name_of(worst)}"
                    attempts.again(TopicGone(message))
                    continue
                problem = self._problem(GROUP, group_id, "TxnOffsetCommit", worst)
            attempts.again(problem)

    def committed(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """The group's offsets of these partitions, and of all others in which it has some. Waits until no
        open transaction may change one of them."""
        attempts = self._attempts(f"reading the offsets of group {group_id}")
        # A group whose first offset is pending is not listed by some brokers: ask for the partitions, too.
        exchanges = [stable_fetch_exchange(group_id, asked) for asked in (partitions, None)]
        while True:
            answers, problem = self._ask(GROUP, [(group_id, each) for each in exchanges], attempts)
            if problem is None:
                found: dict[TopicPartition, CommittedOffset] = {}
                codes = [_read_offsets(answers[place], found) for place in range(len(exchanges))]
                code = next((code for code in codes if code != ErrorCode.none), ErrorCode.none)
                if code == ErrorCode.none:
                    return found
                problem = self._problem(GROUP, group_id, "OffsetFetch", code)
            attempts.again(problem)

    def describe(self, transactional_ids: Collection[str]) -> dict[str, Described]:
        """The state of each id that its coordinator knows."""
        attempts = self._attempts("describing transactions")
        names = list(dict.fromkeys(transactional_ids))
        found: dict[str, Described | None] = {}
        while left := [name for name in names if name not in found]:
            problem = self._describe_once(left, found, attempts)
            if problem is not None:
                attempts.again(problem)
        return {name: row for name, row in found.items() if row is not None}

    def list_open(self, pattern: str, older_than_ms: int = -1) -> list[str]:
        """The ids of all brokers that match and have an open transaction."""
        attempts = self._attempts("listing transactions")
        exchange, matches = list_exchange(pattern, older_than_ms), re.compile(pattern)
        while True:
            try:
                found: dict[str, None] = {}
                for address in self._routes.brokers(attempts):
                    answer = self._routes.connect(address, attempts).call(exchange, attempts.seconds_left)
                    if answer.error_code != ErrorCode.none:
                        raise self._problem(TRANSACTION, pattern, "ListTransactions", answer.error_code)
                    rows = answer.transaction_states
                    names = [row.transactional_id for row in rows if row.transaction_state == ONGOING]
                    found |= dict.fromkeys(name for name in names if matches.fullmatch(name))
                return sorted(found)
            except ConnectionLost as problem:
                attempts.again(problem)

    def _describe_once(
        self, names: Sequence[str], found: dict[str, Described | None], attempts: Attempts
    ) -> ClientError | None:
        """Ask each coordinator once; a retriable problem."""
        try:
            homes = self._coordinators.find(TRANSACTION, names, attempts)
        except ConnectionLost as lost:
            return lost
        by_home: dict[Address, list[str]] = {}
        for name in names:
            by_home.setdefault(homes[name], []).append(name)
        problem: ClientError | None = None
        for those in by_home.values():
            for first in range(0, len(those), DESCRIBED_AT_ONCE):
                piece = those[first : first + DESCRIBED_AT_ONCE]
                asked = [(piece[0], describe_exchange(piece))]
                answers, failed = self._ask(TRANSACTION, asked, attempts)
                problem = problem or failed
                for row in answers[0].transaction_states if answers else ():
                    name = row.transactional_id
                    if row.error_code == ErrorCode.none:
                        identity = Opened(name, row.producer_id, row.producer_epoch)
                        found[name] = Described(row.transaction_state, identity)
                    elif row.error_code == ErrorCode.transactional_id_not_found:
                        found[name] = None
                    else:
                        problem = self._problem(TRANSACTION, name, "DescribeTransactions", row.error_code)
        return problem

    def _ask(
        self, kind: int, asked: Sequence[tuple[str, KioExchange]], attempts: Attempts
    ) -> tuple[dict[int, Any], ClientError | None]:
        """Send all requests to the coordinators of their names, then receive; the answers that came, by
        place, and a retriable problem."""
        answers: dict[int, Any] = {}
        under_way: list[tuple[int, str, Connection, int]] = []
        problem: ClientError | None = None
        try:
            homes = self._coordinators.find(kind, [name for name, _ in asked], attempts)
            for place, (name, exchange) in enumerate(asked):
                try:
                    connection = self._routes.connect(homes[name], attempts)
                    _require_level(connection)
                    under_way.append((place, name, connection, connection.send(exchange)))
                except ConnectionLost as lost:
                    problem = self._lost(kind, name, lost)
            for place, name, connection, correlation in under_way:
                try:
                    answers[place] = connection.receive(correlation, max(attempts.seconds_left, 0.001))
                except ConnectionLost as lost:
                    problem = self._lost(kind, name, lost)
        except ConnectionLost as lost:
            problem = lost
        finally:
            for place, _, connection, correlation in under_way:
                if place not in answers:
                    connection.forget(correlation)
        if problem is None and len(answers) != len(asked):
            raise MalformedAnswer("a coordinator left out an answer")
        return answers, problem

    def _lost(self, kind: int, name: str, lost: ConnectionLost) -> ConnectionLost:
        self._coordinators.forget(kind, [name])
        return lost

    def _problem(self, kind: int, name: str, api: str, code: int) -> ConnectionLost:
        """A retriable error, after which the coordinator is looked up again; any other is raised."""
        message = f"{name}: {api}: {name_of(code)}"
        if not passes(code):
            raise Refused(message, code)
        if code not in (ErrorCode.concurrent_transactions, ErrorCode.unstable_offset_commit):
            self._coordinators.forget(kind, [name])
        return ConnectionLost(message)

    def _attempts(self, what: str, timeout_ms: int | None = None) -> Attempts:
        return Attempts(what, self._timeout_ms if timeout_ms is None else timeout_ms, self._properties)


def _require_level(connection: Connection) -> None:
    level = connection.level_of(FEATURE)
    if level < LEVEL:
        raise UnsupportedByBroker(
            f"{connection.address} has {FEATURE} {level}: expected at least {LEVEL}; "
            "raise the feature of the cluster, or write without transactions"
        )


def _read_offsets(answer: Any, found: dict[TopicPartition, CommittedOffset]) -> int:
    """Add the offsets of an answer; its first error that says anything."""
    group = answer.groups[0]
    if group.error_code != ErrorCode.none:
        return int(group.error_code)
    for topic in group.topics:
        for row in topic.partitions:
            if row.error_code != ErrorCode.none:
                return int(row.error_code)
            if row.committed_offset >= 0:
                partition = TopicPartition(topic.name, row.partition_index)
                found[partition] = CommittedOffset(row.committed_offset, row.metadata or "")
    return ErrorCode.none
