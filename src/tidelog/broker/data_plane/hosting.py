"""The logs of this broker in step with the image: opened, made, given roles and closed.

Whatever the way a change became known (this broker wrote it, or read it), what follows is the same: `follow`
compares what is open here with what the image has.

**Invariant:** the folder of a partition is made only when no checkpoint has offsets of an older one of its
name. A log is given up only when the image says that it belongs to others: the image never goes back, and
nobody comes into an ISR who has not seen that it is a replica again.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.events import info
from tidelog.broker.data_plane.checkpoints import Checkpoints
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.flushing import Flushing
from tidelog.broker.data_plane.homes import DirectoryFailed
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.data_plane.relocation import Relocation
from tidelog.broker.data_plane.replicas import Replicas
from tidelog.broker.data_plane.retention import Retention
from tidelog.broker.data_plane.statements import Statements
from tidelog.broker.kernel import Kernel
from tidelog.broker.signal import PartitionSignals, Signal
from tidelog.broker.standing import Standing
from tidelog.broker.store_desk import OnOutcome
from tidelog.broker.topic_settings import SettingsInForce
from tidelog.cluster.facts import DeletedTopic, TopicFacts
from tidelog.cluster.image import Image
from tidelog.cluster.store import Done, Outcome, Unknown
from tidelog.log.directory import LogDirectory
from tidelog.protocol.produce import forget_topic
from tidelog.replication.partition import Partition


class Hosting:
    def __init__(
        self,
        kernel: Kernel,
        image: Image,
        standing: Standing,
        disks: Disks,
        partitions: Partitions,
        checkpoints: Checkpoints,
        flushing: Flushing,
        relocation: Relocation,
        statements: Statements,
        replicas: Replicas,
        retention: Retention,
        settings_in_force: SettingsInForce,
        signals: PartitionSignals,
    ) -> None:
        self._kernel = kernel
        self._clock = kernel.clock
        self._outbox = kernel.outbox
        self._image = image
        self._standing = standing
        self._disks = disks
        self._partitions = partitions
        self._checkpoints = checkpoints
        self._flushing = flushing
        self._relocation = relocation
        self._statements = statements
        self._replicas = replicas
        self._retention = retention
        self._settings_in_force = settings_in_force
        self._advanced = signals.advanced
        self._resigned = signals.resigned
        self._waiters: dict[bytes, list[OnOutcome]] = {}  # by topic: who waits until it is open here
        self._opening: dict[bytes, None] = {}  # topics whose folders wait for a checkpoint
        self.deleted: Signal[DeletedTopic] = Signal()

    def use_settings(self, topic: TopicFacts) -> None:
        """Let the settings in force for a topic take effect."""
        for partition in self._partitions.use_settings(topic, self._settings_in_force.resolve(topic)):
            self._advanced.emit(partition)
            self._flushing.maybe_begin(partition)
            self._replicas.note_settings(partition)

    def on_directory_failed(self, directory: LogDirectory) -> None:
        """Everything in it is offline."""
        for partition in self._partitions.in_directory(directory):
            self._replicas.drop(partition)
            self._retention.drop(partition)
            partition.become_offline()
            self._resigned.emit(partition)
            self._advanced.emit(partition)
            self._statements.note(partition)

    def when_open(self, topic_id: bytes, then: OnOutcome) -> None:
        """Tell when the partitions of a topic that are this broker's are open, or cannot be."""
        if topic_id in self._opening:
            self._waiters.setdefault(topic_id, []).append(then)
        else:
            then(self._outcome(topic_id))

    def _outcome(self, topic_id: bytes) -> Outcome:
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None:
            return Unknown("the topic was deleted right after it was created")
        here = self._partitions.of(topic_id) or ()
        if any(partition is not None and not partition.is_open for partition in here):
            return Unknown(f"the folders of topic {topic.name} could not be created")
        return Done()

    def follow(self, topic_ids: Iterable[bytes]) -> None:
        for topic_id in topic_ids:
            topic = self._image.topics_by_id.get(topic_id)
            if topic is None:
                self._close(topic_id)
                continue
            self._give_up_moved(topic)
            if self._partitions.lacks(topic):
                self._open_when_fresh(topic)
            else:
                self._assign(topic)

    def open_known(self) -> None:
        """At the start, by an image that was just read and synced: every topic that was there before. What
        was moved away while this broker was down is given up now, what belongs to no topic set aside."""
        for topic in self._image.topics.values():
            self._open(topic, is_new=False)
        failures = self._partitions.set_strays_aside(self._image.topics_by_id, self._kernel.is_sharing)
        self._note_opened(failures)

    def assign_all(self) -> None:
        for topic in list(self._image.topics.values()):
            self._assign(topic)

    def _open_when_fresh(self, topic: TopicFacts) -> None:
        """Make the folders that a topic lacks, once no checkpoint has the offsets of one of its name."""
        topic_id = topic.topic_id
        if not self._checkpoints.is_stale(topic.name):
            self._open_now(topic_id)
        elif topic_id not in self._opening:
            self._opening[topic_id] = None
            self._checkpoints.wait_for_name(topic.name, lambda: self._open_now(topic_id))
            self._checkpoints.write_urgent()

    def _open_now(self, topic_id: bytes) -> None:
        self._opening.pop(topic_id, None)
        topic = self._image.topics_by_id.get(topic_id)
        if topic is not None:
            self._open(topic, is_new=True)
            self._assign(topic)
        for then in self._waiters.pop(topic_id, []):
            then(self._outcome(topic_id))

    def _open(self, topic: TopicFacts, is_new: bool) -> None:
        """Open what of a topic is this broker's; a directory that fails is offline from here on."""
        settings = self._settings_in_force.resolve(topic)
        self._note_opened(self._partitions.open_topic(topic, settings, self._clock.now_ms, is_new))

    def _note_opened(self, failures: list[DirectoryFailed]) -> None:
        self._outbox.events += self._partitions.take_events()
        for failed in failures:
            self._disks.fail(failed.directory, failed.error)
        for directory, name in self._partitions.homes.take_strays():
            self._outbox.remove_later(directory, name, 0)

    def _assign(self, topic: TopicFacts) -> None:
        """Let the partitions that are open here have their roles."""
        if not self._standing.has_registered:
            return
        for partition in self._partitions.of(topic.topic_id) or ():
            if partition is None or partition.index not in topic.partitions:
                continue
            try:
                self._replicas.assign(partition, topic.partitions[partition.index])
            except OSError as error:
                self._disks.fail(partition.directory, error)

    def _close(self, topic_id: bytes) -> None:
        here = self._partitions.of(topic_id)
        if here is None:
            return
        name = self._partitions.name_of(topic_id)
        for partition in here:
            if partition is not None:
                self._retire(partition)
        self._partitions.forget(topic_id)
        self._checkpoints.forget([name])
        forget_topic(name, topic_id)
        self.deleted.emit(DeletedTopic(name, topic_id))

    def _give_up_moved(self, topic: TopicFacts) -> None:
        """Close what has been moved to other brokers."""
        for partition in self._partitions.moved_away(topic):
            self._retire(partition)
            partition.become_moved()
            self._partitions.forget_one(partition)
            self._checkpoints.forget([topic.name])
            name = f"{topic.name}-{partition.index}"
            self._outbox.tell(info("replica reassigned", partition=name))

    def _retire(self, partition: Partition) -> None:
        self._relocation.cancel(partition)
        self._replicas.drop(partition)
        self._retention.drop(partition)
        self._statements.forget(partition)
        try:
            directory, folder = self._partitions.retire(partition, self._kernel.entropy(16))
            self._outbox.remove_later(directory, folder, partition.log.settings.file_delete_delay_ms)
        except OSError as error:
            self._disks.fail(partition.directory, error)
        self._resigned.emit(partition)
        self._advanced.emit(partition)
