"""Replication as one broker takes part in it: whom its partitions follow, and who follows those it leads.

| when                                  | then                                                           |
|---------------------------------------|----------------------------------------------------------------|
| the store says who leads a partition  | it leads, or follows that one's log by its fetcher             |
| a leader answers                      | records are appended, logs cut or begun anew                   |
| a follower fetches                    | the high watermark may move; it may be ready to join the ISR   |
| a tick, or brokers have come or gone  | ISRs that should change are written, many in one multi         |

**Invariant:** a change of an ISR stays pending until the store has confirmed it or a synced reading has shown
what became of it (R5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.base.events import error, info
from tidelog.broker.cuts import Cuts
from tidelog.broker.interval import Interval
from tidelog.broker.peers import REPLICATE, PeerClose, PeerSend
from tidelog.cluster.image import BROKER_EPOCHS, BROKERS, FLUSHED, NOBODY, PartitionFacts
from tidelog.cluster.store import Check, Done, Operation, Outcome, ReadNodes, Tree, Write
from tidelog.protocol.errors import CorruptBatch, ErrorCode
from tidelog.protocol.fetch import FetchPartition
from tidelog.replication.fetcher import Fetcher, FetchLimits, Received
from tidelog.replication.follower import BeginAt, Cut, Take, Wait, next_step
from tidelog.replication.leader import Leadership
from tidelog.replication.partition import Partition, Role
from tidelog.replication.throttle import FOLLOWER_RATE, FOLLOWER_REPLICAS, NO_LIMIT, Throttle, is_throttled

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CHANGES_TOGETHER = 100


class Asked(NamedTuple):
    """A change of an ISR that the store was asked for."""

    partition: Partition
    leadership: Leadership
    path: str
    facts: PartitionFacts


class Replicas:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._fetchers: dict[int, Fetcher] = {}  # by leader
        self._addresses: dict[int, tuple[str, int]] = {}
        self._epochs: dict[int, int] = {}  # of the other brokers, when last looked at
        self._to_look: dict[Partition, None] = {}  # led, and its ISR may have to change
        self._admissions: dict[Partition, None] = {}  # led, and somebody can join now
        self._awaiting: dict[Partition, None] = {}  # led, and the high watermark waits for who will join
        self._to_hurry: dict[int, None] = {}  # replicas of what is led since the last tick
        self._throttled: dict[Partition, None] = {}  # followed, and not asked for until the rate allows it
        self.cuts = Cuts(broker)
        self._undecided: list[Asked] = []  # nobody knows yet what became of these
        settings = broker.settings
        self.listener = settings.peer_listener  # the one that followers come in by
        self._lag_max_ms = settings.number("replica.lag.time.max.ms")
        self._lag = Interval(max(self._lag_max_ms // 4, 1))
        self._limits = FetchLimits(
            settings.number("replica.fetch.wait.max.ms"),
            settings.number("replica.fetch.min.bytes"),
            settings.number("replica.fetch.response.max.bytes"),
            settings.number("replica.fetch.max.bytes"),
            settings.number("replica.fetch.backoff.ms"),
            settings.number("replica.socket.timeout.ms"),
        )
        self.given = Throttle()  # to followers that are throttled,
        self.taken = Throttle()  # and as one
        self.change_count = 0  # of ISRs that were written

    # Roles.

    def assign(self, partition: Partition, facts: PartitionFacts) -> None:
        """Let a partition be what the store says it is."""
        broker = self._broker
        if partition.role is Role.OFFLINE or facts.leader == NOBODY:
            broker.statements.note(partition)
        if partition.is_cutting:
            return  # looked at again when the cut is durable
        if not partition.is_open or (
            partition.facts is not None and facts.version <= partition.facts.version
        ):
            return
        if facts.leader == broker.node_id and broker.image.is_trusted(facts, broker.node_id):
            is_same = partition.role is Role.LEADER and facts.leader_epoch == partition.leader_epoch
            if not is_same and not broker.is_registered:
                return  # it may be said of another broker with this number; looked at again when registered
            self._lead(partition, facts)
        else:
            self._follow(partition, facts)

    def _lead(self, partition: Partition, facts: PartitionFacts) -> None:
        broker = self._broker
        self._leave_fetcher(partition)
        self.cuts.drop(partition)
        partition.become_leader(broker.node_id, broker.image, facts, broker.uptime_ms)
        broker.on_moved(partition)
        broker.maybe_flush(partition)
        broker.coordinators.lead(partition)
        if len(facts.replicas) > 1 or self._wants_flushed(partition) != (facts.flush == FLUSHED):
            self._to_look[partition] = None
        if len(facts.replicas) > 1:
            # A fetch that waits does not name this partition yet, and the next one only if it is known there.
            broker.sessions.hurry(facts.replicas)
            self._to_hurry |= dict.fromkeys(facts.replicas)

    def _follow(self, partition: Partition, facts: PartitionFacts) -> None:
        broker = self._broker
        if facts.leader != partition.leader_id or partition.role is Role.LEADER:
            self._leave_fetcher(partition)
        was_leader = partition.role is Role.LEADER
        if facts.leader_epoch != partition.leader_epoch:
            self.cuts.drop(partition)
        partition.become_follower(facts)
        self._to_look.pop(partition, None)
        if was_leader:
            broker.coordinators.resign(partition)
        broker.waiting.on_moved(partition)
        if facts.leader not in (NOBODY, broker.node_id):
            self._fetcher(facts.leader).add(partition)
            if self.cuts.is_pending(partition):
                self._fetcher(facts.leader).hold(partition)
            self._hold_unflushed(partition)
            self.send(facts.leader)

    def drop(self, partition: Partition) -> None:
        """The partition is gone, or its disk is."""
        self._leave_fetcher(partition)
        self.cuts.drop(partition)
        self._to_look.pop(partition, None)

    def _leave_fetcher(self, partition: Partition) -> None:
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is not None:
            fetcher.remove(partition)

    # Following.

    def _fetcher(self, node_id: int) -> Fetcher:
        fetcher = self._fetchers.get(node_id)
        if fetcher is None:
            broker = self._broker
            fetcher = self._fetchers[node_id] = Fetcher(broker.node_id, broker.broker_epoch, self._limits)
        return fetcher

    def use_broker_epoch(self, epoch: int) -> None:
        """This broker has registered anew: it fetches under that epoch from now on."""
        for fetcher in self._fetchers.values():
            fetcher.broker_epoch = epoch

    def send(self, node_id: int) -> None:
        """Ask a leader for more, if nothing is under way."""
        address = self._addresses.get(node_id)
        fetcher = self._fetchers.get(node_id)
        if address is None or fetcher is None:
            return
        frame = fetcher.next_request(self._broker.uptime_ms)
        if frame is not None:
            self._broker.effects.append(PeerSend(node_id, REPLICATE, *address, frame))

    def on_frame(self, node_id: int, frame: memoryview) -> None:
        fetcher = self._fetchers.get(node_id)
        if fetcher is None:
            return
        cuts: list[tuple[Partition, Cut | BeginAt]] = []
        rate = self._broker.settings.number(FOLLOWER_RATE)
        throttled: list[Partition] = []
        for received in fetcher.on_answer(frame, self._broker.uptime_ms):
            if received.partition.is_cutting:
                continue  # asked for before the cut began; asked for again when it is durable
            step = next_step(received.partition.log, received.answer)
            if isinstance(step, Take):
                self._take(fetcher, received)
                if rate < NO_LIMIT and self._is_throttled(received.partition):
                    self.taken.record(len(received.records), rate, self._broker.uptime_ms)
                    throttled.append(received.partition)
            elif isinstance(step, Wait):
                self._wait(fetcher, received.partition, step.error_code)
            else:
                cuts.append((received.partition, step))
        if cuts:
            self.cuts.plan(fetcher, cuts)
        for partition in throttled:
            self._hold_throttled(fetcher, partition, rate)
        self.send(node_id)

    def _is_throttled(self, partition: Partition) -> bool:
        node_id = self._broker.node_id
        return is_throttled(partition.log.settings, FOLLOWER_REPLICAS, partition.index, node_id)

    def _hold_throttled(self, fetcher: Fetcher, partition: Partition, rate: int) -> None:
        """Ask for no more until the rate allows it; in sync, a replica must not fall behind for that."""
        is_over = self.taken.wait_ms(rate, self._broker.uptime_ms) > 0
        if is_over and self._broker.node_id not in partition.in_sync_replicas and partition in fetcher:
            fetcher.hold(partition, NO_LIMIT)
            self._throttled[partition] = None

    def _release_throttled(self) -> None:
        rate = self._broker.settings.number(FOLLOWER_RATE)
        if rate < NO_LIMIT and self.taken.wait_ms(rate, self._broker.uptime_ms) > 0:
            return
        throttled, self._throttled = self._throttled, {}
        for partition in throttled:
            fetcher = self._fetchers.get(partition.leader_id)
            if fetcher is None or partition not in fetcher or self.cuts.is_pending(partition):
                continue
            if not partition.is_caught_by_flush:
                fetcher.release(partition)

    def on_closed(self, node_id: int) -> None:
        """The connection to a leader has ended; what was under way on it is lost."""
        fetcher = self._fetchers.get(node_id)
        if fetcher is not None:
            fetcher.restart(self._broker.uptime_ms + self._limits.backoff_ms)

    def _begin_anew(self, node_id: int) -> None:
        fetcher = self._fetchers.get(node_id)
        if fetcher is not None and fetcher.is_under_way:
            self._broker.effects.append(PeerClose(node_id, REPLICATE))
            fetcher.restart(self._broker.uptime_ms)

    def _take(self, fetcher: Fetcher, received: Received) -> None:
        partition, answer, broker = received.partition, received.answer, self._broker
        try:
            moved = partition.take(
                received.records,
                answer.high_watermark,
                answer.log_start_offset,
                broker.now_ms,
                self._may_have_gaps(partition),
            )
        except CorruptBatch as problem:
            name = f"{partition.topic}-{partition.index}"
            broker.events.append(error("replica not taken", partition=name, reason=str(problem)))
            fetcher.hold(partition, broker.uptime_ms + self._limits.backoff_ms)
            return
        except OSError as failure:
            broker.fail_directory(partition.directory, failure)
            return
        if moved:
            fetcher.touch(partition)
            broker.on_moved(partition)
            if partition.is_flush_wanted:
                broker.maybe_flush(partition)
            self._hold_unflushed(partition)

    def _may_have_gaps(self, partition: Partition) -> bool:
        topic = self._broker.image.topics_by_id.get(partition.topic_id)
        return partition.log.settings.is_compacted or (topic is not None and topic.was_compacted)

    def _hold_unflushed(self, partition: Partition) -> None:
        """Where only flushed bytes count, a follower asks for more when it has flushed what it has (R15)."""
        if not partition.is_caught_by_flush or partition.role is not Role.FOLLOWER:
            return
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is not None:
            partition.is_flush_wanted = True
            fetcher.hold(partition)
            self._broker.maybe_flush(partition)

    def on_flushed(self, partition: Partition) -> None:
        if self.cuts.is_pending(partition):
            self.cuts.on_flushed(partition)
            return
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is not None and partition in fetcher and not partition.is_caught_by_flush:
            fetcher.release(partition)
            rate = self._broker.settings.number(FOLLOWER_RATE)
            if rate < NO_LIMIT and self._is_throttled(partition):
                self._hold_throttled(fetcher, partition, rate)
            self.send(partition.leader_id)

    def _wait(self, fetcher: Fetcher, partition: Partition, code: int) -> None:
        broker = self._broker
        fetcher.back_off(partition, broker.uptime_ms)
        if code not in (ErrorCode.not_leader_or_follower, ErrorCode.unknown_leader_epoch):
            name = f"{partition.topic}-{partition.index}"
            broker.events.append(info("leader refused", partition=name, error=ErrorCode(code).name))

    def follow_on(self, partition: Partition) -> None:
        """A log was cut, durably: do what the store has said meanwhile, or ask the leader for more."""
        topic = self._broker.image.topics_by_id.get(partition.topic_id)
        facts = topic.partitions.get(partition.index) if topic is not None else None
        if facts is not None:
            self.assign(partition, facts)
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is None or partition not in fetcher:
            return
        fetcher.release(partition)
        fetcher.touch(partition)
        self._broker.maybe_flush(partition)
        self._hold_unflushed(partition)
        self.send(partition.leader_id)

    # Leading.

    def on_fetch(self, partition: Partition, node_id: int, broker_epoch: int, asked: FetchPartition) -> None:
        """A follower has all before the offset that it asks for, unless its log is longer than this one or
        differs from somewhere on: then its fetch shows nothing, and the answer says where to cut."""
        leadership, broker, offset = partition.leadership, self._broker, asked.fetch_offset
        if leadership is None or offset > partition.log.end_offset:
            return
        if partition.parting(offset, asked.last_fetched_epoch) is not None:
            return
        progress = leadership.on_fetch(
            node_id, broker_epoch, offset, partition.counted_end_offset, broker.uptime_ms
        )
        if progress is None:
            return
        if progress.start_offset != asked.log_start_offset:
            progress.start_offset = asked.log_start_offset
            broker.waiting.on_moved(partition)
        if leadership.may_admit(node_id, partition.high_watermark):
            self._admissions[partition] = None  # before anything more is committed that it lacks
            return
        is_awaited = leadership.awaited == node_id
        if partition.end_await() if is_awaited else partition.maybe_advance():
            broker.on_moved(partition)
        if leadership.may_await(node_id, broker.uptime_ms):
            partition.begin_await(node_id, broker.uptime_ms)
            self._awaiting[partition] = None

    def admit(self) -> None:
        """Take in who has just shown that it has all that is committed."""
        if not self._admissions:
            return
        admissions, self._admissions = self._admissions, {}
        self._to_look |= admissions
        self._propose()
        for partition in admissions:
            if partition.leadership is not None and partition.end_await():
                self._broker.on_moved(partition)

    @property
    def is_needed(self) -> bool:
        """Whether this broker leads what another one in sync could lead."""
        image, node_id = self._broker.image, self._broker.node_id
        return any(
            other != node_id and image.is_able(other)
            for partition in self._broker.partitions.all()
            if partition.leadership is not None
            for other in partition.in_sync_replicas
        )

    def note_brokers(self) -> None:
        """Brokers have come or gone."""
        broker = self._broker
        for node_id, facts in broker.image.brokers.items():
            self._addresses[node_id] = (facts.host, facts.port)
            known, self._epochs[node_id] = self._epochs.get(node_id), facts.epoch
            if known not in (None, facts.epoch):  # it may have been restarted: nobody answers any more
                self._begin_anew(node_id)
            self.send(node_id)
        self._look_at_all()

    def _look_at_all(self) -> None:
        for partition in self._broker.partitions.all():
            if partition.leadership is not None and partition.leadership.followers:
                self._to_look[partition] = None

    def note_settings(self, partition: Partition) -> None:
        self._hold_unflushed(partition)
        if partition.leadership is not None:
            self._to_look[partition] = None

    def _wants_flushed(self, partition: Partition) -> bool:
        return self._broker.image.has_recovery and partition.log.settings.flush_messages == 1

    def tick(self) -> None:
        if self._to_hurry:
            self._broker.sessions.hurry(self._to_hurry)
            self._to_hurry = {}
        if self._lag.is_over(self._broker.uptime_ms):
            self._look_at_all()
        if self._throttled:
            self._release_throttled()
        for node_id, fetcher in self._fetchers.items():
            if fetcher.is_overdue(self._broker.uptime_ms):
                self._begin_anew(node_id)
            self.send(node_id)
        self._end_awaits()
        if self._undecided:
            undecided, self._undecided = self._undecided, []
            self._find_out(undecided)
        self._propose()

    def _end_awaits(self) -> None:
        for partition in list(self._awaiting):
            leadership = partition.leadership
            if leadership is not None and leadership.is_await_over(self._broker.uptime_ms):
                partition.end_await()
                self._broker.on_moved(partition)
            if leadership is None or leadership.awaited is None:
                del self._awaiting[partition]

    def _propose(self) -> None:
        """Ask the store for the ISRs as they should be."""
        broker = self._broker
        if not broker.is_registered:
            return
        to_look, self._to_look = self._to_look, {}
        asked: list[Asked] = []
        for partition in to_look:
            leadership, topic = partition.leadership, broker.image.topics_by_id.get(partition.topic_id)
            if leadership is None or topic is None:
                continue
            facts = leadership.propose(
                broker.uptime_ms,
                self._lag_max_ms,
                partition.min_insync,
                partition.counted_end_offset,
                partition.high_watermark,
                self._wants_flushed(partition),
            )
            if facts is not None:
                asked.append(Asked(partition, leadership, topic.path(partition.index), facts))
        for start in range(0, len(asked), CHANGES_TOGETHER):
            self._ask(asked[start : start + CHANGES_TOGETHER])

    def _ask(self, asked: list[Asked]) -> None:
        image = self._broker.image
        checks: dict[int, None] = {}
        operations: list[Operation] = []
        for partition, leadership, path, facts in asked:
            checks |= dict.fromkeys(leadership.joining(facts))
            operations.append(Write(path, facts.encode(), facts.version))
            leadership.begin_change(facts)
            partition.note_rules()
        for node_id in checks:
            epochs = f"{BROKER_EPOCHS}/{node_id}"
            operations += [Check(f"{BROKERS}/{node_id}"), Check(epochs, image.versions[epochs])]
        operations.append(self._broker.registration.check)

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self.change_count += len(asked)
            else:
                self._find_out(asked)

        self._broker.change(operations, on_outcome)

    def _find_out(self, asked: list[Asked]) -> None:
        """What became of changes that were refused, or whose answer was lost."""
        broker = self._broker
        paths = tuple(each.path for each in asked)

        def on_reading(outcome: Outcome) -> None:
            if not isinstance(outcome, Tree):
                self._undecided += asked
                return
            broker.follow(broker.image.take(paths, outcome.nodes))
            for partition, leadership, path, facts in asked:
                is_open = partition.leadership is leadership and leadership.pending is facts
                if is_open and path in outcome.nodes and outcome.nodes[path].version == facts.version:
                    leadership.abandon()
                    if partition.note_rules():
                        broker.on_moved(partition)
                    self._to_look[partition] = None

        broker.submit(ReadNodes(paths, is_synced=True), on_reading)
