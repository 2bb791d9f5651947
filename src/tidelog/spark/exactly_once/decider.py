"""The driver's part: whether the rows of a micro-batch are written, decided in a transaction of its own.

| step of `commit`                                           | what it excludes                      |
|------------------------------------------------------------|---------------------------------------|
| 1 a new identity of the sink                               | an earlier driver decides             |
| 2 read the marker; a batch that it has is finished         | a replay writes twice                 |
| 3 end what the marker of another run lists                 | step 7 aborts what is decided         |
| 4 list what else is open, on a new run or a repeated task  |                                       |
| 5 every transaction of the tasks is open, and theirs       | a decision that cannot be carried out |
| 6 marker and end of the own transaction: **the decision**  |                                       |
| 7 end the tasks' transactions, then abort those of step 4  | what is aborted is decided later      |

A transaction of step 4 was open before the decision on its batch, so it is of this batch or an earlier one,
and after the decision nobody can decide on it. It is aborted under its identity: what its process may have
begun since is not touched.

**Invariant:** a transaction is committed only if the marker lists it; what the marker lists is never aborted
by a driver.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, GaveUp, Refused, TopicPartition
from tidelog.client.transaction_messages import ONGOING, Opened
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.exactly_once import stops
from tidelog.spark.exactly_once.marker import Entry, Marker, entries_of, pack, unpack
from tidelog.spark.exactly_once.offset_file import PlannedBatch, read_batch
from tidelog.spark.exactly_once.tasks import SUM_MASK, TaskReport, pattern_of

DECISION_TIMEOUT_MS = 60_000  # of the driver's own transaction
ABORT_TIMEOUT_MS = 10_000
SWEEP_SECONDS = 10.0  # between two searches for transactions that nobody will end
YOUNG_MS = 24 * 3_600_000  # a marker does not expire within a day of its batch
LEFT_MS_MAX = 15_000  # a transaction that ends earlier is not decided on
_FENCED = (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch)
_ABORTED = (*_FENCED, ErrorCode.invalid_txn_state)
_EXPIRED = (ErrorCode.invalid_producer_id_mapping, ErrorCode.transactional_id_not_found)

REWRITE, SKIP = "rewrite", "skip"
ASSUME_WRITTEN, ASSUME_NOT_WRITTEN = "assume-written", "assume-not-written"


class Standing(Enum):
    NEW = "new"
    DECIDED = "decided"
    PASSED = "passed"  # a version below the last: nothing to do


@dataclass(frozen=True)
class SinkSettings:
    sink_id: str  # also the driver's transactional id, and the group of the marker
    query: str
    marker_topic: str
    timeout_ms: int
    delivery_timeout_ms: int
    checkpoint: str | None = None
    is_versioned: bool = False  # by txnAppId and txnVersion: a lower version is passed over
    resume_at: int | None = None
    torn_batch: str | None = None
    marker: str | None = None


@dataclass
class SinkMemory:
    """What the driver's process remembers of a sink from batch to batch: to save requests, no more."""

    run: str | None = None
    swept_at: float = field(default=float("-inf"))


@dataclass(frozen=True)
class Clock:
    now_ms: Callable[[], int]  # of the driver's machine
    monotonic: Callable[[], float]


class Decider:
    def __init__(
        self,
        cluster: Cluster,
        settings: SinkSettings,
        memory: SinkMemory,
        clock: Clock,
        warn: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._transactions = cluster.transactions
        self._settings = settings
        self._memory = memory
        self._clock = clock
        self._warn = warn

    def commit(self, batch: int, reports: Sequence[TaskReport]) -> None:
        """All rows of the reports are visible, or were before; or SinkStopped or ClientError."""
        own, run = entries_of(reports), reports[0].place.run
        is_first = run != self._memory.run
        if not own and not is_first:
            return
        owner = self._begin()
        marker = self._read_marker()
        planned = read_batch(self._settings.checkpoint, batch)
        standing = self._standing(batch, own, marker, planned)
        entries: tuple[Entry, ...] | None = own
        if marker is not None and standing is Standing.DECIDED:
            entries = self._finish(marker, own)
        elif standing is not Standing.NEW:
            entries = None
        elif marker is not None and marker.run != run:
            self._end_earlier(marker)
        if entries is not None:
            others = self._others(reports, is_first)
            if entries or others or (marker is None and self._has_topic()):
                self._check_open(batch, entries, own, reports)
                self._decide(owner, Marker(batch, run, planned.print, entries, owner[1:]))
                self._carry_out(batch, entries)
            self._abort(others)
        self._abort(_without(own, entries))
        self._memory.run = run

    def abort(self, batch: int, reports: Sequence[TaskReport]) -> None:
        """Spark gives the batch up, also after a `commit` that failed: what is decided stays so."""
        own = entries_of(reports)
        self._begin()
        marker = self._read_marker()
        decided = marker.entries if marker is not None and marker.batch == batch else ()
        self._end(batch, decided)
        self._abort(_without(own, decided))

    def _begin(self) -> Opened:
        try:
            timeout_ms = min(DECISION_TIMEOUT_MS, self._settings.timeout_ms)
            return self._transactions.begin(self._settings.sink_id, timeout_ms)
        except Refused as refused:
            if refused.code == ErrorCode.transactional_id_authorization_failed:
                raise stops.not_authorized(self._settings.sink_id) from refused
            raise

    def _read_marker(self) -> Marker | None:
        sink_id, topic = self._settings.sink_id, self._settings.marker_topic
        return unpack(self._transactions.committed(sink_id, [TopicPartition(topic, 0)]), sink_id)

    def _standing(
        self, batch: int, own: Collection[Entry], marker: Marker | None, planned: PlannedBatch
    ) -> Standing:
        settings = self._settings
        if marker is None:
            return self._without_marker(batch, planned)
        if marker.batch < batch:
            return Standing.NEW
        if marker.batch > batch:
            if settings.is_versioned:
                return Standing.PASSED
            if settings.resume_at != batch:
                raise stops.old(batch, marker.batch, settings.checkpoint)
            return Standing.NEW
        if self._is_same(own, marker, planned):
            return Standing.DECIDED
        if settings.resume_at != batch:
            raise stops.other(batch, settings.query, bool(planned.print))
        return Standing.NEW

    def _is_same(self, own: Collection[Entry], marker: Marker, planned: PlannedBatch) -> bool:
        """Whether the batch that the marker has is this one."""
        if self._settings.is_versioned:
            return True
        if planned.print and marker.print:
            return planned.print == marker.print
        return _content(own) == _content(marker.entries) or self._settings.marker == ASSUME_WRITTEN

    def _without_marker(self, batch: int, planned: PlannedBatch) -> Standing:
        settings = self._settings
        if batch == 0 or settings.is_versioned or settings.marker == ASSUME_NOT_WRITTEN:
            return Standing.NEW
        if planned.planned_ms is not None and self._clock.now_ms() - planned.planned_ms < YOUNG_MS:
            return Standing.NEW  # the first that this sink writes exactly once
        if settings.marker == ASSUME_WRITTEN:
            return Standing.PASSED
        raise stops.gone(batch, planned.planned_ms, settings.sink_id)

    def _finish(self, marker: Marker, own: tuple[Entry, ...]) -> tuple[Entry, ...] | None:
        """End the transactions of a batch that was decided before; the entries of a new decision if that is
        not possible."""
        lost = self._end(marker.batch, marker.entries)
        if not lost:
            return None
        if len(lost) == len(marker.entries):
            return own  # none of its rows is visible
        if sorted(entry.content for entry in marker.entries) == sorted(entry.content for entry in own):
            tasks = {entry.task for entry in lost}
            kept = [entry for entry in marker.entries if entry.task not in tasks]
            return (*kept, *(entry for entry in own if entry.task in tasks))
        if self._settings.torn_batch == REWRITE:
            return own
        if self._settings.torn_batch == SKIP:
            return None
        raise stops.torn(marker.batch, [entry.task for entry in lost], len(marker.entries))

    def _end_earlier(self, marker: Marker) -> None:
        """Of an earlier batch. Spark repeats a batch until it is finished; who writes versions need not."""
        lost = self._end(marker.batch, marker.entries)
        if lost:
            self._warn(str(stops.torn(marker.batch, [entry.task for entry in lost], len(marker.entries))))

    def _others(self, reports: Sequence[TaskReport], is_first: bool) -> list[Opened]:
        """Open transactions of this sink that no task reports: of killed tasks, drivers, second attempts."""
        now = self._clock.monotonic()
        has_repeats = any(report.place.attempt for report in reports)
        if not is_first and not has_repeats and now - self._memory.swept_at < SWEEP_SECONDS:
            return []
        own = {report.opened for report in reports}
        try:
            found = self._transactions.list_open(pattern_of(self._settings.sink_id))
            described = self._transactions.describe(found)
        except ClientError as problem:
            self._warn(f"open transactions of {self._settings.sink_id} not listed: {problem}")
            return []
        self._memory.swept_at = now
        is_open = [row.identity for row in described.values() if row.state == ONGOING]
        return [identity for identity in is_open if identity not in own]

    def _check_open(
        self, batch: int, entries: Iterable[Entry], own: Iterable[Entry], reports: Sequence[TaskReport]
    ) -> None:
        """Every transaction that is to be decided on is open, as its task has left it, and remains so."""
        ours = set(own)
        wanted = {entry.opened.transactional_id: entry.opened for entry in entries if entry in ours}
        if not wanted:
            return
        seconds = (self._clock.now_ms() - min(report.place.planned_ms for report in reports)) / 1_000
        timeout_ms = self._settings.timeout_ms
        described = self._transactions.describe(wanted)
        for name, opened in wanted.items():
            found = described.get(name)
            if found is None or found.state != ONGOING or found.identity != opened:
                state = "is not known" if found is None else f"was ended ({found.state})"
                raise stops.lost(batch, name, state, seconds, timeout_ms)
        bound_ms = timeout_ms - min(timeout_ms // 4, LEFT_MS_MAX)
        if seconds * 1_000 >= bound_ms:  # their ages, by the clock of the brokers
            pattern = pattern_of(self._settings.sink_id)
            for name in self._transactions.list_open(pattern, older_than_ms=bound_ms):
                if name in wanted:
                    raise stops.lost(batch, name, "is about to time out", seconds, timeout_ms)

    def _decide(self, owner: Opened, marker: Marker) -> None:
        settings = self._settings
        offsets = pack(marker, settings.sink_id, settings.marker_topic)
        if len(offsets) > 1:
            self._check_room(marker, len(offsets))
        try:
            self._transactions.commit_offsets(owner, settings.sink_id, offsets)
            timeout_ms = settings.delivery_timeout_ms
            code = self._transactions.end([owner], commits=True, timeout_ms=timeout_ms)[owner]
        except Refused as refused:
            if refused.code == ErrorCode.offset_metadata_too_large:
                raise stops.marker_too_large(settings.marker_topic) from refused
            if refused.code in _ABORTED:
                raise stops.fenced(marker.batch, settings.query, str(refused)) from refused
            raise
        except GaveUp:
            self._begin()  # from here on the outcome cannot change
            if not self._is_decided(marker):
                raise
            return
        if code != ErrorCode.none and not self._is_decided(marker):
            raise stops.fenced(marker.batch, settings.query, ErrorCode(code).name)

    def _check_room(self, marker: Marker, parts: int) -> None:
        topic = self._settings.marker_topic
        found = self._cluster.describe([topic]).get(topic)
        partitions = 0 if found is None else len(found.partitions)
        if parts > partitions:
            raise stops.too_many_tasks(marker.batch, len(marker.entries), parts, topic, partitions)

    def _has_topic(self) -> bool:
        """Whether a first marker can be left by a batch without rows. With it, a marker that is missing later
        has expired."""
        topic = self._settings.marker_topic
        return topic in self._cluster.describe([topic])

    def _is_decided(self, marker: Marker) -> bool:
        found = self._read_marker()
        return found is not None and (found.batch, found.decision) == (marker.batch, marker.decision)

    def _carry_out(self, batch: int, entries: tuple[Entry, ...]) -> None:
        lost = self._end(batch, entries)
        if lost:
            raise stops.torn(batch, [entry.task for entry in lost], len(entries))

    def _end(self, batch: int, entries: Sequence[Entry]) -> list[Entry]:
        """Commit decided transactions, as often as it takes; those that were aborted, by their timeouts."""
        if not entries:
            return []
        timeout_ms = self._settings.delivery_timeout_ms
        codes = self._transactions.end(
            [entry.opened for entry in entries], commits=True, timeout_ms=timeout_ms
        )
        lost = []
        for entry in entries:
            code = codes[entry.opened]
            if code in _ABORTED:
                lost.append(entry)
            elif code in _EXPIRED:
                if self._settings.marker == ASSUME_NOT_WRITTEN:
                    lost.append(entry)
                elif self._settings.marker != ASSUME_WRITTEN:
                    raise stops.expired(batch)
            elif code != ErrorCode.none:
                name = ErrorCode(code).name.upper()
                raise Refused(f"{entry.opened.transactional_id}: EndTxn: {name}", code)
        return lost

    def _abort(self, opened: Collection[Opened]) -> None:
        """Abort transactions that are not decided; what cannot be reached times out."""
        if not opened:
            return
        try:
            self._transactions.end(opened, commits=False, timeout_ms=ABORT_TIMEOUT_MS)
        except ClientError as problem:
            self._warn(f"{len(opened)} transactions of {self._settings.sink_id} not aborted: {problem}")


class JobDecider(Decider):
    """The driver's part of one `df.write` without a version. Nobody repeats it under its id, so there is no
    marker: the transactions are ended one after the other, within milliseconds."""

    def commit(self, batch: int, reports: Sequence[TaskReport]) -> None:
        own = entries_of(reports)
        self._check_open(batch, own, own, reports)
        lost = self._end(batch, own)
        if lost:
            raise stops.half_written([entry.task for entry in lost], len(own))
        if any(report.place.attempt for report in reports):
            self._abort(self._others(reports, True))

    def abort(self, batch: int, reports: Sequence[TaskReport]) -> None:
        self._abort([entry.opened for entry in entries_of(reports)])
        self._abort(self._others(reports, True))


def _content(entries: Iterable[Entry]) -> tuple[int, int]:
    rows = row_sum = 0
    for entry in entries:
        rows += entry.rows
        row_sum += entry.row_sum
    return rows, row_sum & SUM_MASK


def _without(own: Iterable[Entry], entries: Iterable[Entry] | None) -> list[Opened]:
    kept = set() if entries is None else {entry.opened for entry in entries}
    return [entry.opened for entry in own if entry.opened not in kept]
