"""The part of a task: a transaction that it opens, writes in, and leaves open for the driver.

A transactional id belongs to a worker process and one of its slots, never to a task: a second attempt of a
task must not end the transaction of the first. A slot is free again in the same run at a later batch, because
by then Spark knows that the driver has ended its transaction. Slots of other runs are never used again: their
transactions may be decided, and not ended yet.

**Invariant:** one process alone writes under an identity; a task never commits.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, Refused
from tidelog.client.identity import identity_of
from tidelog.client.sender import Sender
from tidelog.client.transaction_messages import Opened
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.exactly_once import stops

ABORT_TIMEOUT_MS = 5_000  # of a task that has failed: the driver aborts what is left
SUM_MASK = 2**64 - 1
SINKS_MAX = 1_000  # sinks whose slots a worker remembers


class Place(NamedTuple):
    """Where a task stands."""

    sink_id: str
    run: str
    batch: int
    task: int
    attempt: int
    planned_ms: int  # by the clock of the driver, before any task of the batch


@dataclass(frozen=True)
class TaskReport:
    """What a task tells the driver; `opened` is None if it had no rows."""

    place: Place
    opened: Opened | None
    rows: int
    row_sum: int


def pattern_of(sink_id: str) -> str:
    """The ids of all tasks of a sink; none of another sink, whose name may begin with this one's."""
    return f"{re.escape(sink_id)}/[0-9a-f]{{16}}/[0-9]+"


@dataclass
class _Slot:
    number: int
    batch: int


class Slots:
    """The slots of one worker process. Their numbers are never used twice."""

    def __init__(self) -> None:
        self._worker = (0, "")  # process id, and a name that no other process has
        self._count = 0
        self._runs: dict[str, tuple[str, list[_Slot]]] = {}  # by sink: its last run here, and the run's slots

    def take(self, place: Place) -> str:
        """The transactional id of a task."""
        if self._worker[0] != os.getpid():  # a forked process is another worker
            self._worker = (os.getpid(), secrets.token_hex(8))
            self._runs.clear()
        run, slots = self._runs.pop(place.sink_id, ("", []))
        if run != place.run:
            slots = []
        self._runs[place.sink_id] = (place.run, slots)  # the sink used last is the last
        if len(self._runs) > SINKS_MAX:
            del self._runs[next(iter(self._runs))]
        slot = next((slot for slot in slots if slot.batch < place.batch), None)
        if slot is None:
            slot = _Slot(self._count, place.batch)
            self._count += 1
            slots.append(slot)
        slot.batch = place.batch
        return f"{place.sink_id}/{self._worker[1]}/{slot.number}"


SLOTS = Slots()


class TaskTransaction:
    def __init__(
        self, cluster: Cluster, properties: Mapping[str, str], place: Place, timeout_ms: int, slots: Slots
    ) -> None:
        self._cluster = cluster
        self._properties = properties
        self._place = place
        self._timeout_ms = timeout_ms
        self._slots = slots
        self._opened: Opened | None = None
        self._sender: Sender | None = None

    def sender(self) -> Sender:
        """The sender of the transaction; called with the first row."""
        if self._sender is None:
            self._opened = self._begin()
            identity = identity_of(self._opened)
            self._sender = Sender(self._cluster, properties=self._properties, identity=identity)
        return self._sender

    def finish(self, rows: int, row_sum: int) -> TaskReport:
        """Everything is in the log; the transaction stays open."""
        if self._sender is not None:
            self._sender.flush()
        return TaskReport(self._place, self._opened, rows, row_sum & SUM_MASK)

    def give_up(self) -> None:
        """Abort after a failure, if that is quick."""
        if self._sender is not None:
            self._sender.close()
        if self._opened is not None:
            with suppress(ClientError):
                self._cluster.transactions.end([self._opened], commits=False, timeout_ms=ABORT_TIMEOUT_MS)

    def _begin(self) -> Opened:
        transactional_id = self._slots.take(self._place)
        try:
            return self._cluster.transactions.begin(transactional_id, self._timeout_ms)
        except Refused as refused:
            if refused.code == ErrorCode.invalid_transaction_timeout:
                raise stops.timeout_too_long(self._timeout_ms) from refused
            if refused.code == ErrorCode.transactional_id_authorization_failed:
                raise stops.not_authorized(self._place.sink_id) from refused
            raise
