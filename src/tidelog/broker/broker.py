"""The broker: all state of one node in one deterministic object. This file is wiring only.

Requests, ticks, finished jobs and store replies go in; answers appear on their connections; what needs
the outside world (jobs, store requests, removals) comes out as effects that the shell takes and runs.

**Invariant:** no socket, clock, thread, `async` or randomness in here: the time is set by the shell,
random bytes come from the `entropy` it passes. A part knows the parts that its constructor names; what others
must hear of it goes by the signals that are connected here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.base.config import BrokerSettings
from tidelog.base.events import info
from tidelog.base.limits import API_KEY_MAX, API_VERSION_BITS, FAILURE_STATED_MS_MAX
from tidelog.base.schedule import EACH_TICK, Row, Schedule
from tidelog.broker.asking import Asking
from tidelog.broker.control_plane.control import Control
from tidelog.broker.control_plane.following import Following
from tidelog.broker.control_plane.forwarding import Forwarding
from tidelog.broker.control_plane.producer_ids import ProducerIds
from tidelog.broker.control_plane.registration import Registration, StoreFailed
from tidelog.broker.control_plane.topics import Topics
from tidelog.broker.data_plane.checkpoints import Checkpoints
from tidelog.broker.data_plane.compacting import Compacting, RunRound
from tidelog.broker.data_plane.coordinators import Coordinators
from tidelog.broker.data_plane.damaged import Damaged
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.flushing import Flushing
from tidelog.broker.data_plane.hosting import Hosting
from tidelog.broker.data_plane.logs import Logs, RunJobs, run_in_turn
from tidelog.broker.data_plane.lookups import Lookups
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.data_plane.relocation import Relocation
from tidelog.broker.data_plane.replicas import Replicas
from tidelog.broker.data_plane.retention import Retention
from tidelog.broker.data_plane.sessions import FetchSessions
from tidelog.broker.data_plane.statements import Statements
from tidelog.broker.data_plane.transacting import Transacting
from tidelog.broker.kernel import Kernel
from tidelog.broker.peers import FORWARD, REPLICATE
from tidelog.broker.quotas import Quotas
from tidelog.broker.signal import PartitionSignals
from tidelog.broker.standing import Standing
from tidelog.broker.store_desk import OnOutcome, StoreDesk
from tidelog.broker.telemetry import Telemetry
from tidelog.broker.topic_settings import SettingsInForce
from tidelog.broker.waiting import WaitingRoom
from tidelog.cluster.changes import (
    BrokerConfigured,
    BrokersChanged,
    Change,
    ControllerChanged,
    FeaturesChanged,
    QuotasChanged,
    TopicChanged,
    TopicConfigured,
)
from tidelog.cluster.image import Image
from tidelog.cluster.store import Changed, StoreEvent, StoreReply
from tidelog.log.compaction.cleaning import clean
from tidelog.log.directory import LogDirectory

__all__ = ["Broker", "StoreFailed"]

SILENCE_CHECK_MS = 10_000  # how often clients that push no more metrics are looked for
BY_WHICH_LEADERS_ARE_CHOSEN = (BrokersChanged, BrokerConfigured, FeaturesChanged)
_LOGGER_LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}


class Broker:
    def __init__(
        self,
        settings: BrokerSettings,
        directories: Sequence[LogDirectory],
        entropy: Callable[[int], bytes],
        is_sharing: bool = False,
        boot_id: str = "",
        run_round: RunRound = clean,
    ) -> None:
        """`run_round` is called on a thread."""
        kernel = self.kernel = Kernel(settings, entropy, is_sharing, boot_id)
        self.settings = settings
        self.node_id = kernel.node_id
        self.clock = kernel.clock
        self.outbox = kernel.outbox
        self.image = Image()
        self.standing = Standing(kernel.node_id)
        self.desk = StoreDesk(self.image, kernel.outbox, is_sharing)
        self.settings_in_force = SettingsInForce(kernel, self.image)
        self.waiting = WaitingRoom()
        self.telemetry = Telemetry(entropy)
        self.quotas = Quotas(settings, kernel.clock)
        self.signals = PartitionSignals()
        # Requests served, by API key and version, as `key << API_VERSION_BITS | version`.
        self.served_counts = [0] * (API_KEY_MAX + 1 << API_VERSION_BITS)
        self.logger_override: str | None = None
        self._make_control_plane()
        self._make_data_plane(directories, run_round)
        self._connect()
        self._schedule = self._make_schedule()

    def _make_control_plane(self) -> None:
        kernel, image, standing, desk = self.kernel, self.image, self.standing, self.desk
        self.following = Following(kernel, standing, desk)
        self.control = Control(kernel, standing, desk, self.following, self.settings_in_force)
        self.forwarding = Forwarding(kernel, image, self.control, self.waiting)
        self.producer_ids = ProducerIds(desk)
        self.topics = Topics(
            kernel,
            image,
            self.control,
            self.forwarding,
            self.settings_in_force,
            self._when_open,
        )

    def _make_data_plane(self, directories: Sequence[LogDirectory], run_round: RunRound) -> None:
        kernel, image, standing, desk = self.kernel, self.image, self.standing, self.desk
        slots = self.settings.number("max.incremental.fetch.session.cache.slots")
        self.sessions = FetchSessions(slots, kernel.entropy, self.waiting)
        disks = self.disks = Disks(kernel, standing, directories)
        partitions = self.partitions = Partitions(kernel.node_id, disks.directories)
        checkpoints = self.checkpoints = Checkpoints(kernel, standing, disks, partitions)
        flushing = self.flushing = Flushing(kernel.clock, kernel.outbox, disks)
        relocation = self.relocation = Relocation(kernel, disks, partitions, checkpoints)
        statements = self.statements = Statements(kernel.node_id, standing, desk, partitions)
        damaged = Damaged(kernel.outbox, statements)
        self.lookups = Lookups(kernel.outbox, disks, self.waiting, damaged)
        self.compacting = Compacting(kernel, disks, partitions, checkpoints, flushing, relocation, run_round)
        self.retention = Retention(kernel, disks, partitions, flushing, self.waiting)
        self.coordinators = Coordinators(
            kernel,
            desk,
            disks,
            partitions,
            flushing,
            statements,
            checkpoints,
            self.waiting,
            create_topic=self.topics.have_created,
            ask=self.forwarding.asking.ask,
        )
        self.transacting = Transacting(
            kernel,
            desk,
            disks,
            partitions,
            flushing,
            statements,
            checkpoints,
            self.waiting,
            self.coordinators,
            self.producer_ids,
            create_topic=self.topics.have_created,
        )
        replicas = self.replicas = Replicas(
            kernel,
            standing,
            desk,
            disks,
            partitions,
            flushing,
            statements,
            self.sessions,
            checkpoints,
            relocation,
            self.signals,
        )
        self.hosting = Hosting(
            kernel,
            image,
            standing,
            disks,
            partitions,
            checkpoints,
            flushing,
            relocation,
            statements,
            replicas,
            self.retention,
            self.settings_in_force,
            self.signals,
        )
        self.logs = Logs(
            kernel, image, standing, disks, partitions, checkpoints, self.hosting, statements, replicas
        )
        self.registration = Registration(
            kernel, desk, standing, self.following, self.control, self.settings_in_force, self.logs
        )

    def _connect(self) -> None:
        """Who hears of what, in that order."""
        self.desk.changed.connect(self._on_changed)
        signals = self.signals
        signals.advanced.connect(self.waiting.on_moved, self.coordinators.on_advanced)
        signals.led.connect(self.coordinators.lead)
        signals.resigned.connect(self.coordinators.resign)
        self.transacting.connect(signals)
        self.flushing.flushed.connect(
            signals.advanced.emit,
            self.replicas.on_flushed,
            self.retention.on_flushed,
            self.compacting.on_flushed,
        )
        self.compacting.swapped.connect(self.replicas.cuts.on_swapped)
        self.disks.failed.connect(
            self.relocation.cancel_touching,
            self.hosting.on_directory_failed,
            lambda directory: self.checkpoints.release(),
        )
        self.hosting.deleted.connect(self.coordinators.on_topic_deleted)

    def _when_open(self, topic_id: bytes, then: OnOutcome) -> None:
        self.hosting.when_open(topic_id, then)

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms

    @property
    def uptime_ms(self) -> int:
        return self.clock.uptime_ms

    @property
    def is_sharing(self) -> bool:
        """Whether other brokers use the same store."""
        return self.kernel.is_sharing

    @property
    def logger_level(self) -> str:
        """The least that is written to the log, by Kafka's names: what a client asked for since the start,
        else the setting."""
        return self.logger_override or _LOGGER_LEVELS[self.settings.text("operator.log.level")]

    @property
    def is_serving(self) -> bool:
        return self.standing.is_serving

    def start(self, host: str, port: int, listeners: dict[str, tuple[str, int]] | None = None) -> None:
        self.registration.start(host, port, listeners)

    # What comes from the store.

    def note_store(self, is_reached: bool) -> None:
        """The connection to the store was lost, or is back."""
        self.standing.is_store_reached = is_reached

    def on_store_event(self, event: StoreEvent) -> None:
        if isinstance(event, StoreReply):
            self.desk.on_reply(event)
        elif isinstance(event, Changed):
            self.following.on_changed(event.path)
        else:
            self.registration.on_session_ended()

    def _on_changed(self, changes: list[Change]) -> None:
        """Let what has changed in the image take effect here, settings before roles."""
        for change in changes:
            if isinstance(change, BrokerConfigured):
                self._use_broker_settings()
                self.outbox.tell(info("broker settings changed", of=change.name))
            elif isinstance(change, TopicConfigured):
                self._use_topic_settings(change.topic_id)
            elif isinstance(change, FeaturesChanged):
                self.registration.check_levels()
            elif isinstance(change, QuotasChanged):
                self._use_quotas()
        if self.standing.are_logs_open:
            topic_ids = [change.topic_id for change in changes if isinstance(change, TopicChanged)]
            self.hosting.follow(topic_ids)
            if BrokersChanged() in changes:
                self.replicas.note_brokers()
            if any(isinstance(change, BY_WHICH_LEADERS_ARE_CHOSEN) for change in changes):
                self.statements.note_leaderless()
                self.control.note_brokers()
            self.control.note_topics(topic_ids)
            self.control.look()
        if ControllerChanged() in changes:
            self.control.note_controller()
        self.forwarding.note_topics()
        self.transacting.marking.on_image()

    def _use_topic_settings(self, topic_id: bytes) -> None:
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None or self.partitions.of(topic_id) is None:
            return
        self.hosting.use_settings(topic)
        set_now = [f"{name}={value}" for name, value in sorted(topic.config.items())]
        self.outbox.tell(info("topic settings changed", topic=topic.name, settings=set_now))

    def _use_broker_settings(self) -> None:
        self.settings_in_force.use_stored()
        for topic in self.image.topics.values():
            self.hosting.use_settings(topic)

    def _use_quotas(self) -> None:
        count = self.quotas.follow(self.image)
        self.outbox.tell(info("quotas changed", entities=count))

    # What comes from other brokers.

    def on_peer_frame(self, node_id: int, lane: int, frame: memoryview) -> None:
        """An answer from a peer, without its size."""
        if lane == REPLICATE:
            self.replicas.fetching.on_frame(node_id, frame)
        else:
            self._asking(lane).on_frame(node_id, frame)

    def on_peer_closed(self, node_id: int, lane: int) -> None:
        if lane == REPLICATE:
            self.replicas.fetching.on_closed(node_id)
        else:
            self._asking(lane).on_closed(node_id)

    def _asking(self, lane: int) -> Asking:
        return self.forwarding.asking if lane == FORWARD else self.transacting.lanes[lane]

    # Failure.

    @property
    def is_failing(self) -> bool:
        """No log directory is left to serve from."""
        return self.disks.are_all_failed

    @property
    def has_failed(self) -> bool:
        """The same, and the store knows, unless that takes too long: a disk that is mounted again must not
        pass for whole."""
        if not self.is_failing:
            return False
        is_late = self.uptime_ms - self.disks.failed_ms > FAILURE_STATED_MS_MAX
        return is_late or not self.standing.is_registered or not self.statements.is_due

    # What takes long, in pieces.

    @property
    def has_work(self) -> bool:
        return (
            self.transacting.has_work
            or self.coordinators.has_work
            or self.lookups.has_work
            or self.retention.has_work
            or self.replicas.cuts.has_work
            or self.compacting.has_work
        )

    def work(self) -> None:
        """One piece, between the turns of clients."""
        if self.transacting.has_work:
            self.transacting.work()
        if self.lookups.has_work:
            self.lookups.work()
        if self.coordinators.has_work:
            self.coordinators.work()
        if self.retention.has_work:
            self.retention.work()
        if self.replicas.cuts.has_work:
            self.replicas.cuts.work()
        if self.compacting.has_work:
            self.compacting.work()

    # Time.

    @property
    def next_due_ms(self) -> int | None:
        """When `tick` should come at the latest: for a request that waits, a group or a transaction."""
        due = (
            self.waiting.first_deadline_ms,
            self.coordinators.next_due_ms,
            self.transacting.next_due_ms,
        )
        return min((each for each in due if each is not None), default=None)

    def tick(self) -> None:
        self._schedule.tick(self.uptime_ms)

    def _make_schedule(self) -> Schedule:
        """What is done as time passes, in this order: what is gathered is written before anybody is told that
        it took too long."""
        clock, partitions = self.clock, self.partitions
        expiry_ms = self.settings.number("producer.id.expiration.check.interval.ms")
        return Schedule(
            Row(EACH_TICK, self.coordinators.tick),
            Row(EACH_TICK, self.transacting.tick),
            Row(EACH_TICK, lambda: self.waiting.tick(clock.uptime_ms)),
            Row(EACH_TICK, self.replicas.tick),
            Row(EACH_TICK, self.statements.tick),
            Row(EACH_TICK, self.following.tick),
            Row(EACH_TICK, self.control.tick),
            Row(EACH_TICK, self.forwarding.tick),
            Row(EACH_TICK, self.relocation.advance),
            Row(EACH_TICK, lambda: partitions.mark_overdue_flushes(clock.now_ms)),
            Row(EACH_TICK, self._begin_wanted_flushes),
            Row(SILENCE_CHECK_MS, lambda: self.telemetry.expire(clock.uptime_ms)),
            Row(SILENCE_CHECK_MS, self.quotas.expire),
            Row(EACH_TICK, self.flushing.begin_queued),
            Row(EACH_TICK, self.retention.tick),
            Row(EACH_TICK, self.compacting.tick),
            Row(expiry_ms, lambda: partitions.expire_producers(clock.uptime_ms)),
            Row(EACH_TICK, self.checkpoints.tick),
        )

    def _begin_wanted_flushes(self) -> None:
        for partition in self.partitions.wanting_flush():
            self.flushing.maybe_begin(partition)

    def stop(self, run_jobs: RunJobs = run_in_turn) -> None:
        """A clean stop: everything durable, checkpoints written, the sign of it left behind."""
        self.transacting.write()
        self.standing.is_serving = False
        if self.standing.are_logs_open:
            self.logs.close(run_jobs)
