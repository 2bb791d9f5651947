"""Compaction: which log is cleaned next, its round, and the swap of what the round has written.

| step                                                            | on       |
|-----------------------------------------------------------------|----------|
| all compacted logs are assessed, some in each turn              | the loop |
| the dirtiest is flushed, if its sealed segments are not         | a thread |
| its round writes new segments                                   | a thread |
| a new segment is prepared (`log.swap`, a)                       | the loop |
| the folder is synced: the swap is decided (b)                   | a thread |
| it is carried out (c to e); the next segment, or the end        | the loop |

Cuts, retention and moves wait for a swap that is prepared. They do not wait for a round: what it has written
is dropped if its sources have changed. A round is cancelled at the next tick after its log has something
else to do.

**Invariant:** one round at a time, and no swap of segments other than those that its round has read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from tidelog.base.descriptors import TOO_MANY_OPEN
from tidelog.base.events import error, info, warning
from tidelog.base.files import Directory
from tidelog.base.limits import ASSESSED_SLICE
from tidelog.broker.data_plane.checkpoints import Checkpoints
from tidelog.broker.data_plane.disks import FULL_DISK, Disks
from tidelog.broker.data_plane.flushing import Flushing
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.data_plane.relocation import Relocation
from tidelog.broker.kernel import Kernel
from tidelog.broker.outbox import Job, JobKind
from tidelog.broker.signal import Signal
from tidelog.log.compaction.cleaning import clean, remove_cleaned
from tidelog.log.compaction.request import CleaningRequest, CleaningResult, NewSegment, SourcesChanged
from tidelog.log.dirtiness import Dirtiness, assess, is_idle, request_round
from tidelog.log.log import Log
from tidelog.log.scan import Damage
from tidelog.log.swap import Sources, carry_out, prepare
from tidelog.replication.partition import Partition

Pace = Callable[[int], None]
RunRound = Callable[[Directory, CleaningRequest, Pace], CleaningResult]


class RoundCancelled(Exception):
    """Nobody wants its outcome any more."""


class RoundFailed(Exception):
    """It could not be run, for no reason that is the disk's: it is tried again."""


class Round(Job):
    """One round, of one log. Whatever it ends with is in it."""

    __slots__ = (
        "_compacting",
        "_run",
        "done_size",
        "is_cancelled",
        "log",
        "partition",
        "problem",
        "request",
        "result",
        "sources",
    )

    kind = JobKind.CLEANING

    def __init__(
        self,
        compacting: Compacting,
        run: RunRound,
        partition: Partition,
        request: CleaningRequest,
    ) -> None:
        self._compacting = compacting
        self._run = run
        self.partition = partition
        self.log: Log = partition.log
        self.request = request
        self.sources = Sources(partition.log, len(request.sources))
        self.is_cancelled = False
        self.done_size = 0  # read and written so far
        self.result: CleaningResult | None = None
        self.problem: Exception | None = None

    @property
    def name(self) -> str:
        return f"{self.partition.topic}-{self.partition.index}"

    def pace(self, size: int) -> None:
        """Called now and then with what was read or written."""
        self.done_size += size
        if self.is_cancelled:
            raise RoundCancelled

    def run(self) -> None:
        directory = self.log.directory
        try:
            self.result = self._run(directory, self.request, self.pace)
        except OSError:
            raise
        except (RoundCancelled, RoundFailed, SourcesChanged, Damage) as problem:
            self.problem = problem
        except Exception as bug:  # no disk has failed
            self.problem = RoundFailed(f"{type(bug).__name__}: {bug}")
        finally:
            if self.result is None:
                with suppress(OSError):
                    remove_cleaned(directory)

    def on_done(self, failure: OSError | None) -> None:
        self._compacting.on_cleaned(self, failure)


class SwapSync(Job):
    """The folder of a log, whose swap is decided when it is synced."""

    __slots__ = ("_compacting", "round")

    kind = JobKind.SWAP

    def __init__(self, compacting: Compacting, round_: Round) -> None:
        self._compacting = compacting
        self.round = round_

    def run(self) -> None:
        self.round.log.directory.sync()

    def on_done(self, failure: OSError | None) -> None:
        self._compacting.on_synced(self.round, failure)


class Uncleanable(NamedTuple):
    sources: Sources  # as long as they are unchanged
    damage: Damage


class Figures:
    """What rounds have done, for those who watch."""

    def __init__(self) -> None:
        self.round_count = 0
        self.read_size = 0
        self.written_size = 0
        self.assessed_ms: int | None = None  # when all logs had been assessed, by the uptime
        self.dirty_ratio_max = 0.0
        self.delay_ms_max = 0
        self.took_ms = 0  # the last round,
        self.recopied = 0.0  # what it has written of what it has read,
        self.map_utilization = 0.0


class Compacting:
    def __init__(
        self,
        kernel: Kernel,
        disks: Disks,
        partitions: Partitions,
        checkpoints: Checkpoints,
        flushing: Flushing,
        relocation: Relocation,
        run: RunRound = clean,
    ) -> None:
        self._kernel = kernel
        self._disks = disks
        self._partitions = partitions
        self._checkpoints = checkpoints
        self._flushing = flushing
        self._relocation = relocation
        self._run = run
        self.swapped: Signal[Partition] = Signal()  # its segments may change again
        self.figures = Figures()
        self.uncleanable: dict[Partition, Uncleanable] = {}
        self.round: Round | None = None  # until its last segment is swapped
        self._queue: deque[Partition] = deque()  # to be assessed
        self._found: list[tuple[float, Partition]] = []  # those that may be cleaned, with their ratio
        self._horizons: dict[Partition, int] = {}  # the first time at which a round would drop more
        self._waiting: Partition | None = None  # for a flush
        self._swaps: deque[NewSegment] = deque()  # of the round, that are still to come
        self._is_syncing = False
        self._begun_ms = 0
        self._next_ms = 0
        self._reasons: dict[Partition, str] = {}  # why its last round has failed

    @property
    def _is_enabled(self) -> bool:
        return self._kernel.settings.flag("log.cleaner.enable")

    def tick(self) -> None:
        if self.round is not None:
            if not self._swaps and not self._stands(self.round):
                self.round.is_cancelled = True
            return
        if self._waiting is not None and not self._may_begin(self._waiting):
            self._waiting = None
        now_ms = self._kernel.clock.uptime_ms
        if self._is_enabled and not self._queue and self._waiting is None and now_ms >= self._next_ms:
            self._queue.extend(each for each in self._partitions.all() if self._may_begin(each))
            self._forget_gone()
            self._found, self._next_ms = [], now_ms + self._pause_ms
            self.figures.dirty_ratio_max, self.figures.delay_ms_max = 0.0, 0
            if not self._queue:
                self.figures.assessed_ms = now_ms

    @property
    def _pause_ms(self) -> int:
        return self._kernel.settings.number("log.cleaner.backoff.ms")

    def stop(self) -> None:
        """Nobody waits for the rest of a round."""
        if self.round is not None:
            self.round.is_cancelled = True

    @property
    def has_work(self) -> bool:
        return bool(self._queue) or (bool(self._swaps) and not self._is_syncing)

    def work(self) -> None:
        """Assess some logs, or prepare the next swap."""
        if self._swaps and not self._is_syncing:
            self._prepare()
            return
        for _ in range(min(ASSESSED_SLICE, len(self._queue))):
            self._look_at(self._queue.popleft())
        if not self._queue:
            self.figures.assessed_ms = self._kernel.clock.uptime_ms
            if self._found:
                self._choose()

    # Choice.

    def _may_begin(self, partition: Partition) -> bool:
        """Whether nothing else is done with the log."""
        return (
            partition.is_open
            and partition.log.settings.is_compacted
            and not partition.is_internal  # their state machines rewrite those
            and not partition.is_cutting
            and partition.floor is None
            and self._relocation.moves.of(partition) is None
            and not self._relocation.is_leaving(partition)
        )

    def _stands(self, round_: Round) -> bool:
        partition = round_.partition
        is_same = partition.log is round_.log and round_.sources.are_unchanged()
        return is_same and self._may_begin(partition)

    def _look_at(self, partition: Partition) -> None:
        if not self._may_begin(partition):
            return
        try:
            found = self._assess(partition)
        except OSError as failure:
            self._disks.fail(partition.directory, failure)
            return
        if found is None:
            return
        figures, ratio = self.figures, found.ratio
        figures.dirty_ratio_max = max(figures.dirty_ratio_max, ratio)
        figures.delay_ms_max = max(figures.delay_ms_max, found.delay_ms)
        compaction = partition.log.settings.compaction
        assert compaction is not None
        horizon_ms = self._horizons.get(partition, -1)
        has_expired = 0 <= horizon_ms <= self._kernel.clock.now_ms
        is_overdue = found.delay_ms > 0 and found.dirty_size > 0
        if ratio > compaction.cleanable_ratio or is_overdue or has_expired:
            self._found.append((ratio, partition))

    def _assess(self, partition: Partition) -> Dirtiness | None:
        """None if there is nothing that could be cleaned."""
        log, now_ms = partition.log, self._kernel.clock.now_ms
        known = self.uncleanable.get(partition)
        if known is not None:
            if known.sources.are_unchanged():
                return None
            del self.uncleanable[partition]
        compaction = log.settings.compaction
        assert compaction is not None
        if is_idle(log, compaction, now_ms):
            log.roll(now_ms)
            partition.want_flush()
            self._flushing.maybe_begin(partition)
        bound = min(partition.high_watermark, partition.last_stable_offset, log.active.base_offset)
        found = assess(log, bound, compaction, now_ms)
        return found if found.segment_count else None

    def _choose(self) -> None:
        _, partition = max(self._found, key=lambda each: each[0])
        self._found = []
        self._begin(partition)

    def _begin(self, partition: Partition) -> None:
        """Its round; after a flush, if a source is not durable."""
        if not self._may_begin(partition):
            return
        clock, settings = self._kernel.clock, self._kernel.settings
        try:
            found = self._assess(partition)
            if found is None:
                return
            if found.end_offset > partition.log.recovery_point:
                self._waiting = partition
                partition.want_flush()
                self._flushing.maybe_begin(partition)
                return
            compaction = partition.log.settings.compaction
            assert compaction is not None
            request = request_round(
                partition.log,
                found,
                compaction,
                clock.now_ms,
                settings.number("log.cleaner.dedupe.buffer.size"),
                settings.rate("log.cleaner.io.max.bytes.per.second"),
                int.from_bytes(self._kernel.entropy(16)),
            )
        except OSError as failure:
            self._disks.fail(partition.directory, failure)
            return
        self._begun_ms = clock.uptime_ms
        self.round = Round(self, self._run, partition, request)
        self._kernel.outbox.effects.append(self.round)

    def on_flushed(self, partition: Partition) -> None:
        if partition is self._waiting:
            self._waiting = None
            self._begin(partition)

    # The end of a round.

    def on_cleaned(self, round_: Round, failure: OSError | None) -> None:
        assert round_ is self.round
        if round_.result is not None and self._stands(round_):
            self._swaps.extend(round_.result.segments)
            if not self._swaps:
                self._end(round_)
            return
        self.round = None
        if self._stands(round_):
            self._note_failure(round_, failure)

    def _note_failure(self, round_: Round, failure: OSError | None) -> None:
        """A round that nothing else has ended."""
        partition, problem, tell = round_.partition, round_.problem, self._kernel.outbox.tell
        if isinstance(problem, Damage):
            self.uncleanable[partition] = Uncleanable(round_.sources, problem)
            tell(
                error(
                    "log cleaning blocked",
                    partition=round_.name,
                    file=problem.file,
                    position=problem.position,
                    problem=str(problem),
                )
            )
        elif failure is not None and failure.errno not in FULL_DISK:
            self._disks.fail(partition.directory, failure)
        elif not isinstance(problem, RoundCancelled):
            reason = str(failure or problem)
            if self._reasons.get(partition) != reason:
                self._reasons[partition] = reason
                tell(warning("log cleaning failed", partition=round_.name, reason=reason))

    def _prepare(self) -> None:
        round_ = self.round
        assert round_ is not None
        if not self._stands(round_):
            self._drop()
            return
        partition = round_.partition
        round_.log.hold(is_swapping=True)
        try:
            is_prepared = prepare(round_.log.directory, self._swaps[0])
        except OSError as failure:
            self._drop()
            self._disks.fail(partition.directory, failure)
            return
        if not is_prepared:
            self._drop()
            return
        self._is_syncing = True
        self._kernel.outbox.effects.append(SwapSync(self, round_))

    def _drop(self) -> None:
        """What the round has written and is not swapped is not wanted; the next round of the log, or the
        next start, removes it."""
        assert self.round is not None
        round_, self.round = self.round, None
        self._swaps.clear()
        if round_.log.is_swapping:
            round_.log.hold(is_swapping=False)
            self.swapped.emit(round_.partition)

    def on_synced(self, round_: Round, failure: OSError | None) -> None:
        partition = round_.partition
        self._is_syncing = False
        if not partition.is_open or partition.log is not round_.log:
            self._drop()  # its folder is not what it was
            return
        if failure is not None:
            if failure.errno in TOO_MANY_OPEN:  # the swap stays prepared
                self._is_syncing = True
                self._checkpoints.wait(lambda: self._kernel.outbox.effects.append(SwapSync(self, round_)))
            self._disks.fail(partition.directory, failure, is_flush=True)
            if not self._is_syncing:
                self._drop()
            return
        new = self._swaps.popleft()
        try:
            names = carry_out(round_.log, new, self._kernel.clock.now_ms)
        except OSError as problem:
            self._drop()
            self._disks.fail(partition.directory, problem)
            return
        round_.sources.note_swapped(new)
        self._kernel.outbox.remove_files(partition, names)
        round_.log.hold(is_swapping=False)
        self.swapped.emit(partition)
        if not self._swaps:
            self._end(round_)

    def _end(self, round_: Round) -> None:
        """All that the round has written is in the log."""
        result, partition, clock = round_.result, round_.partition, self._kernel.clock
        assert result is not None
        self.round = None
        round_.log.clean_to(result.dirty_offset)
        self._checkpoints.want()
        self._reasons.pop(partition, None)
        if result.earliest_horizon_ms >= 0:
            self._horizons[partition] = result.earliest_horizon_ms
        else:
            self._horizons.pop(partition, None)
        figures = self.figures
        figures.round_count += 1
        figures.read_size += result.bytes_read
        figures.written_size += result.bytes_written
        figures.took_ms = clock.uptime_ms - self._begun_ms
        figures.recopied = result.bytes_written / max(sum(each.size for each in round_.request.sources), 1)
        figures.map_utilization = result.map_utilization
        if result.dirty_offset > round_.request.dirty_offset:
            self._next_ms = clock.uptime_ms  # there may be more to do
        self._kernel.outbox.tell(
            info(
                "log cleaned",
                partition=round_.name,
                up_to=result.dirty_offset,
                before_bytes=sum(each.size for each in round_.request.sources),
                after_bytes=result.bytes_written,
                records=result.records_kept,
            )
        )

    def _forget_gone(self) -> None:
        for known in (self.uncleanable, self._horizons, self._reasons):
            for partition in [each for each in known if not each.is_open]:
                del known[partition]
