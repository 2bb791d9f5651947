"""Which transactions a ListTransactions names: by producer id, state, age and a pattern of the id.

**Invariant:** a pattern is RE2: linear time, whatever a client sends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import re2

from tidelog.base.limits import PATTERN_LENGTH_MAX, PATTERN_MEMORY_MAX
from tidelog.protocol.errors import ErrorCode
from tidelog.transactions.transaction import State, Transaction
from tidelog.transactions.turn import Refused

_STATES = {state.title: state for state in State}
_IN_MEMORY = ("Dead", "PrepareEpochFence")  # of Kafka: known, and never found


class Filters(NamedTuple):
    """What is left empty, or is negative, lets all through."""

    producer_ids: frozenset[int] = frozenset()
    states: tuple[str, ...] = ()
    longer_than_ms: int = -1
    pattern: str | None = None


class Listing(NamedTuple):
    code: ErrorCode
    unknown_states: tuple[str, ...] = ()
    found: tuple[Transaction, ...] = ()


def listing(transactions: Iterable[Transaction], filters: Filters, now_ms: int) -> Listing:
    try:
        pattern = _compiled(filters.pattern)
    except Refused as refusal:
        return Listing(refusal.code)
    unknown = tuple(name for name in filters.states if name not in _STATES and name not in _IN_MEMORY)
    states = [_STATES[name] for name in filters.states if name in _STATES]
    found = tuple(
        each
        for each in transactions
        if (not filters.states or each.state in states)
        and (not filters.producer_ids or each.producer_id in filters.producer_ids)
        and (filters.longer_than_ms < 0 or now_ms - each.started_ms > filters.longer_than_ms)
        and (pattern is None or pattern.fullmatch(each.transactional_id) is not None)
    )
    return Listing(ErrorCode.none, unknown, found)


def _compiled(pattern: str | None) -> Any:
    if not pattern:
        return None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_MAX
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise Refused(ErrorCode.invalid_regular_expression)
    try:
        return re2.compile(pattern, options)
    except re2.error:
        raise Refused(ErrorCode.invalid_regular_expression) from None
