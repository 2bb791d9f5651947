"""Runs state machines whose memory is a partition: a *shard* for each partition of their topic that this
broker leads.

| when                              | then                                                                   |
|-----------------------------------|------------------------------------------------------------------------|
| the partition is led here         | its journal is loaded, a piece at a time; until then clients must wait |
| it is loaded                      | the machine resumes                                                    |
| a command, or a timer is due      | a turn: the machine decides, the journal replays the decision          |
| the moment is over                | what was decided is appended, as one batch                             |
| that is committed                 | answers and effects leave                                              |
| a decision is of a transaction    | appended at once, as a batch of it; its entries count with its marker  |
| markers come for the partition    | what was decided before is appended, then the markers                  |
| a decision cannot be kept         | the machine undoes it, or the shard is loaded again from its journal   |
| the partition is led elsewhere    | the machine stops, who waits is told                                   |

An answer that reflects earlier decisions waits for them as well: a read must not show what a restart could
undo. An effect is a ticket like any other: `give` is called when its records are committed. An answer that
reflects only what is committed already leaves at once (`Decision.tell`).

**Invariant:** nobody hears of a decision that a restart could undo. A timer is a turn of its own, in which
the machine looks at its state as it is then. There is no word of any one machine in here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from tidelog.base.decision import Decision, Entry, Ticket, Writer
from tidelog.base.events import Event
from tidelog.base.limits import ENTRIES_GATHERED_MAX, RELOAD_MS, RELOAD_MS_MAX
from tidelog.base.timers import Timers
from tidelog.broker.data_plane.checkpoints import Checkpoints
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.flushing import Flushing
from tidelog.broker.data_plane.shard import Answers, Shard, fail, give
from tidelog.broker.data_plane.statements import Statements
from tidelog.broker.kernel import Kernel
from tidelog.broker.waiting import WaitingRoom
from tidelog.log.markers import End, Marked
from tidelog.protocol.errors import ErrorCode, RefusedBatch
from tidelog.replication.journal import Journal, JournalState
from tidelog.replication.partition import Partition, Role


class MachineTurn(Protocol):
    """One input to a machine, and what it decides."""

    decision: Decision
    is_refused: bool  # nothing of it is written


Turn = TypeVar("Turn", bound=MachineTurn, contravariant=True)


class Machine(JournalState, Protocol[Turn]):
    """A state machine, as the runtime knows it. Its state is what `replay` makes of its journal."""

    @property
    def timers(self) -> Timers[Any]: ...

    def resume(self, turn: Turn) -> None:
        """Everything is loaded."""

    def tick(self, turn: Turn) -> None:
        """Let the next of what is due happen, if it still is to."""

    def stop(self, turn: Turn) -> None:
        """It is not led here any more: answer those who wait inside of it."""

    def undo(self, turn: Turn, refused: Turn, code: ErrorCode) -> None:
        """What a turn decided cannot be kept: be what the journal has, and answer with the code."""


M = TypeVar("M", bound=Machine[Any])
Command = Callable[[M, Any], None]


class Tenant(Protocol[M]):
    """Whose machines run here."""

    topic: str  # that keeps them

    def new_machine(self, partition: Partition) -> M: ...

    def new_turn(self, shard: Shard[M]) -> Any: ...

    def load_failed(self, partition: Partition, reason: str) -> Event:
        """What the operator is told."""

    def write_failed(self, partition: Partition, reason: str) -> Event: ...

    def on_loaded(self, shard: Shard[M]) -> None:
        """The machine has resumed, and may be asked."""

    def on_resigned(self, shard: Shard[M]) -> None:
        """The shard is no more."""


class Runtime(Generic[M]):
    def __init__(
        self,
        tenant: Tenant[M],
        kernel: Kernel,
        disks: Disks,
        flushing: Flushing,
        statements: Statements,
        checkpoints: Checkpoints,
        waiting: WaitingRoom,
    ) -> None:
        self._tenant = tenant
        self._clock = kernel.clock
        self._outbox = kernel.outbox
        self._disks = disks
        self._flushing = flushing
        self._statements = statements
        self._checkpoints = checkpoints
        self._waiting = waiting
        self._shards: dict[Partition, Shard[M]] = {}
        self._busy: deque[Shard[M]] = deque()  # that load, or are rewritten
        self._unwritten: dict[Shard[M], None] = {}  # that have decided something in this moment
        self._deferred: dict[Shard[M], int] = {}  # that could not be loaded, and when they are tried again
        self._due_ms: int | None = None  # when the first timer is

    # Which shards there are.

    def find(self, partition: Partition | None) -> Shard[M] | None:
        return self._shards.get(partition) if partition is not None else None

    @staticmethod
    def state_of(shard: Shard[M]) -> Shard[M] | ErrorCode:
        """The shard if it can be asked, or why it cannot."""
        if shard.journal.is_loaded:
            return shard
        is_failed = shard.journal.failure is not None
        return ErrorCode.coordinator_not_available if is_failed else ErrorCode.coordinator_load_in_progress

    def loaded(self) -> list[Shard[M]]:
        return [shard for shard in self._shards.values() if shard.journal.is_loaded]

    def all(self) -> Iterator[Shard[M]]:
        yield from list(self._shards.values())

    # Leading, and no longer.

    def lead(self, partition: Partition) -> None:
        """Load what the partition has; until then clients are told to wait."""
        is_led = partition.topic == self._tenant.topic and partition.role is Role.LEADER
        if not is_led or partition in self._shards:
            return
        shard = self._new_shard(partition)
        if partition.log.end_offset == partition.log.start_offset:
            self._load(shard)
            self._load(shard)
        else:
            self._enqueue(shard)

    def _new_shard(self, partition: Partition) -> Shard[M]:
        machine = self._tenant.new_machine(partition)
        shard = self._shards[partition] = Shard(Journal(partition, machine), machine)
        return shard

    def _defer(self, shard: Shard[M], failure_count: int = 0) -> None:
        """Load it once more from the beginning, later."""
        self.resign(shard.partition)
        deferred = self._new_shard(shard.partition)
        deferred.failure_count = failure_count
        wait_ms = min(RELOAD_MS * failure_count**2, RELOAD_MS_MAX)
        self._deferred[deferred] = self._clock.uptime_ms + wait_ms

    def resign(self, partition: Partition) -> None:
        """The partition is not led here any more: its machine is forgotten, who waits is told."""
        shard = self._shards.pop(partition, None)
        if shard is None:
            return
        self._deferred.pop(shard, None)
        self._tenant.on_resigned(shard)
        turn = self._tenant.new_turn(shard)
        shard.machine.stop(turn)
        give(turn.decision.told + turn.decision.answers)
        self._unwritten.pop(shard, None)
        fail(shard.answers, ErrorCode.not_coordinator)
        if shard.gathered is not None:
            fail(shard.gathered.decision.told + shard.gathered.decision.answers, ErrorCode.not_coordinator)
        shard.entries, shard.answers, shard.gathered = [], [], None
        for _, answers in shard.uncommitted:
            fail(answers, ErrorCode.not_coordinator)
        if shard in self._busy:
            self._busy.remove(shard)

    # Turns.

    def run(self, shard: Shard[M], command: Command[M]) -> bool:
        """Have a command carried out, after all that was due before it; whether the shard could still do
        that. If not, it has been given up, and loads."""
        if not self._catch_up(shard):
            return False
        self._run(shard, command)
        return True

    def _catch_up(self, shard: Shard[M]) -> bool:
        """Let all take effect that comes before a request: a timer that is due fires first, also if the loop
        is late. Whether the shard still serves after that."""
        with suppress(Exception):  # told by the event of giving up: who is here now did not ask for it
            self._fire_due(shard)
        if shard.gathered is not None:
            self._take_gathered(shard)
        return self._serves(shard)

    def _fire_due(self, shard: Shard[M]) -> None:
        timers, uptime_ms = shard.machine.timers, self._clock.uptime_ms
        while (next_ms := timers.next_ms) is not None and next_ms <= uptime_ms and self._serves(shard):
            self._run(shard, _tick)

    def _run(self, shard: Shard[M], command: Command[M]) -> None:
        if shard.gathered is not None:
            self._take_gathered(shard)
            if not self._serves(shard):
                return
        turn = self._tenant.new_turn(shard)
        try:
            command(shard.machine, turn)
            self._take(shard, turn)
        except Exception as bug:
            self._give_up(shard, turn, bug)
            raise
        self._note_due(shard)

    def gather(self, shard: Shard[M], ticket: Ticket) -> Any:
        """The turn that this moment's independent commands share; None, and the ticket is told, if the shard
        cannot be asked any more. `gathered` must follow."""
        next_ms = shard.machine.timers.next_ms
        if next_ms is not None and next_ms <= self._clock.uptime_ms and not self._catch_up(shard):
            ticket.fail(ErrorCode.coordinator_load_in_progress)
            return None
        turn = shard.gathered
        if turn is None:
            turn = shard.gathered = self._tenant.new_turn(shard)
            self._unwritten[shard] = None
        return turn

    def gathered(self, shard: Shard[M], turn: Any, bug: Exception | None = None) -> None:
        """A command has been added to a shared turn, or has failed in it."""
        if bug is not None:
            shard.gathered = None
            self._give_up(shard, turn, bug)
        elif len(turn.decision.entries) >= ENTRIES_GATHERED_MAX:
            self._write(shard)

    def _take_gathered(self, shard: Shard[M]) -> None:
        turn, shard.gathered = shard.gathered, None
        assert turn is not None
        try:
            self._take(shard, turn)
        except Exception as bug:  # told by the event of giving up: who is here now did not ask for it
            self._give_up(shard, turn, bug)

    def _take(self, shard: Shard[M], turn: MachineTurn) -> None:
        """Let a decision take effect; it is written, and answered, when the moment is over."""
        decision = turn.decision
        give(decision.told)
        if decision.entries and shard.partition.is_under_minimum:
            self._refuse(shard, turn, ErrorCode.coordinator_not_available)
            return
        if decision.entries:
            writer = decision.writer
            if writer is not None and not self._write(shard):
                fail(decision.answers, ErrorCode.coordinator_not_available)
                return
            try:
                shard.journal.take(decision.entries, writer)
            except RefusedBatch as refusal:
                self._outbox.tell(self._tenant.write_failed(shard.partition, refusal.reason))
                self._refuse(shard, turn, ErrorCode.unknown_server_error)
                return
            if writer is not None:
                self._append(shard, decision.entries, decision.answers, writer)
                return
            shard.entries += decision.entries
            self._unwritten[shard] = None
        if not shard.entries:
            self._answer(shard, shard.partition.log.end_offset, decision.answers)
            return
        shard.answers += decision.answers
        if len(shard.entries) >= ENTRIES_GATHERED_MAX:
            self._write(shard)

    def write(self) -> None:
        """The moment is over: write what was decided in it."""
        for shard in list(self._unwritten):
            self._write(shard)

    def _write(self, shard: Shard[M]) -> bool:
        """Whether it still serves."""
        if shard.gathered is not None:
            self._take_gathered(shard)
        self._unwritten.pop(shard, None)
        if shard.entries:  # else nothing was decided, or it has been given up
            entries, shard.entries = shard.entries, []
            answers, shard.answers = shard.answers, []
            self._append(shard, entries, answers)
        return self._serves(shard)

    def _append(
        self, shard: Shard[M], entries: list[Entry], answers: Answers, writer: Writer | None = None
    ) -> None:
        try:
            end_offset = shard.journal.write(entries, self._clock.now_ms, writer)
        except OSError as failure:
            fail(answers, ErrorCode.coordinator_not_available)
            self._on_failed(shard, failure)
            return
        self._on_appended(shard.partition)
        self._answer(shard, end_offset, answers)

    def _on_failed(self, shard: Shard[M], failure: OSError) -> None:
        self._disks.fail(shard.partition.directory, failure)
        if self._serves(shard):  # too many open files, and the directory is well
            self._reload(shard, str(failure))

    def _on_appended(self, partition: Partition) -> None:
        if partition.is_flush_wanted:
            self._flushing.maybe_begin(partition)
        self._waiting.on_moved(partition)

    def append_markers(self, partition: Partition, ends: list[End]) -> list[Marked]:
        """End transactions that have written into a partition of the topic: the answer to each."""
        shard = self._shards.get(partition)
        if shard is None or not self._write(shard) or shard.journal.is_half_loaded:
            return [Marked(ErrorCode.coordinator_load_in_progress)] * len(ends)
        try:
            marked = shard.journal.append_markers(ends, self._clock.now_ms)
        except OSError as failure:
            self._on_failed(shard, failure)
            return [Marked(ErrorCode.kafka_storage_error)] * len(ends)
        self._on_appended(partition)
        return marked

    @staticmethod
    def _answer(shard: Shard[M], end_offset: int, answers: Answers) -> None:
        if answers and shard.journal.is_committed(end_offset):
            give(answers)
        elif answers:
            shard.uncommitted.append((end_offset, answers))

    # What cannot be kept.

    def _refuse(self, shard: Shard[M], turn: MachineTurn, code: ErrorCode) -> None:
        """What was decided is too large to be kept, or too few replicas are there to keep it."""
        turn.is_refused = True
        fail(turn.decision.answers, code)
        undone = self._tenant.new_turn(shard)
        shard.machine.undo(undone, turn, code)
        give(undone.decision.told + undone.decision.answers)

    def _give_up(self, shard: Shard[M], turn: MachineTurn, bug: Exception) -> None:
        """A command has failed half-way. Write the complete decisions made before it, then load the shard
        again from its journal."""
        if shard in self._unwritten:
            self._write(shard)
        if self._serves(shard):
            self._reload(shard, repr(bug))
        fail(turn.decision.told + turn.decision.answers, ErrorCode.unknown_server_error)

    def _serves(self, shard: Shard[M]) -> bool:
        return self._shards.get(shard.partition) is shard

    def _reload(self, shard: Shard[M], reason: str) -> None:
        """Go back to what the journal has. What fails before anybody was served fails the next time too: it
        is told once, and tried less and less often."""
        partition = shard.partition
        if shard.is_resumed:
            self._outbox.tell(self._tenant.write_failed(partition, reason))
            self.resign(partition)
            self.lead(partition)
            return
        if not shard.failure_count:
            self._outbox.tell(self._tenant.load_failed(partition, reason))
        self._defer(shard, shard.failure_count + 1)

    # What is committed.

    def on_advanced(self, partition: Partition) -> None:
        """More of the partition is committed, or on disk."""
        shard = self._shards.get(partition)
        if shard is None:
            return
        while shard.uncommitted and shard.journal.is_committed(shard.uncommitted[0][0]):
            give(shard.uncommitted.popleft()[1])
        start_offset = shard.journal.take_start()
        if start_offset is not None:
            try:
                partition.trim(start_offset)
            except OSError as failure:
                self._disks.fail(partition.directory, failure)
                return
            self._checkpoints.want()

    # Time and background work.

    def tick(self) -> None:
        for shard in [each for each, due_ms in self._deferred.items() if due_ms <= self._clock.uptime_ms]:
            del self._deferred[shard]
            self._enqueue(shard)
        for shard in self.all():
            shard.drop_gone()
            self._fire_due(shard)
            if self._serves(shard) and shard.journal.is_loaded and shard.journal.is_long:
                self._enqueue(shard)
        self.write()
        due = [shard.machine.timers.next_ms for shard in self._shards.values()]
        self._due_ms = min((each for each in due if each is not None), default=None)

    @property
    def next_due_ms(self) -> int | None:
        """When a timer is due at the earliest, or a little before that."""
        return self._due_ms

    def _note_due(self, shard: Shard[M]) -> None:
        next_ms = shard.machine.timers.next_ms
        if next_ms is not None and (self._due_ms is None or next_ms < self._due_ms):
            self._due_ms = next_ms

    def _enqueue(self, shard: Shard[M]) -> None:
        if shard not in self._busy:
            self._busy.append(shard)

    @property
    def is_unwritten(self) -> bool:
        """Whether `write` has something to do."""
        return bool(self._unwritten)

    @property
    def has_work(self) -> bool:
        return bool(self._unwritten or self._busy)

    def work(self) -> None:
        """What is unwritten, else one piece of what takes long."""
        if self._unwritten:
            self.write()
        elif self._busy[0].journal.is_loaded:
            self._write_anew(self._busy[0])
        else:
            self._load(self._busy[0])

    def _load(self, shard: Shard[M]) -> None:
        journal = shard.journal
        try:
            journal.load()
        except OSError as failure:
            self._disks.fail(shard.partition.directory, failure)
            if self._serves(shard):  # too many open files: all of it again, from the next tick on
                self._defer(shard)
            return
        except Exception as bug:
            self._reload(shard, repr(bug))
            return
        if journal.failure is not None:
            self._outbox.tell(self._tenant.load_failed(shard.partition, journal.failure))
            self._statements.give_up(shard.partition, journal.failure)  # to a member that has all of it
        elif journal.is_loaded:
            self._resume(shard)
        if (journal.failure is not None or journal.is_loaded) and shard in self._busy:
            self._busy.remove(shard)

    def _resume(self, shard: Shard[M]) -> None:
        with suppress(Exception):  # told, and put off, when it was given up
            self.run(shard, _resume)
            if self._serves(shard):
                self._tenant.on_loaded(shard)
        if self._serves(shard):
            shard.is_resumed, shard.failure_count = True, 0

    def _write_anew(self, shard: Shard[M]) -> None:
        try:
            shard.journal.write_anew(self._clock.now_ms)
        except OSError as failure:
            self._busy.remove(shard)
            self._disks.fail(shard.partition.directory, failure)
            return
        self._waiting.on_moved(shard.partition)
        self._flushing.maybe_begin(shard.partition)  # where only what is on disk counts, readers wait for it
        if not shard.journal.is_being_written_anew:
            self._busy.remove(shard)


def _tick(machine: Machine[Any], turn: Any) -> None:
    machine.tick(turn)


def _resume(machine: Machine[Any], turn: Any) -> None:
    machine.resume(turn)
