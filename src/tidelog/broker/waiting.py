"""The waiting room: requests that cannot be answered yet, until an offset, some bytes or a deadline.

**Invariant:** a parked request leaves exactly once: finished, timed out, dropped with its connection, or
failed by a bug, which concerns nobody else.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from tidelog.base.limits import (
    GONE_SEATS_KEPT_MAX,
    PARKED_PARTITIONS_MAX,
    PARKED_REQUESTS_MAX,
    PIPELINED_REQUESTS_MAX,
)
from tidelog.protocol.connection import Answer, Connection, Slot
from tidelog.replication.partition import Partition
from tidelog.replication.watches import Watches


class Parked(Slot):
    """A request in the waiting room; what it waits for is the subclass's. (Not an ABC: `isinstance` with
    one of those costs a microsecond, on the way of every request.)"""

    __slots__ = (
        "api_key",
        "connection",
        "deadline_ms",
        "early",
        "is_gone",
        "is_seated",
        "is_woken",
        "parked_ms",
        "partitions",
    )

    def __init__(self, deadline_ms: int, partitions: list[Partition]) -> None:
        self.answer = None
        self.is_done = False
        self.deadline_ms = deadline_ms
        self.partitions = partitions
        self.connection: Connection | None = None  # that it is parked for
        self.is_gone = False
        self.is_seated = False
        self.is_woken = False  # to be looked at, and not yet
        self.early: Answer | None = None  # that it got before it was parked
        self.api_key = -1  # with the time of its arrival set by the caller of `park`, for the metrics
        self.parked_ms = 0

    def note_moved(self, partition: Partition) -> None:
        """A parked request reads its partitions again when it is looked at."""

    def woken_by(self, partition: Partition) -> Parked | None:
        return self

    def try_finish(self) -> Answer | None:
        """The answer if there is one now; called when one of the partitions has moved."""
        return None

    def finish_late(self) -> Answer | None:
        """The answer when the deadline has come; None for a request that gets none."""
        return None


class WaitingRoom:
    """A request that is answered within the turn it arrived in (a commit, mostly) never gets a deadline.

    Thousands may wait for one partition, or until the same moment. `wake_next` looks at one of them, so that
    the caller can end its turn between two. Requests that are woken later take turns with those."""

    def __init__(self) -> None:
        self.watches: Watches[Parked] = Watches()
        self.on_moved = self.watches.on_moved  # who waits for a partition is looked at in `wake_next`
        self._deadlines: list[tuple[int, int, Parked]] = []
        self._standing: list[Parked] = []  # who has come in this moment
        self._sequence = 0
        self._woken: deque[deque[Parked]] = deque()  # to be looked at, one of each group after the other
        self._due_ms = -1  # deadlines up to this one are over
        self.count = 0
        self._seated_counts: dict[int, int] = {}  # by API key
        self.watched_count = 0  # partitions that parked requests wait for, each counted for each request
        self.answered: list[Parked] = []  # what has left, answered: its connection has output
        self.failed: list[tuple[Parked, Exception]] = []  # by a bug; their connections are to be closed

    @property
    def counts(self) -> dict[int, int]:
        """How many wait, by API key."""
        self._seat()
        return self._seated_counts

    def park(self, parked: Parked, connection: Connection) -> bool:
        """Let a request wait for its answer; False, and nothing done, if too many do already."""
        if (
            len(connection.slots) >= PIPELINED_REQUESTS_MAX
            or self.count >= PARKED_REQUESTS_MAX
            or self.watched_count >= PARKED_PARTITIONS_MAX
        ):
            return False
        connection.hold(parked)
        self._admit(parked, connection)
        return True

    def replace(self, parked: Parked, other: Parked) -> None:
        """Have another request answered in the place of one that waits."""
        connection = parked.connection
        assert connection is not None
        self._forget(parked)
        connection.slots[connection.slots.index(parked)] = other
        other.api_key, other.parked_ms = parked.api_key, parked.parked_ms
        other.deadline_ms = min(other.deadline_ms, parked.deadline_ms)
        self._admit(other, connection)

    def _admit(self, parked: Parked, connection: Connection) -> None:
        parked.connection = connection
        self.count += 1
        self._standing.append(parked)
        if parked.partitions:
            self.watched_count += len(parked.partitions)
            for partition in parked.partitions:
                self.watches.watch(partition, parked)

    def _seat(self) -> None:
        standing, self._standing = self._standing, []
        for parked in standing:
            if not parked.is_gone:
                parked.is_seated = True
                self._seated_counts[parked.api_key] = self._seated_counts.get(parked.api_key, 0) + 1
                self._sequence += 1
                heappush(self._deadlines, (parked.deadline_ms, self._sequence, parked))

    @property
    def has_woken(self) -> bool:
        """There is somebody for `wake_next` to look at, perhaps."""
        return bool(self._woken or self.watches.moved) or self._is_any_late

    @property
    def _is_any_late(self) -> bool:
        deadlines = self._deadlines
        return bool(deadlines) and deadlines[0][0] <= self._due_ms

    def wake(self) -> None:
        """Answer all that can be answered now, where no connection can be closed: a bug is raised."""
        while self.wake_next():
            pass
        for _, bug in self.failed:
            raise bug

    def wake_next(self) -> bool:
        """Look at one whose partition has moved, and at one whose time is over; False if there is neither.
        What they got can leave before the next ones are looked at."""
        if self.watches.moved and not self._woken:
            self.find_woken()
        woken = self._next_woken()
        if woken is not None:
            try:
                answer = woken.try_finish()
            except Exception as bug:
                self._fail(woken, bug)
            else:
                if answer is not None:
                    self._leave(woken, answer)
        late = self._next_late() if self._is_any_late else None
        if late is not None:
            self.finish_now(late)
        return woken is not None or late is not None

    def look_at(self, parked: Parked) -> None:
        """Have a request looked at in its turn: it has a piece of its work to do, parked or about to be."""
        if not parked.is_woken:
            parked.is_woken = True
            self._woken.append(deque([parked]))

    def find_woken(self) -> None:
        """Those who wait for what has moved are to be looked at: each once, however much of that it was."""
        group: deque[Parked] = deque()
        for parked in self.watches.take_woken():
            if not parked.is_woken:
                parked.is_woken = True
                group.append(parked)
        if group:
            self._woken.append(group)

    def _next_woken(self) -> Parked | None:
        while self._woken:
            group = self._woken.popleft()
            parked = group.popleft()
            parked.is_woken = False
            if group:
                self._woken.append(group)
            if not parked.is_gone:
                return parked
        return None

    def _next_late(self) -> Parked | None:
        while self._is_any_late:
            parked = heappop(self._deadlines)[2]
            if not parked.is_gone:
                return parked
        return None

    def tick(self, uptime_ms: int) -> None:
        """Deadlines up to this one are over; `wake` answers."""
        self._seat()
        self._due_ms = uptime_ms
        while self._deadlines and self._deadlines[0][2].is_gone:
            heappop(self._deadlines)

    @property
    def first_deadline_ms(self) -> int | None:
        """When `tick` has something to do at the earliest, or a little before that."""
        if self._standing:
            self._seat()
        return self._deadlines[0][0] if self._deadlines else None

    def finish(self, parked: Parked, answer: Answer | None) -> None:
        """Answer a parked request from outside, unless it has left; one that is yet to be parked is not."""
        if parked.connection is None:
            parked.is_gone, parked.early = True, answer
        elif not parked.is_gone:
            self._leave(parked, answer)

    def finish_now(self, parked: Parked) -> None:
        """Answer a parked request as if its deadline had come."""
        try:
            answer = parked.finish_late()
        except Exception as bug:
            self._fail(parked, bug)
        else:
            self._leave(parked, answer)

    def fail(self, parked: Parked, bug: Exception) -> None:
        """A bug was met in work for a request; one that has left, or never waited, is not concerned."""
        if parked.connection is not None and not parked.is_gone:
            self._fail(parked, bug)

    def _fail(self, parked: Parked, bug: Exception) -> None:
        self._forget(parked)
        self.failed.append((parked, bug))

    def drop(self, connection: Connection) -> None:
        """The connection is closed: nobody waits on it any more."""
        for parked in connection.held():
            if isinstance(parked, Parked) and not parked.is_gone:
                self._forget(parked)

    def _leave(self, parked: Parked, answer: Answer | None) -> None:
        assert parked.connection is not None
        self._forget(parked)
        parked.connection.fill(parked, answer)
        self.answered.append(parked)

    def _forget(self, parked: Parked) -> None:
        parked.is_gone = True
        self.count -= 1
        if parked.partitions:
            self.watched_count -= len(parked.partitions)
            for partition in parked.partitions:
                self.watches.unwatch(partition, parked)
        if parked.is_seated:
            self._seated_counts[parked.api_key] -= 1
            if len(self._deadlines) > 2 * self.count + GONE_SEATS_KEPT_MAX:
                self._deadlines = [entry for entry in self._deadlines if not entry[2].is_gone]
                heapify(self._deadlines)
