"""The broker: all state of one node in one deterministic object. This file is wiring only.

Requests, ticks, finished jobs and store replies go in; answers appear on their connections; what needs
the outside world (fsyncs, store requests, removals) comes out as effects that the shell takes and runs.

**Invariant:** no socket, clock, thread, `async` or randomness in here: the time is set by the shell,
random bytes come from the `entropy` it passes.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.base.config import BrokerSettings, broker_setting
from tidelog.base.descriptors import TOO_MANY_OPEN
from tidelog.base.events import Event, error, info, warning
from tidelog.base.files import Directory, File
from tidelog.base.limits import API_KEY_MAX, API_VERSION_BITS, FLUSHES_MAX
from tidelog.base.setting import InvalidSetting
from tidelog.broker.checkpoints import Checkpoints
from tidelog.broker.control import Control
from tidelog.broker.coordinators import Coordinators
from tidelog.broker.damaged import Damaged
from tidelog.broker.following import Following, notice_of
from tidelog.broker.forwarding import Forwarding
from tidelog.broker.interval import Interval
from tidelog.broker.lookups import ColdRead, Lookups
from tidelog.broker.partitions import Checkpoint, Partitions, RunJobs, run_in_turn
from tidelog.broker.peers import REPLICATE, PeerClose, PeerSend
from tidelog.broker.producer_ids import OnProducerId, ProducerIds
from tidelog.broker.registration import Registration, StoreFailed
from tidelog.broker.relocation import CopyRequest, Relocation
from tidelog.broker.replicas import Replicas
from tidelog.broker.retention import Retention
from tidelog.broker.sessions import FetchSessions
from tidelog.broker.statements import Statements
from tidelog.broker.telemetry import Telemetry
from tidelog.broker.topics import Topics
from tidelog.broker.waiting import WaitingRoom
from tidelog.cluster import controller
from tidelog.cluster.image import BROKER_CONFIG, CONTROLLER, DEFAULT_BROKER, FEATURES, Image, TopicFacts
from tidelog.cluster.store import (
    Action,
    Changed,
    Done,
    Multi,
    Operation,
    Outcome,
    StoreEvent,
    StoreReply,
    StoreRequest,
    Watch,
)
from tidelog.log.directory import LogDirectory
from tidelog.log.log import FlushJob
from tidelog.replication.partition import Partition, Role

__all__ = ["Broker", "Effect", "Removal", "StoreFailed"]


class Removal(NamedTuple):
    """Files or folders to unlink off the loop, not before `due_ms` of uptime."""

    directory: Directory
    names: list[str]
    due_ms: int


SILENCE_CHECK_MS = 10_000  # how often clients that push no more metrics are looked for
TRIMS_KEPT_MS = 1_000  # how long a deletion of records may be known to memory alone
FAILURE_STATED_MS_MAX = 5_000  # after the last directory has failed, until the broker ends all the same
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
_LOGGER_LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}
Effect = StoreRequest | Watch | PeerSend | PeerClose | Removal | Checkpoint | CopyRequest | ColdRead
OnOutcome = Callable[[Outcome], None]


class Broker:
    def __init__(
        self,
        settings: BrokerSettings,
        directories: Sequence[LogDirectory],
        entropy: Callable[[int], bytes],
        is_sharing: bool = False,
        boot_id: str = "",
    ) -> None:
        self.settings = settings
        self.node_id = settings.number("node.id")
        self.entropy = entropy
        self.is_sharing = is_sharing  # the store, with other brokers
        self.boot_id = boot_id  # of the machine: another one when what was not flushed may be gone
        self.now_ms = 0
        self.uptime_ms = 0
        self.image = Image()
        self.waiting = WaitingRoom()
        self.sessions = FetchSessions(
            settings.number("max.incremental.fetch.session.cache.slots"), entropy, self.waiting
        )
        self.telemetry = Telemetry(entropy)
        self.partitions = Partitions(self.node_id, settings, directories)
        self.checkpoints = Checkpoints(self.partitions.directories)
        self.relocation = Relocation(self)
        self.damaged = Damaged(self)
        self.lookups = Lookups(self)
        self.statements = Statements(self)
        self.coordinators = Coordinators(self)
        self.topics = Topics(self)
        self.replicas = Replicas(self)
        self.following = Following(self)
        self.control = Control(self)
        self.forwarding = Forwarding(self)
        self.registration = Registration(self)
        self.producer_ids = ProducerIds(self)
        self.retention = Retention(self)
        self.effects: list[Effect] = []
        self.flushes: list[tuple[Partition, FlushJob]] = []
        self._flushing_count = 0
        self._flush_queue: OrderedDict[Partition, None] = OrderedDict()  # whose flush waits for others' end
        self.is_serving = False
        self.events: list[Event] = []  # for the operator
        # Requests served, by API key and version, as `key << API_VERSION_BITS | version`.
        self.served_counts = [0] * (API_KEY_MAX + 1 << API_VERSION_BITS)
        self.logger_override: str | None = None
        self.is_failing = False  # every log directory has failed,
        self._failed_ms = 0  # and when the last one did
        self._tickets = 0
        self._pending: dict[int, OnOutcome] = {}
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

    def start(self, host: str, port: int, listeners: dict[str, tuple[str, int]] | None = None) -> None:
        self.registration.start(host, port, listeners)

    @property
    def is_registered(self) -> bool:
        return self.registration.is_registered

    @property
    def broker_epoch(self) -> int:
        return self.registration.epoch

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
        asked = [*operations, notice_of(operations)] if self.is_sharing else operations

        def on_multi(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self.image.apply(operations)
                self.follow([operation.path for operation in operations])
            on_outcome(outcome)

        self.submit(Multi(tuple(asked)), on_multi)

    def follow(self, paths: list[str]) -> None:
        """Let what has changed in the image take effect here."""
        topics: dict[bytes, None] = {}
        written: dict[bytes, None] = {}
        has_brokers = has_controller = False
        for path in paths:
            parts = path.split("/")
            if parts[1] == "config" and parts[2] == BROKER_CONFIG:
                self.use_broker_settings()
                self.control.note_brokers()
                self.events.append(info("broker settings changed", of=parts[3]))
            elif parts[1] == "topics":
                topics[bytes.fromhex(parts[2])] = None
                if len(parts) == 3:
                    written[bytes.fromhex(parts[2])] = None
            elif parts[1] == "brokers":
                has_brokers = True
            elif path == CONTROLLER:
                has_controller = True
            elif path == FEATURES:
                self.registration.check_levels()
        for topic_id in written:
            topic = self.image.topics_by_id.get(topic_id)
            if topic is not None and self.partitions.of(topic_id) is not None:
                self._use_topic_settings(topic)
                set_now = [f"{name}={value}" for name, value in sorted(topic.config.items())]
                self.events.append(info("topic settings changed", topic=topic.name, settings=set_now))
                self.topics.note_policy(topic.name, topic.config)
        if self.registration.are_logs_open:
            self.topics.follow(topics)
            if has_brokers:
                self.replicas.note_brokers()
                self.statements.note_leaderless()
                self.control.note_brokers()
            self.control.note_topics(topics)
            self.control.look()
        if has_controller:
            self.control.note_controller()
        self.forwarding.note_topics()

    def use_broker_settings(self) -> None:
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
            self.on_moved(partition)
            self.maybe_flush(partition)
            self.replicas.note_settings(partition)

    def on_store_event(self, event: StoreEvent) -> None:
        if isinstance(event, StoreReply):
            self._pending.pop(event.ticket)(event.outcome)
        elif isinstance(event, Changed):
            self.following.on_changed(event.path)
        else:
            self.registration.on_session_ended()

    # Other brokers: frames out, frames in.

    def on_peer_frame(self, node_id: int, lane: int, frame: memoryview) -> None:
        """An answer from a peer, without its size."""
        if lane == REPLICATE:
            self.replicas.on_frame(node_id, frame)
        else:
            self.forwarding.on_frame(node_id, frame)

    def on_peer_closed(self, node_id: int, lane: int) -> None:
        if lane == REPLICATE:
            self.replicas.on_closed(node_id)
        else:
            self.forwarding.on_closed(node_id)

    def on_moved(self, partition: Partition) -> None:
        """More of a partition is there, committed, or on disk."""
        self.waiting.on_moved(partition)
        self.coordinators.on_moved(partition)

    # Topics.

    def new_id(self) -> bytes:
        """A random id whose text no command line takes for an option, as Kafka has it."""
        while controller.encode_id(found := self.entropy(16)).startswith("-"):
            pass
        return found

    def create_topic(
        self, name: str, config: dict[str, str], assignment: list[list[int]], then: OnOutcome
    ) -> None:
        self.topics.create(name, config, assignment, then)

    def grow_topic(self, topic: TopicFacts, added: list[list[int]], then: OnOutcome) -> None:
        self.topics.grow(topic, added, then)

    def delete_topic(self, topic: TopicFacts, then: OnOutcome) -> None:
        self.topics.delete(topic, then)

    def remove_later(self, directory: Directory, name: str, delay_ms: int) -> None:
        self.effects.append(Removal(directory, [name], self.uptime_ms + delay_ms))

    def remove_files(self, partition: Partition, names: list[str]) -> None:
        """Unlink files of a partition's log that have left it, after a while."""
        if names:
            due_ms = self.uptime_ms + partition.log.settings.file_delete_delay_ms
            self.effects.append(Removal(partition.log.directory, names, due_ms))

    def take_producer_id(self, then: OnProducerId) -> None:
        self.producer_ids.take(then)

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
            self.fail_directory(partition.directory, error, is_flush=True)
        else:
            partition.on_flushed(self.now_ms)
            self.on_moved(partition)
            self.replicas.on_flushed(partition)
            self.retention.on_flushed(partition)
            self.maybe_flush(partition)
        self._begin_queued_flushes()

    def on_unreadable(self, file: File, failure: OSError) -> None:
        """Bytes that an answer has promised cannot be read: the disk has failed."""
        for directory in self.partitions.directories:
            if file.folder.startswith(directory.path.rstrip("/") + "/"):
                self.fail_directory(directory, failure)

    def fail_directory(self, directory: LogDirectory, failure: OSError, is_flush: bool = False) -> None:
        """Take a log directory offline for good, with everything in it. It may have lost what was written,
        unless that was before this process wrote anything, or the disk is full for a write."""
        if failure.errno in TOO_MANY_OPEN:  # the process has too many files open; the disk is well
            reason = f"{failure.strerror}; raise the limit of open files"
            self.events.append(error("file not opened", directory=directory.path, reason=reason))
            return
        if directory.failure is None:
            self._failed_ms = self.uptime_ms
            is_kept = failure.errno in FULL_DISK and not is_flush
            directory.fail(str(failure), is_lost=self.registration.has_registered and not is_kept)
            if directory.is_lost:
                self.partitions.write_notes(self.boot_id, self.registration.vouched_epoch)
            self.events.append(error("directory offline", directory=directory.path, reason=str(failure)))
        self.is_failing = self.partitions.has_failed
        self.relocation.cancel_touching(directory)
        for partition in self.partitions.in_directory(directory):
            self.replicas.drop(partition)
            self.retention.drop(partition)
            partition.become_offline()
            self.waiting.on_moved(partition)
            self.coordinators.resign(partition)
            self.statements.note(partition)
        self.checkpoints.release()

    @property
    def has_failed(self) -> bool:
        """No log directory is left to serve from, and the store knows, unless that takes too long: a disk
        that is mounted again must not pass for whole."""
        if not self.is_failing:
            return False
        is_late = self.uptime_ms - self._failed_ms > FAILURE_STATED_MS_MAX
        return is_late or not self.is_registered or not self.statements.is_due

    # What takes long, in pieces.

    @property
    def has_work(self) -> bool:
        return self.coordinators.has_work or self.lookups.has_work or self.retention.has_work

    def work(self) -> None:
        """One piece, between the turns of clients."""
        if self.lookups.has_work:
            self.lookups.work()
        if self.coordinators.has_work:
            self.coordinators.work()
        if self.retention.has_work:
            self.retention.work()

    # Time.

    @property
    def next_due_ms(self) -> int | None:
        """When `tick` should come at the latest: for a request that waits, or for a group."""
        deadline_ms, due_ms = self.waiting.first_deadline_ms, self.coordinators.next_due_ms
        if deadline_ms is None or due_ms is None:
            return due_ms if deadline_ms is None else deadline_ms
        return min(deadline_ms, due_ms)

    def tick(self) -> None:
        self.coordinators.tick()  # what is gathered is written before anybody is told that it took too long
        self.waiting.tick(self.uptime_ms)
        self.replicas.tick()
        self.statements.tick()
        self.following.tick()
        self.control.tick()
        self.forwarding.tick()
        if self.relocation.moves:
            self.relocation.advance()
        self.partitions.mark_overdue_flushes(self.now_ms)
        for partition in self.partitions.wanting_flush():
            self.maybe_flush(partition)
        if self._silence.is_over(self.uptime_ms):
            self.telemetry.expire(self.uptime_ms)
        self._begin_queued_flushes()
        self.retention.tick()
        if self._expiry.is_over(self.uptime_ms):
            self.partitions.expire_producers(self.uptime_ms)
        is_wanted = self.checkpoints.is_wanted and self._trims.is_over(self.uptime_ms)
        if self._checkpoints.is_over(self.uptime_ms) or is_wanted or self.checkpoints.is_urgent:
            self._write_checkpoints()

    def write_urgent_checkpoints(self) -> None:
        if self.checkpoints.is_urgent:
            self._write_checkpoints()

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
        self.coordinators.write()
        self.is_serving = False
        for directory in self.partitions.directories:
            try:
                if directory.failure is None and self.registration.are_logs_open:
                    self.partitions.close_directory(directory, self.registration.vouched_epoch, run_jobs)
            except OSError as error:
                self.fail_directory(directory, error)
