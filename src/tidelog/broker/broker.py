"""The broker: all state of one node in one deterministic object. This file is wiring only.

Requests, ticks, finished jobs and store replies go in; answers appear on their connections; what needs
the outside world (fsyncs, store requests, removals) comes out as effects that the shell takes and runs.

**Invariant:** no socket, clock, thread, `async` or randomness in here: the time is set by the shell,
random bytes come from the `entropy` it passes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.base.config import BrokerSettings, broker_setting
from tidelog.base.descriptors import TOO_MANY_OPEN
from tidelog.base.events import Event, error, info, warning
from tidelog.base.files import Directory
from tidelog.base.limits import API_KEY_MAX, API_VERSION_BITS, FLUSHES_MAX, RETENTION_SLICE
from tidelog.base.setting import InvalidSetting
from tidelog.broker.checkpoints import Checkpoints
from tidelog.broker.coordinators import Coordinators
from tidelog.broker.interval import Interval
from tidelog.broker.partitions import Checkpoint, Partitions, RunJobs, run_in_turn
from tidelog.broker.relocation import CopyRequest, Relocation
from tidelog.broker.sessions import FetchSessions
from tidelog.broker.telemetry import Telemetry
from tidelog.broker.waiting import WaitingRoom
from tidelog.cluster import controller
from tidelog.cluster.features import unknown_level
from tidelog.cluster.image import BROKER_CONFIG, DEFAULT_BROKER, BrokerFacts, Image, TopicFacts
from tidelog.cluster.store import (
    Action,
    Done,
    Multi,
    Operation,
    Outcome,
    ReadTree,
    StoreReply,
    StoreRequest,
    Tree,
    Unknown,
    Write,
)
from tidelog.log.directory import LogDirectory
from tidelog.log.log import FlushJob
from tidelog.replication.partition import Partition, Role


class Removal(NamedTuple):
    """Files or folders to unlink off the loop, not before `due_ms` of uptime."""

    directory: Directory
    names: list[str]
    due_ms: int


SILENCE_CHECK_MS = 10_000  # how often clients that push no more metrics are looked for
TRIMS_KEPT_MS = 1_000  # how long a deletion of records may be known to memory alone
_LOGGER_LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}
Effect = StoreRequest | Removal | Checkpoint | CopyRequest
OnOutcome = Callable[[Outcome], None]


class Broker:
    def __init__(
        self,
        settings: BrokerSettings,
        directories: Sequence[LogDirectory],
        entropy: Callable[[int], bytes],
    ) -> None:
        self.settings = settings
        self.node_id = settings.number("node.id")
        self.entropy = entropy
        self.now_ms = 0
        self.uptime_ms = 0
        self.image = Image()
        self.waiting = WaitingRoom()
        self.sessions = FetchSessions(settings.number("max.incremental.fetch.session.cache.slots"), entropy)
        self.telemetry = Telemetry(entropy)
        self.partitions = Partitions(self.node_id, settings, directories)
        self.checkpoints = Checkpoints(self.partitions.directories)
        self.relocation = Relocation(self)
        self.coordinators = Coordinators(self)
        self.effects: list[Effect] = []
        self.flushes: list[tuple[Partition, FlushJob]] = []
        self._flushing_count = 0
        self._flush_queue: OrderedDict[Partition, None] = OrderedDict()  # whose flush waits for others' end
        self._retention_queue: deque[Partition] = deque()  # partitions that retention has yet to look at
        self.is_serving = False
        self.events: list[Event] = []  # for the operator
        # Requests served, by API key and version, as `key << API_VERSION_BITS | version`.
        self.served_counts = [0] * (API_KEY_MAX + 1 << API_VERSION_BITS)
        self.logger_override: str | None = None
        self._facts = BrokerFacts(self.node_id, "", 0, settings.text("broker.rack"), 0)
        self._was_clean = False
        self._tickets = 0
        self._pending: dict[int, OnOutcome] = {}
        self._producer_ids = range(0)
        self._producer_id_waiters: list[Callable[[int | None], None]] = []
        self._retention = Interval(settings.number("log.retention.check.interval.ms"))
        self._checkpoints = Interval(settings.number("log.flush.offset.checkpoint.interval.ms"))
        self._trims = Interval(TRIMS_KEPT_MS)
        self._expiry = Interval(settings.number("producer.id.expiration.check.interval.ms"))
        self._silence = Interval(SILENCE_CHECK_MS)

    @property
    def logger_level(self) -> str:
        """The least that is written to the log, by Kafka's names: what a client asked for since the start,
        else the setting."""
        return self.logger_override or _LOGGER_LEVELS[self.settings.text("operator.log.level")]

    def set_time(self, now_ms: int, uptime_ms: int) -> None:
        """The wall clock, for records, and the monotonic one, for waiting."""
        self.now_ms = now_ms
        self.uptime_ms = uptime_ms

    # Starting: read the tree, make what is missing, register, open the logs.

    def start(self, host: str, port: int) -> None:
        self._facts.host, self._facts.port = host, port
        self.submit(ReadTree("/"), self._on_tree)

    def _on_tree(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Tree):
            raise StoreFailed(f"the store cannot be read: {outcome}")
        self.image.load(outcome.nodes)
        self._use_broker_settings()
        unknown = unknown_level(self.image)
        if unknown is not None:
            raise StoreFailed(unknown)
        operations = controller.decide_first_start(self.image, self.new_id())
        if operations:
            self.change(operations, self._on_first_start)
        else:
            self._register()

    def _on_first_start(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Done):
            raise StoreFailed(f"the store cannot be written: {outcome}")
        self._register()

    def _register(self) -> None:
        self._was_clean = self.partitions.claim_directories(self.image.cluster_id, self.entropy)
        operations = controller.decide_registration(self.image, self._facts, self._was_clean)
        self.change(operations, self._on_registered)

    def _on_registered(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Done):
            raise StoreFailed(f"this broker cannot be registered: {outcome}")
        for topic in self.image.topics.values():
            self._open_topic(topic, is_new=False)
        self.checkpoints.forget(self.partitions.unknown_names())
        self.is_serving = True
        opened = self.partitions
        self.events.append(
            info(
                "logs opened",
                topics=len(self.image.topics),
                partitions=sum(1 for _ in opened.all()),
                after_clean_stop=self._was_clean,
                scanned_bytes=opened.scanned_size,
                cut_bytes=opened.cut_size,
            )
        )

    def _open_topic(self, topic: TopicFacts, is_new: bool) -> bool:
        """Whether all of the topic's logs could be opened; if not, their directory is offline now."""
        failures = self.partitions.open_topic(topic, self.now_ms, is_new)
        self.events += self.partitions.take_events()
        for failed in failures:
            self.fail_directory(failed.directory, failed.error)
        for directory, name in self.partitions.take_strays():
            self.effects.append(Removal(directory, [name], self.uptime_ms))
        for partition in self.partitions.of(topic.topic_id) or ():
            self.maybe_flush(partition)
            self.coordinators.lead(partition)
        return not failures

    # The store: requests out, replies in.

    def submit(self, action: Action, on_outcome: OnOutcome) -> None:
        self._tickets += 1
        self._pending[self._tickets] = on_outcome
        self.effects.append(StoreRequest(self._tickets, action))

    @property
    def pending_count(self) -> int:
        """Requests that the store has not answered."""
        return len(self._pending)

    def change(self, operations: list[Operation], on_outcome: OnOutcome) -> None:
        """Ask the store for a change; the image has it before `on_outcome` hears that it was done."""

        def on_multi(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self.image.apply(operations)
                self._follow(operations)
            on_outcome(outcome)

        self.submit(Multi(tuple(operations)), on_multi)

    def _follow(self, operations: list[Operation]) -> None:
        """Let what has changed in the image take effect here."""
        topics: dict[bytes, None] = {}
        for operation in operations:
            parts = operation.path.split("/")
            if parts[1] == "config" and parts[2] == BROKER_CONFIG:
                self._use_broker_settings()
                self.events.append(info("broker settings changed", of=parts[3]))
            elif parts[1] == "topics" and len(parts) == 3 and isinstance(operation, Write):
                topics[bytes.fromhex(parts[2])] = None
        for topic_id in topics:
            topic = self.image.topics_by_id[topic_id]
            self._use_topic_settings(topic)
            set_now = [f"{name}={value}" for name, value in sorted(topic.config.items())]
            self.events.append(info("topic settings changed", topic=topic.name, settings=set_now))

    def _use_broker_settings(self) -> None:
        """What was changed at run time, for this broker and for all; it reaches every topic."""
        stored = self.image.configs[BROKER_CONFIG]
        own = self._usable(stored.get(str(self.node_id), {}))
        self.settings.set_dynamic(own, self._usable(stored.get(DEFAULT_BROKER, {})))
        self.partitions.forget_resolved()
        for topic in self.image.topics.values():
            self._use_topic_settings(topic)

    def _usable(self, config: dict[str, str]) -> dict[str, str]:
        """Without what another version of this program took and this one does not."""
        usable = {}
        for key, text in config.items():
            try:
                row = broker_setting(key)
                if row is not None:
                    row.parse(text)
                    usable[key] = text
            except InvalidSetting as problem:
                self.events.append(warning("setting left out", problem=str(problem)))
        return usable

    def _use_topic_settings(self, topic: TopicFacts) -> None:
        for partition in self.partitions.use_settings(topic, self.partitions.resolve(topic)):
            self.waiting.on_moved(partition)
            self.coordinators.on_moved(partition)
            self.maybe_flush(partition)

    def on_store_reply(self, reply: StoreReply) -> None:
        self._pending.pop(reply.ticket)(reply.outcome)

    # Topics.

    def new_id(self) -> bytes:
        """A random id whose text no command line takes for an option, as Kafka has it."""
        while controller.encode_id(found := self.entropy(16)).startswith("-"):
            pass
        return found

    def create_topic(
        self, name: str, config: dict[str, str], assignment: list[list[int]], then: OnOutcome
    ) -> None:
        topic_id = self.new_id()
        operations = controller.decide_topic(name, topic_id, config, assignment)

        def on_created(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self.events.append(info("topic created", topic=name, partitions=len(assignment)))
                self._open_when_fresh(name, topic_id, then)
            else:
                then(outcome)

        self.change(operations, on_created)

    def _open_when_fresh(self, name: str, topic_id: bytes, then: OnOutcome) -> None:
        """Make the folders that a topic lacks, once no checkpoint has the offsets of one of its name."""
        if self.checkpoints.is_stale(name):
            self.checkpoints.wait_for_name(name, lambda: self._open_now(topic_id, then))
            if self.checkpoints.is_urgent:
                self._write_checkpoints()
        else:
            self._open_now(topic_id, then)

    def _open_now(self, topic_id: bytes, then: OnOutcome) -> None:
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None:
            then(Unknown("the topic was deleted as soon as it was made"))
        elif self._open_topic(topic, True):
            then(Done())
        else:
            then(Unknown(f"the folders of topic {topic.name} could not be made"))

    def grow_topic(self, topic: TopicFacts, added: list[list[int]], then: OnOutcome) -> None:
        """Add partitions to a topic, with those replicas."""

        def on_grown(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self.events.append(info("topic grown", topic=topic.name, added=len(added)))
                self._open_when_fresh(topic.name, topic.topic_id, then)
            else:
                then(outcome)

        self.change(controller.decide_growth(topic, added), on_grown)

    def delete_topic(self, topic: TopicFacts, then: OnOutcome) -> None:
        def on_deleted(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self.events.append(info("topic deleted", topic=topic.name))
                self._close_topic(topic)
            then(outcome)

        self.change(controller.decide_deletion(topic), on_deleted)

    def _close_topic(self, topic: TopicFacts) -> None:
        for partition in self.partitions.of(topic.topic_id) or ():
            self.relocation.cancel(partition)
            try:
                directory, name = self.partitions.retire(partition, self.entropy(16))
                self.remove_later(directory, name, partition.log.settings.file_delete_delay_ms)
            except OSError as error:
                self.fail_directory(partition.directory, error)
            self.waiting.on_moved(partition)
            self.coordinators.resign(partition)
        self.partitions.forget(topic)
        self.checkpoints.forget([topic.name])
        self.coordinators.on_topic_deleted(topic.name, topic.topic_id)

    def remove_later(self, directory: Directory, name: str, delay_ms: int) -> None:
        self.effects.append(Removal(directory, [name], self.uptime_ms + delay_ms))

    # Producer ids, taken from the store a block at a time.

    def take_producer_id(self, then: Callable[[int | None], None]) -> None:
        """Hand the next free producer id to `then`, at once or when the store has given a new block."""
        if self._producer_ids:
            self._producer_ids, taken = self._producer_ids[1:], self._producer_ids[0]
            then(taken)
            return
        self._producer_id_waiters.append(then)
        if len(self._producer_id_waiters) == 1:
            first = self.image.next_producer_id
            block = range(first, first + controller.PRODUCER_ID_BLOCK_SIZE)
            self.change(
                controller.decide_producer_ids(self.image), lambda outcome: self._on_block(outcome, block)
            )

    def _on_block(self, outcome: Outcome, block: range) -> None:
        waiters, self._producer_id_waiters = self._producer_id_waiters, []
        if isinstance(outcome, Done):
            self._producer_ids = block
        for then in waiters:
            if isinstance(outcome, Done):
                self.take_producer_id(then)
            else:
                then(None)

    # Flushing: jobs out, results in.

    def maybe_flush(self, partition: Partition) -> None:
        """Begin a flush if one is wanted; if many are under way, when one of them has ended. Each keeps its
        files open, and after a crash every partition wants one."""
        if self._flushing_count >= FLUSHES_MAX:
            self._flush_queue[partition] = None
            return
        try:
            job = partition.begin_flush()
        except OSError as error:
            self.fail_directory(partition.directory, error)
            self._flush_queue[partition] = None  # unless it is offline now, it is tried again
            return
        if job is not None:
            self._flushing_count += 1
            self.flushes.append((partition, job))

    def _begin_queued_flushes(self) -> None:
        for _ in range(min(FLUSHES_MAX - self._flushing_count, len(self._flush_queue))):
            self.maybe_flush(self._flush_queue.popitem(last=False)[0])

    def on_flushed(self, partition: Partition, error: OSError | None) -> None:
        """An fsync has ended. If it failed, nothing it covered is ever acknowledged (L10)."""
        self._flushing_count -= 1
        # A topic's folder is renamed when it is deleted; an fsync that no longer finds it says nothing.
        if error is not None and partition.role is not Role.DELETED:
            self.fail_directory(partition.directory, error)
        else:
            partition.on_flushed(self.now_ms)
            self.waiting.on_moved(partition)
            self.coordinators.on_moved(partition)
            if partition.role is Role.LEADER:
                self.maybe_flush(partition)
        self._begin_queued_flushes()

    def fail_directory(self, directory: LogDirectory, failure: OSError) -> None:
        """Take a log directory offline for good, with everything in it."""
        if failure.errno in TOO_MANY_OPEN:  # the process has too many files open; the disk is well
            reason = f"{failure.strerror}; raise the limit of open files"
            self.events.append(error("file not opened", directory=directory.path, reason=reason))
            return
        if directory.failure is None:
            directory.failure = str(failure)
            self.events.append(error("directory offline", directory=directory.path, reason=str(failure)))
        self.relocation.cancel_touching(directory)
        for partition in self.partitions.in_directory(directory):
            partition.become_offline()
            self.waiting.on_moved(partition)
            self.coordinators.resign(partition)
        self.checkpoints.release()

    @property
    def has_failed(self) -> bool:
        """No log directory is left to serve from."""
        return self.partitions.has_failed

    # Time.

    def tick(self) -> None:
        self.coordinators.tick()  # what is gathered is written before anybody is told that it took too long
        self.waiting.tick(self.uptime_ms)
        if self.relocation.moves:
            self.relocation.advance()
        self.partitions.mark_overdue_flushes(self.now_ms)
        for partition in self.partitions.wanting_flush():
            self.maybe_flush(partition)
        if self._silence.is_over(self.uptime_ms):
            self.telemetry.expire(self.uptime_ms)
        self._begin_queued_flushes()
        if self._retention.is_over(self.uptime_ms) and not self._retention_queue:
            self._retention_queue.extend(self.partitions.all())
        self._apply_retention()
        if self._expiry.is_over(self.uptime_ms):
            self.partitions.expire_producers(self.now_ms)
        is_wanted = self.checkpoints.is_wanted and self._trims.is_over(self.uptime_ms)
        if self._checkpoints.is_over(self.uptime_ms) or is_wanted or self.checkpoints.is_urgent:
            self._write_checkpoints()

    def _apply_retention(self) -> None:
        """To some of the partitions that are due: all at once would take too long where there are many."""
        for _ in range(min(RETENTION_SLICE, len(self._retention_queue))):
            partition = self._retention_queue.popleft()
            try:
                names = self.partitions.remove_expired(partition, self.now_ms)
            except OSError as error:
                self.fail_directory(partition.directory, error)
                continue
            if names:
                due_ms = self.uptime_ms + partition.log.settings.file_delete_delay_ms
                self.effects.append(Removal(partition.log.directory, names, due_ms))

    def _write_checkpoints(self) -> None:
        number = self.checkpoints.take_number()
        working = [directory for directory in self.partitions.directories if directory.failure is None]
        self.effects += [self.partitions.checkpoint(directory, number) for directory in working]

    def on_checkpointed(self, checkpoint: Checkpoint, failure: OSError | None) -> None:
        if failure is None:
            self.checkpoints.on_written(checkpoint.directory, checkpoint.number)
        else:
            self.fail_directory(checkpoint.directory, failure)
            self.checkpoints.want()

    def stop(self, run_jobs: RunJobs = run_in_turn) -> None:
        """A clean stop: everything durable, checkpoints written, the sign of it left behind."""
        self.is_serving = False
        for directory in self.partitions.directories:
            try:
                if directory.failure is None:
                    self.partitions.close_directory(directory, self.image.broker_epoch, run_jobs)
            except OSError as error:
                self.fail_directory(directory, error)


class StoreFailed(Exception):
    """The store did not do what a start cannot go on without."""
