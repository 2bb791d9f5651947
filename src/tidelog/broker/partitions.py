"""The partitions that live on this broker, by topic name and by topic id, and the directories they are in.

**Invariant:** a topic is found under its name and its id, or under neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from tidelog.base.config import BrokerSettings, TopicSettings, check_topic_setting
from tidelog.base.events import Event, error, warning
from tidelog.base.files import Directory
from tidelog.base.limits import FLUSHES_MAX, RESOLVED_SETTINGS_MAX
from tidelog.base.setting import InvalidSetting
from tidelog.broker.homes import DirectoryFailed, Homes
from tidelog.cluster.controller import encode_id
from tidelog.cluster.image import PartitionFacts, TopicFacts
from tidelog.log.checkpoint import Offsets
from tidelog.log.directory import (
    PARTITION_METADATA,
    LogDirectory,
    deleted_folder_name,
    folder_name,
    read_topic_id,
    write_topic_id,
)
from tidelog.log.log import FlushJob, Log
from tidelog.log.recovery import open_log
from tidelog.log.trust import LOSS_MARK, Kept, Life, read_mark, write_mark
from tidelog.replication.partition import COUNTERS, Partition, Role

FOREVER_MS = 2**62
RunJobs = Callable[[list[FlushJob]], None]  # until all have ended; the first failure is raised


class Checkpoint(NamedTuple):
    """Where the logs of a directory stand, to be written off the loop; `Broker.on_checkpointed` is told."""

    number: int
    directory: LogDirectory
    recovery_points: Offsets
    high_watermarks: Offsets
    start_offsets: Offsets

    def write(self) -> None:
        self.directory.write_checkpoints(self.recovery_points, self.high_watermarks, self.start_offsets)


def _offline(topic: TopicFacts, index: int, settings: TopicSettings, home: LogDirectory) -> Partition:
    """A partition whose log cannot be opened: it answers, with an error."""
    log = Log(home.directory, settings)
    partition = Partition(topic.name, topic.topic_id, index, log, home)
    partition.become_offline()
    return partition


class Partitions:
    def __init__(self, node_id: int, settings: BrokerSettings, directories: Sequence[LogDirectory]) -> None:
        self._node_id = node_id
        self._settings = settings
        self.homes = Homes(node_id, directories)
        self.directories = self.homes.directories
        self._by_topic: dict[str | bytes, list[Partition | None]] = {}
        self._names: dict[bytes, str] = {}
        self._resolved: dict[tuple[tuple[str, str], ...], TopicSettings] = {}
        self._timed_flush: dict[Partition, None] = {}
        self._events: list[Event] = []
        self.scanned_size = 0  # what opening logs has read and checked,
        self.cut_size = 0  # and what of it had to go
        self._are_all_here = False  # the directories that the store knows, none of them old
        self._mark_epoch = 0  # what logs that have lost something are marked with
        self._registered = -1  # marks up to this epoch are void
        self.departed = dict.fromkeys(COUNTERS, 0)  # what was counted by partitions that are gone

    def of(self, topic: str | bytes) -> list[Partition | None] | None:
        """The partitions of a topic, by name or by id; None for those that are not here."""
        return self._by_topic.get(topic)

    def find(self, topic: str | bytes, index: int) -> Partition | None:
        """One partition, if it is here."""
        here = self._by_topic.get(topic)
        return here[index] if here is not None and 0 <= index < len(here) else None

    def name_of(self, topic_id: bytes) -> str:
        return self._names[topic_id]

    def all(self) -> Iterator[Partition]:
        for topic, partitions in self._by_topic.items():
            if isinstance(topic, str):
                yield from (partition for partition in partitions if partition is not None)

    def lacks(self, topic: TopicFacts) -> bool:
        """Whether something of a topic is to be opened here."""
        here = self._by_topic.get(topic.topic_id)
        if here is None or len(here) < len(topic.partitions):
            return True
        return any(
            here[index] is None and self._node_id in facts.replicas
            for index, facts in topic.partitions.items()
        )

    def moved_away(self, topic: TopicFacts) -> list[Partition]:
        """What is here of a topic and belongs to other brokers now."""
        here, facts = self._by_topic.get(topic.topic_id, ()), topic.partitions
        return [
            partition
            for index, partition in enumerate(here)
            if partition is not None and index in facts and self._node_id not in facts[index].replicas
        ]

    def in_directory(self, directory: LogDirectory) -> Iterator[Partition]:
        return (partition for partition in self.all() if partition.directory is directory)

    @property
    def has_failed(self) -> bool:
        return all(directory.failure is not None for directory in self.directories)

    def claim_directories(
        self, cluster_id: str, entropy: Callable[[int], bytes], boot_id: str, life: Life
    ) -> bool:
        """Check that the directories are ours, and what they have kept; whether all were closed cleanly."""
        for directory in self.directories:
            directory.peek(boot_id, life)
        for directory in self.directories:
            directory.open(cluster_id, self._node_id, encode_id(entropy(16)))
        failed = {each for directory in self.directories for each in directory.failed_before}
        for directory in self.directories:
            if directory.directory_id in failed:
                directory.kept = Kept.LOST
        return all(directory.was_clean for directory in self.directories)

    def write_notes(self, boot_id: str, broker_epoch: int) -> list[DirectoryFailed]:
        """Say in each directory who uses it, and which ones have failed; of those of the last life that is
        repeated until the store knows."""
        lost = [each.directory_id for each in self.directories if each.is_lost]
        failed = dict.fromkeys([*lost, *(name for each in self.directories for name in each.failed_before)])
        failures: list[DirectoryFailed] = []
        for directory in self.directories:
            try:
                if directory.failure is None:
                    directory.write_note(boot_id, broker_epoch, [*failed])
            except OSError as error:
                failures.append(DirectoryFailed(directory, error))
        return failures

    def expect(self, known_ids: Collection[str], mark_epoch: int, registered: int) -> None:
        """Before logs are opened: the directories that the store knows of this broker, the epoch that it is
        about to register with, and that of its last registration."""
        found_ids = [each.directory_id for each in self.directories if each.kept < Kept.LOST]
        self._are_all_here = bool(known_ids) and all(each in found_ids for each in known_ids)
        self._mark_epoch, self._registered = mark_epoch, registered

    def settle_losses(self) -> None:
        """The store knows what was lost: the marks have done their work. From here on a log that ends below
        its checkpointed high watermark has lost more. Manifests list what is here now."""
        marked = [each for each in self.all() if each.is_open and each.kept >= Kept.TORN]
        for directory in self.directories:
            is_marked = any(each.directory is directory for each in marked)
            was_whole, directory.kept = directory.kept is Kept.WHOLE, Kept.WHOLE
            directory.failed_before = ()
            if directory.failure is None:
                if is_marked or not was_whole:
                    self.checkpoint(directory, 0).write()
                directory.manifest.rewrite(
                    (folder_name(each.topic, each.index), encode_id(each.topic_id))
                    for each in self.in_directory(directory)
                )
        for partition in marked:
            partition.log.directory.remove(LOSS_MARK)
            partition.kept = Kept.WHOLE

    def open_topic(self, topic: TopicFacts, now_ms: int, is_new: bool) -> list[DirectoryFailed]:
        """Open or make the logs of a topic's partitions that are not open. One that cannot be opened is
        offline from here on, and the failure of its directory is returned; the others are not the worse
        for it."""
        settings = self.resolve(topic)
        failures: list[DirectoryFailed] = []
        here = self._by_topic.setdefault(topic.topic_id, [])
        here += [None] * (len(topic.partitions) - len(here))
        self._by_topic[topic.name] = here
        self._names[topic.topic_id] = topic.name
        for index, facts in topic.partitions.items():
            if here[index] is not None or self._node_id not in facts.replicas:
                continue
            try:
                partition = self._open_partition(topic, index, settings, now_ms, is_new, facts)
                # From here on the log knows; a topic of that name that is made later begins with nothing.
                for offsets in partition.directory.offsets:
                    offsets.pop((topic.name, index), None)
            except DirectoryFailed as failed:
                failures.append(failed)
                partition = _offline(topic, index, settings, failed.directory)
            if settings.flush_ms < FOREVER_MS:
                self._timed_flush[partition] = None
            here[index] = partition
        return failures

    def resolve(self, topic: TopicFacts) -> TopicSettings:
        """The settings in force for a topic; topics that set the same share them."""
        key = tuple(sorted(topic.config.items()))
        found = self._resolved.get(key)
        if found is None:
            if len(self._resolved) >= RESOLVED_SETTINGS_MAX:
                self._resolved.clear()
            found = self._resolved[key] = TopicSettings(self._settings, self._usable(topic))
        return found

    def _usable(self, topic: TopicFacts) -> dict[str, str]:
        """Without what another version of this program took and this one does not."""
        usable = {}
        for name, text in topic.config.items():
            try:
                check_topic_setting(name, text)
                usable[name] = text
            except InvalidSetting as problem:
                self._events.append(warning("setting left out", topic=topic.name, problem=str(problem)))
        return usable

    def forget_resolved(self) -> None:
        """The broker's settings have changed, which topics fall back to."""
        self._resolved.clear()

    def use_settings(self, topic: TopicFacts, settings: TopicSettings) -> list[Partition]:
        """Let settings take effect; the partitions they are for."""
        partitions = [found for found in self._by_topic.get(topic.topic_id, ()) if found is not None]
        for partition in partitions:
            partition.use_settings(settings)
            if settings.flush_ms < FOREVER_MS:
                self._timed_flush[partition] = None
            else:
                self._timed_flush.pop(partition, None)
        return partitions

    def take_events(self) -> list[Event]:
        """What opening logs has found."""
        events, self._events = [*self._events, *self.homes.take_events()], []
        return events

    def set_strays_aside(self, topics: Mapping[bytes, TopicFacts], is_all: bool) -> list[DirectoryFailed]:
        """Rename folders that are nobody's here any more."""
        names = {
            home: {folder_name(each.topic, each.index) for each in self.in_directory(home)}
            for home in self.directories
        }
        return self.homes.set_strays_aside(topics, names, is_all)

    def _open_partition(
        self,
        topic: TopicFacts,
        index: int,
        settings: TopicSettings,
        now_ms: int,
        is_new: bool,
        facts: PartitionFacts,
    ) -> Partition:
        name = folder_name(topic.name, index)
        home = self.homes.find(name, topic, index, is_new)
        try:
            kept = (
                Kept.WHOLE
                if is_new
                else self._kept_of(home, name, topic, index, self._node_id in facts.listed)
            )
            # What the checkpoints may still have of one whose folder is gone is of the log that is gone.
            is_new = is_new or not home.directory.exists(name)
            home.manifest.add(name, encode_id(topic.topic_id))
            log, kept = self._open_in(home, name, topic, index, settings, now_ms, is_new, kept)
        except OSError as error:
            raise DirectoryFailed(home, error) from error
        home.partition_count += 1
        high_watermark = 0 if is_new else home.high_watermarks.get((topic.name, index), 0)
        return Partition(topic.name, topic.topic_id, index, log, home, high_watermark, kept)

    def _kept_of(self, home: LogDirectory, name: str, topic: TopicFacts, index: int, is_listed: bool) -> Kept:
        """What is known of a log before it is opened. A folder that is missing though the broker is listed
        was never made, or is lost; by a power cut, if it was never flushed."""
        if home.directory.exists(name):
            mark = read_mark(home.directory.folder(name))
            is_valid = mark is not None and mark[1] > self._registered
            return max(home.kept, mark[0]) if mark is not None and is_valid else home.kept
        if not is_listed:
            return Kept.WHOLE
        entry = (name, encode_id(topic.topic_id))
        before = max(each.kept for each in self.directories)
        if not self._are_all_here or any(entry in each.manifest for each in self.directories):
            was_flushed = any(each.recovery_points.get((topic.name, index)) for each in self.directories)
            is_excused = self._are_all_here and before is Kept.UNFLUSHED and not was_flushed
            kept = Kept.TORN if is_excused else Kept.LOST
            write_mark(home.directory.folder(name), kept, self._mark_epoch)
            home.directory.sync()
            self._events.append(error("log missing", log=name, directory=home.path))
            return kept
        return before

    def _open_in(
        self,
        home: LogDirectory,
        name: str,
        topic: TopicFacts,
        index: int,
        settings: TopicSettings,
        now_ms: int,
        is_new: bool,
        kept: Kept,
    ) -> tuple[Log, Kept]:
        key = (topic.name, index)
        recovery_point, start_offset = home.recovery_points.get(key, 0), home.start_offsets.get(key, 0)
        high_watermark = home.high_watermarks.get(key, 0)
        if is_new:
            recovery_point = start_offset = high_watermark = 0
        folder = home.directory.folder(name)
        found = read_topic_id(folder)
        log, report = open_log(
            folder,
            settings,
            now_ms,
            recovery_point,
            start_offset,
            home.was_clean,
            home.is_cached,
            high_watermark,
            kept,
            self._mark_epoch,
        )
        if found is None:
            write_topic_id(folder, encode_id(topic.topic_id))
        if found is None or home.is_cached:
            # The folder may be in memory alone: the first flush makes it durable, before it acknowledges.
            log.note_replaced(PARTITION_METADATA)
            log.new_in = home.directory
        self._events += [warning("log repaired", log=name, problem=problem) for problem in report.problems]
        self.scanned_size += report.scanned_bytes
        self.cut_size += report.cut_bytes
        return log, report.kept

    def unknown_names(self) -> list[str]:
        """Topics of which a checkpoint tells something that is not open here."""
        told = [each for home in self.directories for offsets in home.offsets for each in offsets]
        return list(dict.fromkeys(name for name, index in told if self.find(name, index) is None))

    def retire(self, partition: Partition, unique: bytes) -> tuple[Directory, str]:
        """Close a partition that is not here any more and rename its folder; where it is now, for removal."""
        partition.become_deleted()
        partition.log.abandon()
        self._timed_flush.pop(partition, None)
        home = partition.directory
        home.partition_count -= 1
        name = deleted_folder_name(partition.topic, partition.index, unique)
        home.directory.rename(folder_name(partition.topic, partition.index), name)
        return home.directory, name

    def leave(
        self, partition: Partition, old_home: LogDirectory, unique: bytes
    ) -> tuple[Directory, str | None]:
        """A partition lives elsewhere now: what remains of it in its old home, renamed, for removal. The old
        home is to be synced first: with the new one away, the folder would be taken for the partition."""
        name = folder_name(partition.topic, partition.index)
        if partition.directory is old_home or not old_home.directory.exists(name):
            return old_home.directory, None  # it has come back, or has left
        if read_topic_id(old_home.directory.folder(name)) != encode_id(partition.topic_id):
            return old_home.directory, None  # of a topic that was made under its name since
        aside = deleted_folder_name(partition.topic, partition.index, unique)
        old_home.directory.rename(name, aside)
        return old_home.directory, aside

    def forget(self, topic_id: bytes) -> None:
        name = self._names.pop(topic_id)
        here = self._by_topic.pop(topic_id)
        if self._by_topic.get(name) is here:
            del self._by_topic[name]
        for partition in here:
            if partition is not None:
                self._count_departed(partition)

    def forget_one(self, partition: Partition) -> None:
        self._by_topic[partition.topic_id][partition.index] = None
        self._count_departed(partition)

    def _count_departed(self, partition: Partition) -> None:
        for counter in COUNTERS:
            self.departed[counter] += getattr(partition, counter)

    def mark_overdue_flushes(self, now_ms: int) -> None:
        """Partitions with `flush.ms` whose oldest unflushed record has waited that long."""
        for partition in self._timed_flush:
            log = partition.log
            if log.end_offset > log.recovery_point and now_ms - log.last_flush_ms >= log.settings.flush_ms:
                partition.is_flush_wanted = True

    def wanting_flush(self) -> list[Partition]:
        return [
            partition for partition in self._timed_flush if partition.is_flush_wanted and partition.is_open
        ]

    def expire_producers(self, uptime_ms: int) -> None:
        for partition in self.all():
            partition.log.producers.expire(uptime_ms, partition.log.settings.producer_expiration_ms)

    def checkpoint(self, directory: LogDirectory, number: int) -> Checkpoint:
        recovery, watermarks, starts = {}, {}, {}
        for partition in self.in_directory(directory):
            key = (partition.topic, partition.index)
            if partition.role is Role.OFFLINE:  # what was known of it at the start still holds
                if key in directory.start_offsets:
                    starts[key] = directory.start_offsets[key]
                continue
            log, floor = partition.log, partition.floor
            recovery[key] = log.recovery_point if floor is None else min(floor, log.recovery_point)
            watermarks[key] = (
                partition.high_watermark if floor is None else min(floor, partition.high_watermark)
            )
            start_offset = log.start_offset if floor is None else min(floor, log.start_offset)
            if start_offset > log.bases[0]:
                starts[key] = start_offset
        return Checkpoint(number, directory, recovery, watermarks, starts)

    def close_directory(self, directory: LogDirectory, broker_epoch: int, run_jobs: RunJobs) -> None:
        """Make everything durable, some logs at a time, and leave the sign of it."""
        logs = [p.log for p in self.in_directory(directory) if p.role is not Role.OFFLINE]
        for start in range(0, len(logs), FLUSHES_MAX):
            closing = [(log, log.begin_close()) for log in logs[start : start + FLUSHES_MAX]]
            run_jobs([job for _, job in closing])
            for log, job in closing:
                log.end_close(job)
        self.checkpoint(directory, 0).write()
        if directory.kept is Kept.WHOLE:  # else the store does not know yet what it has lost
            directory.mark_clean(broker_epoch)


def run_in_turn(jobs: list[FlushJob]) -> None:
    for job in jobs:
        job.run()
