"""The group coordinators of this broker: one for each partition of `__consumer_offsets` that it leads.

A request for a group becomes a turn of its partition's coordinator. What the turn decided takes effect for
the turns after it, and is written with what others decide in the same moment: members come in crowds. The
answers leave when that, and everything before it, is committed. Reads wait in the same way: they may reflect
what was decided a moment ago. Commits do not depend on each other, so those that come one after the other
share a turn.

**Invariant:** nobody hears of a decision that a restart could undo.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.base.decision import Ticket
from tidelog.base.events import error, info, warning
from tidelog.base.limits import ENTRIES_GATHERED_MAX, GROUP_ID_LENGTH_MAX
from tidelog.broker.group_moves import GroupMoves
from tidelog.broker.group_views import GroupSettings, ImageTopics
from tidelog.broker.shard import Answers, Command, Shard, fail, give
from tidelog.cluster.features import GROUPS_TOPIC
from tidelog.cluster.image import TopicFacts
from tidelog.cluster.store import Done, Outcome
from tidelog.groups.classic import ClassicGroup
from tidelog.groups.coordinator import CommitAsk, GroupCoordinator
from tidelog.groups.offsets import Sweep, is_of_another
from tidelog.groups.patterns import Patterns
from tidelog.groups.records import NO_ID, CommittedOffset
from tidelog.groups.turn import Turn
from tidelog.protocol.errors import ErrorCode, RefusedBatch
from tidelog.replication.journal import Journal
from tidelog.replication.partition import Partition, Role

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker


class Coordinators:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._patterns = Patterns()
        self._topics = ImageTopics(broker.image)
        self._settings = GroupSettings(broker)
        self._shards: dict[Partition, Shard] = {}
        self._moves = GroupMoves(broker)
        self._busy: deque[Shard] = deque()  # that load, or are written anew
        self._unwritten: dict[Shard, None] = {}  # that have decided something in this moment
        self._creation_waiters: list[Callable[[], None]] = []
        self._due_ms: int | None = None  # when the first timer is
        self._unloaded: list[Partition] = []  # whose journals could not be opened just now
        self._deleted: dict[str, set[bytes]] = {}  # ids of topics whose offsets may be there, by name
        self._sweeps: dict[Shard, Sweep] = {}  # for offsets of topics that are no more
        self._unswept: dict[Shard, None] = {}  # to be looked through once more, from the beginning

    # Who coordinates what.

    def partition_of(self, group_id: str) -> Partition | None:
        """The partition that keeps a group, by Kafka's rule, if it is here."""
        partitions = self._broker.partitions.of(GROUPS_TOPIC)
        if not partitions or len(group_id) > GROUP_ID_LENGTH_MAX:
            return None
        return partitions[self._moves.place_of(group_id, len(partitions))]

    def place_of(self, group_id: str) -> tuple[TopicFacts, int] | None:
        """The same wherever it is: the topic, and the number of the partition."""
        topic = self._broker.image.topics.get(GROUPS_TOPIC)
        if topic is None or not topic.partitions or len(group_id) > GROUP_ID_LENGTH_MAX:
            return None
        return topic, self._moves.place_of(group_id, len(topic.partitions))

    def find(self, group_id: str) -> Shard | ErrorCode:
        """The shard that serves a group now, or why there is none."""
        partition = self.partition_of(group_id)
        shard = self._shards.get(partition) if partition is not None else None
        if shard is not None:
            return self._moves.refusal(shard, group_id) or self._state_of(shard)
        is_too_long = len(group_id) > GROUP_ID_LENGTH_MAX
        return ErrorCode.invalid_group_id if is_too_long else ErrorCode.not_coordinator

    @staticmethod
    def _state_of(shard: Shard) -> Shard | ErrorCode:
        if shard.journal.is_loaded:
            return shard
        is_failed = shard.journal.failure is not None
        return ErrorCode.coordinator_not_available if is_failed else ErrorCode.coordinator_load_in_progress

    def loaded(self) -> list[Shard]:
        return [shard for shard in self._shards.values() if shard.journal.is_loaded]

    def all(self) -> Iterator[Shard | ErrorCode]:
        for shard in list(self._shards.values()):
            yield self._state_of(shard)

    @property
    def topics(self) -> ImageTopics:
        return self._topics

    @property
    def groups_topic_exists(self) -> bool:
        return GROUPS_TOPIC in self._broker.image.topics

    def create_topic(self, then: Callable[[], None]) -> None:
        """Make the topic that keeps groups; `then` when it is there, or could not be made."""
        self._creation_waiters.append(then)
        if len(self._creation_waiters) > 1:
            return
        settings = self._broker.settings
        config = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.number("offsets.topic.segment.bytes")),
        }
        count = settings.number("offsets.topic.num.partitions")
        replica_count = settings.number("offsets.topic.replication.factor")
        self._broker.topics.have_created(GROUPS_TOPIC, config, count, replica_count, self._on_created)

    def _on_created(self, outcome: Outcome) -> None:
        waiters, self._creation_waiters = self._creation_waiters, []
        if not isinstance(outcome, Done):
            self._broker.events.append(error("groups topic not created", reason=str(outcome)))
        for then in waiters:
            then()

    # Leading, and no longer.

    def lead(self, partition: Partition) -> None:
        """Load what the partition has of its groups; until then they are told to wait."""
        if partition.topic != GROUPS_TOPIC or partition.role is not Role.LEADER or partition in self._shards:
            return
        coordinator = GroupCoordinator(self._patterns, self._moves.belonging_to(partition.index))
        shard = Shard(Journal(partition, coordinator), coordinator)
        self._shards[partition] = shard
        if partition.log.end_offset == partition.log.start_offset:
            self._load(shard)
            self._load(shard)
        else:
            self._enqueue(shard)

    def resign(self, partition: Partition) -> None:
        """The partition is not led here any more: its groups are forgotten, who waits is told."""
        shard = self._shards.pop(partition, None)
        if shard is None:
            return
        self._moves.forget(shard)
        self._sweeps.pop(shard, None)
        self._unswept.pop(shard, None)
        turn = self._turn(shard)
        for group in shard.coordinator.groups.values():
            if isinstance(group, ClassicGroup):
                group.stop(turn, ErrorCode.not_coordinator)
        give(turn.decision.answers)
        self._unwritten.pop(shard, None)
        fail(shard.answers, ErrorCode.not_coordinator)
        fail(shard.commits.decision.answers if shard.commits is not None else [], ErrorCode.not_coordinator)
        shard.entries, shard.answers, shard.commits = [], [], None
        for _, answers in shard.uncommitted:
            fail(answers, ErrorCode.not_coordinator)
        if shard in self._busy:
            self._busy.remove(shard)

    # Turns.

    def run(self, shard: Shard, command: Command) -> bool:
        """Have a command carried out, after all that was due before it; whether the shard could still do
        that. If not, it has been given up, and loads."""
        if not self._is_current(shard):
            return False
        self._run(shard, command)
        return True

    def _is_current(self, shard: Shard) -> bool:
        """Let all take effect that comes before a request: a session that has ended is over for it, also if
        the loop is late. Whether the shard still serves after that."""
        with suppress(Exception):  # told by the event of giving up: who is here now did not ask for it
            self._fire_due(shard)
        if shard.commits is not None:
            self._take_commits(shard)
        return self._serves(shard)

    def _fire_due(self, shard: Shard) -> None:
        timers, uptime_ms = shard.coordinator.timers, self._broker.uptime_ms
        while (next_ms := timers.next_ms) is not None and next_ms <= uptime_ms and self._serves(shard):
            self._run(shard, GroupCoordinator.tick)

    def _run(self, shard: Shard, command: Command) -> None:
        if shard.commits is not None:
            self._take_commits(shard)
            if not self._serves(shard):
                return
        turn = self._turn(shard)
        try:
            command(shard.coordinator, turn)
            self._take(shard, turn)
        except Exception as bug:
            self._give_up(shard, turn, bug)
            raise
        self._note_due(shard)

    def commit(self, shard: Shard, ask: CommitAsk, ticket: Ticket) -> None:
        next_ms = shard.coordinator.timers.next_ms
        if next_ms is not None and next_ms <= self._broker.uptime_ms and not self._is_current(shard):
            ticket.fail(ErrorCode.coordinator_load_in_progress)
            return
        turn = shard.commits
        if turn is None:
            turn = shard.commits = self._turn(shard)
            self._unwritten[shard] = None
        try:
            shard.coordinator.commit(turn, ask, ticket)
        except Exception as bug:
            shard.commits = None
            self._give_up(shard, turn, bug)
            raise
        if len(turn.decision.entries) >= ENTRIES_GATHERED_MAX:
            self._write(shard)

    def _take_commits(self, shard: Shard) -> None:
        turn, shard.commits = shard.commits, None
        assert turn is not None
        try:
            self._take(shard, turn)
        except Exception as bug:  # told by the event of giving up: who is here now did not ask for it
            self._give_up(shard, turn, bug)

    def write(self) -> None:
        """The moment is over: write what was decided in it."""
        for shard in list(self._unwritten):
            self._write(shard)

    def _give_up(self, shard: Shard, turn: Turn, bug: Exception) -> None:
        """Half a decision is none: back to what the journal has, and whole ones before it with it."""
        if shard in self._unwritten:
            self._write(shard)
        if self._serves(shard):
            self._reload(shard, repr(bug))
        fail(turn.decision.answers, ErrorCode.unknown_server_error)

    def _turn(self, shard: Shard) -> Turn:
        broker = self._broker
        return Turn(
            broker.now_ms,
            broker.uptime_ms,
            self._settings,
            self._topics,
            shard.coordinator.timers,
            broker.entropy,
            shard.journal.record_size_max,
            shard.coordinator.given,
        )

    def _take(self, shard: Shard, turn: Turn) -> None:
        """Let a decision take effect; it is written, and answered, when the moment is over."""
        decision = turn.decision
        if decision.entries and shard.partition.is_under_minimum:
            self._refuse(shard, turn, ErrorCode.coordinator_not_available)
            return
        if decision.entries:
            try:
                shard.journal.take(decision.entries)
            except RefusedBatch as refusal:
                index, reason = shard.partition.index, refusal.reason
                self._broker.events.append(error("group change not written", partition=index, reason=reason))
                self._refuse(shard, turn, ErrorCode.unknown_server_error)
                return
            shard.entries += decision.entries
            self._unwritten[shard] = None
        if not shard.entries:
            self._answer(shard, shard.partition.log.end_offset, decision.answers)
            return
        shard.answers += decision.answers
        if len(shard.entries) >= ENTRIES_GATHERED_MAX:
            self._write(shard)

    def _write(self, shard: Shard) -> None:
        if shard.commits is not None:
            self._take_commits(shard)
        self._unwritten.pop(shard, None)
        if not shard.entries:  # nothing was decided, or it has been given up
            return
        entries, shard.entries = shard.entries, []
        answers, shard.answers = shard.answers, []
        partition = shard.partition
        try:
            end_offset = shard.journal.write(entries, self._broker.now_ms)
        except OSError as failure:
            fail(answers, ErrorCode.coordinator_not_available)
            self._broker.fail_directory(partition.directory, failure)
            if self._serves(shard):  # too many open files, and the directory is well
                self._reload(shard, str(failure))
            return
        if partition.is_flush_wanted:
            self._broker.maybe_flush(partition)
        self._broker.waiting.on_moved(partition)
        self._answer(shard, end_offset, answers)

    @staticmethod
    def _answer(shard: Shard, end_offset: int, answers: Answers) -> None:
        if answers and shard.journal.is_committed(end_offset):
            give(answers)
        elif answers:
            shard.uncommitted.append((end_offset, answers))

    def _refuse(self, shard: Shard, turn: Turn, code: ErrorCode) -> None:
        """What was decided is too large to be kept, or too few replicas are there to keep it: its groups go
        back to what the journal has of them."""
        turn.is_refused = True
        fail(turn.decision.answers, code)
        undone = self._turn(shard)
        for group_id, former in turn.formers.items():
            shard.coordinator.revert(undone, group_id, former, code)
        give(undone.decision.answers)

    def _serves(self, shard: Shard) -> bool:
        return self._shards.get(shard.partition) is shard

    def _reload(self, shard: Shard, reason: str) -> None:
        """What was decided cannot be kept: go back to what the journal has."""
        partition = shard.partition
        event = error("group change not written", partition=partition.index, reason=reason)
        self._broker.events.append(event)
        self.resign(partition)
        self.lead(partition)

    def on_moved(self, partition: Partition) -> None:
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
                self._broker.fail_directory(partition.directory, failure)
                return
            self._broker.checkpoints.want()

    def on_topic_deleted(self, name: str, topic_id: bytes) -> None:
        """What was committed for the topic goes, a piece at a time; until then nobody is told it. A broker
        that does not hear of it (it is down, or leads the shard later) goes by the ids of topics."""
        self._deleted.setdefault(name, set()).add(topic_id)
        self._unswept.update(dict.fromkeys(self._shards.values()))

    def _sweep(self) -> None:
        """One piece of one shard."""
        if not self._sweeps:
            loaded = [shard for shard in self._unswept if shard.journal.is_loaded]
            for shard in loaded:
                del self._unswept[shard]
                self._sweeps[shard] = Sweep(shard.coordinator.offsets)
        shard, sweep = next(iter(self._sweeps.items()))
        self.run(shard, lambda coordinator, turn: coordinator.sweep(turn, sweep, self._is_gone))
        if sweep.is_over:
            self._sweeps.pop(shard, None)

    @property
    def _may_sweep(self) -> bool:
        return bool(self._sweeps) or any(shard.journal.is_loaded for shard in self._unswept)

    def is_deleted(self, name: str, topic_id: bytes) -> bool:
        """Whether an offset was committed for a topic that was deleted a moment ago. It is gone by its id: a
        journal may come with topics that have other ids here."""
        ids = self._deleted.get(name)
        if ids is None:
            return False
        return topic_id in ids or (topic_id == NO_ID and self._topics.id_of(name) is None)

    def _is_gone(self, name: str, committed: CommittedOffset) -> bool:
        return self.is_deleted(name, committed.topic_id) or is_of_another(self._topics, name, committed)

    # Time and background work.

    def tick(self) -> None:
        if self._deleted and not self._sweeps and all(shard.journal.failure for shard in self._unswept):
            self._deleted = {}
        unloaded, self._unloaded = self._unloaded, []
        for partition in unloaded:
            self.resign(partition)
            self.lead(partition)
        self._moves.tick()
        for shard in list(self._shards.values()):
            shard.drop_gone()
            self._fire_due(shard)
            if self._serves(shard) and shard.journal.is_loaded and shard.journal.is_long:
                self._enqueue(shard)
        self.write()
        due = [shard.coordinator.timers.next_ms for shard in self._shards.values()]
        self._due_ms = min((each for each in due if each is not None), default=None)

    @property
    def next_due_ms(self) -> int | None:
        """When a timer of a group is due at the earliest, or a little before that."""
        return self._due_ms

    def _note_due(self, shard: Shard) -> None:
        next_ms = shard.coordinator.timers.next_ms
        if next_ms is not None and (self._due_ms is None or next_ms < self._due_ms):
            self._due_ms = next_ms

    def _enqueue(self, shard: Shard) -> None:
        if shard not in self._busy:
            self._busy.append(shard)

    @property
    def has_work(self) -> bool:
        return bool(self._unwritten or self._busy or self._moves.has_work or self._may_sweep)

    def work(self) -> None:
        """What is unwritten, else one piece of what takes long."""
        if self._unwritten:
            self.write()
            return
        if self._busy:
            self._work_on(self._busy[0])
        elif self._may_sweep:
            self._sweep()
        else:
            self._moves.work()

    def _work_on(self, shard: Shard) -> None:
        if shard.journal.is_loaded:
            self._write_anew(shard)
        else:
            self._load(shard)

    def _load(self, shard: Shard) -> None:
        journal = shard.journal
        try:
            journal.load()
        except OSError as failure:
            self._broker.fail_directory(shard.partition.directory, failure)
            if self._serves(shard):  # too many open files: all of it again, from the next tick on
                if shard in self._busy:
                    self._busy.remove(shard)
                self._unloaded.append(shard.partition)
            return
        if journal.failure is not None:
            self._broker.events.append(error("groups not loaded", reason=journal.failure))
            self._broker.statements.give_up(shard.partition)  # to a member that has all of it
        elif journal.is_loaded:
            self._drop_undecided(journal)
            self.run(shard, GroupCoordinator.resume)
            self._moves.on_loaded(shard)
            if len(shard.coordinator.offsets):
                self._unswept[shard] = None
            if shard.coordinator.groups:
                self._broker.events.append(
                    info(
                        "groups loaded",
                        partition=shard.partition.index,
                        groups=len(shard.coordinator.groups),
                        offsets=len(shard.coordinator.offsets),
                    )
                )
        if (journal.failure is not None or journal.is_loaded) and shard in self._busy:
            self._busy.remove(shard)

    def _drop_undecided(self, journal: Journal) -> None:
        """Nobody here can end a transaction that Kafka left open: what it committed does not count."""
        count = journal.drop_undecided()
        if count:
            index = journal.partition.index
            self._broker.events.append(warning("open transactions dropped", partition=index, records=count))

    def _write_anew(self, shard: Shard) -> None:
        try:
            shard.journal.write_anew(self._broker.now_ms)
        except OSError as failure:
            self._busy.remove(shard)
            self._broker.fail_directory(shard.partition.directory, failure)
            return
        self._broker.waiting.on_moved(shard.partition)
        self._broker.maybe_flush(shard.partition)  # where only what is on disk counts, readers wait for it
        if not shard.journal.is_being_written_anew:
            self._busy.remove(shard)
