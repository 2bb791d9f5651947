"""Changes of the store that clients ask for: what they hear of each, and one answer for all of a request.

| a change            | its row                                                                  |
|---------------------|--------------------------------------------------------------------------|
| was made            | `FINE`                                                                   |
| cannot be           | the problem; some are known before the store is asked                    |
| is not confirmed    | REQUEST_TIMED_OUT with the reason: it may have been made                 |
| is not in by then   | `LATE`                                                                   |

**Invariant:** a row claims what the store has confirmed, and nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from tidelog.broker.broker import Broker
from tidelog.broker.store_change import StoreChange
from tidelog.cluster.store import Done, Outcome, reason_of
from tidelog.handlers.gathering import Gathering
from tidelog.handlers.request import Result
from tidelog.protocol.connection import Answer
from tidelog.protocol.errors import ErrorCode, Problem

FINE = Problem(ErrorCode.none, "")
LATE = Problem(ErrorCode.request_timed_out, "The store has not answered in time.")
OVER_QUOTA = Problem(ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded.")
Row = TypeVar("Row")


def problem_of(outcome: Outcome) -> Problem:
    """What a client hears of a change that was written."""
    if isinstance(outcome, Done):
        return FINE
    reason = f"The store has not confirmed the change: {reason_of(outcome)}"
    return Problem(ErrorCode.request_timed_out, reason)


def change_store(
    broker: Broker,
    deadline_ms: int,
    changes: Sequence[StoreChange[Any, Row] | Row],
    late: Row,
    answer: Callable[[list[Row]], Answer],
) -> Result:
    """Begin these changes, or take the rows of those that cannot be, and answer with a row for each."""
    gathering = Gathering(broker, deadline_ms, len(changes), late, answer)
    for place, change in enumerate(changes):
        if isinstance(change, StoreChange):
            change.begin(partial(gathering.put, place))
        else:
            gathering.put(place, change)
    return gathering.result()
