"""The partitions that live on this broker, by topic name and by topic id, and the directories they are in.

**Invariant:** a topic is found under its name and its id, or under neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tidelog.base.config import BrokerSettings, TopicSettings, check_topic_setting
from tidelog.base.events import Event, info, warning
from tidelog.base.files import Directory
from tidelog.base.limits import FLUSHES_MAX, RESOLVED_SETTINGS_MAX
from tidelog.base.setting import InvalidSetting
from tidelog.cluster.controller import decode_id, encode_id
from tidelog.cluster.image import TopicFacts
from tidelog.log.checkpoint import Offsets
from tidelog.log.directory import (
    PARTITION_METADATA,
    LogDirectory,
    deleted_folder_name,
    folder_name,
    read_topic_id,
    stray_folder_name,
    write_topic_id,
)
from tidelog.log.log import FlushJob, Log
from tidelog.log.recovery import open_log
from tidelog.log.segment import LOG_SUFFIX
from tidelog.replication.partition import COUNTERS, Partition, Role

FOREVER_MS = 2**62
RunJobs = Callable[[list[FlushJob]], None]  # until all have ended; the first failure is raised


class DirectoryFailed(Exception):
    """A log directory could not be used."""

    def __init__(self, directory: LogDirectory, error: OSError) -> None:
        super().__init__(f"{directory.path}: {error}")
        self.directory = directory
        self.error = error


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
        self.directories = list(directories)
        self._by_topic: dict[str | bytes, list[Partition | None]] = {}
        self._names: dict[bytes, str] = {}
        self._resolved: dict[tuple[tuple[str, str], ...], TopicSettings] = {}
        self._timed_flush: dict[Partition, None] = {}
        self._events: list[Event] = []
        self._strays: list[tuple[Directory, str]] = []
        self.scanned_size = 0  # what opening logs has read and checked,
        self.cut_size = 0  # and what of it had to go
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

    def claim_directories(self, cluster_id: str, entropy: Callable[[int], bytes], boot_id: str = "") -> bool:
        """Check that the directories are ours; whether all of them were closed cleanly."""
        clean = [directory.peek_clean(boot_id) for directory in self.directories]
        for directory in self.directories:
            directory.open(cluster_id, self._node_id, encode_id(entropy(16)))
        return all(clean)

    def have_kept_all(self, boot_id: str, broker_epoch: int) -> bool:
        """Whether the broker of that epoch has lost nothing since."""
        return all(directory.has_kept_all(boot_id, broker_epoch) for directory in self.directories)

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
                partition = self._open_partition(topic, index, settings, now_ms, is_new, len(facts.replicas))
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

    def take_strays(self) -> list[tuple[Directory, str]]:
        """Folders of deleted topics that were in the way, renamed, to be removed."""
        strays, self._strays = self._strays, []
        return strays

    def take_events(self) -> list[Event]:
        """What opening logs has found."""
        events, self._events = self._events, []
        return events

    def _open_partition(
        self,
        topic: TopicFacts,
        index: int,
        settings: TopicSettings,
        now_ms: int,
        is_new: bool,
        replica_count: int,
    ) -> Partition:
        name = folder_name(topic.name, index)
        home = self._home_of(name, topic, index, is_new)
        try:
            # One that others have and whose folder is gone was taken from this broker and given back while it
            # was down: what the checkpoints may still have is of the log that is gone.
            is_new = is_new or (replica_count > 1 and not home.directory.exists(name))
            log = self._open_in(home, name, topic, index, settings, now_ms, is_new)
        except OSError as error:
            raise DirectoryFailed(home, error) from error
        home.partition_count += 1
        high_watermark = 0 if is_new else home.high_watermarks.get((topic.name, index), 0)
        return Partition(topic.name, topic.topic_id, index, log, home, high_watermark)

    def _open_in(
        self,
        home: LogDirectory,
        name: str,
        topic: TopicFacts,
        index: int,
        settings: TopicSettings,
        now_ms: int,
        is_new: bool,
    ) -> Log:
        key = (topic.name, index)
        recovery_point, start_offset = home.recovery_points.get(key, 0), home.start_offsets.get(key, 0)
        if is_new:
            recovery_point = start_offset = 0
        folder = home.directory.folder(name)
        found = read_topic_id(folder)
        if found is not None and found != encode_id(topic.topic_id):  # a topic of that name that was deleted
            self._set_aside(home, name, topic.name, index, topic.topic_id)
            folder, found = home.directory.folder(name), None
            recovery_point = start_offset = 0
        log, report = open_log(
            folder, settings, now_ms, recovery_point, start_offset, home.was_clean, home.is_cached
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
        return log

    def _home_of(self, name: str, topic: TopicFacts, index: int, is_new: bool) -> LogDirectory:
        """The directory that has the folder; for a new one, that with the fewest partitions.

        A folder that is not found while a directory is offline may be in that one: to begin anew
        elsewhere would give its offsets a second time.
        """
        failed = [directory for directory in self.directories if directory.failure is not None]
        working = [directory for directory in self.directories if directory.failure is None]
        homes = [directory for directory in working if directory.directory.exists(name)]
        if len(homes) > 1:
            return self._choose_home(homes, name, topic, index)
        if homes:
            return homes[0]
        if working and (is_new or not failed):
            return min(working, key=lambda directory: directory.partition_count)
        raise DirectoryFailed(failed[0], OSError(failed[0].failure))

    def _choose_home(
        self, homes: list[LogDirectory], name: str, topic: TopicFacts, index: int
    ) -> LogDirectory:
        """A crash while the partition changed directory left two folders. The new one was all that the old
        one was, and may have been written since: the longer one is right. The other goes."""
        reached = []
        for home in homes:
            try:
                folder = home.directory.folder(name)
                logs = [found for found in folder.sizes().items() if found[0].endswith(LOG_SUFFIX)]
                is_its = read_topic_id(folder) == encode_id(topic.topic_id)
            except OSError as error:
                raise DirectoryFailed(home, error) from error
            reached.append((is_its, max(logs, default=("", 0))))
        chosen = homes[reached.index(max(reached))]
        key = (topic.name, index)
        chosen.start_offsets[key] = max(home.start_offsets.get(key, 0) for home in homes)
        for home in homes:
            if home is not chosen:
                self._set_aside(home, name, topic.name, index, topic.topic_id)
        return chosen

    def _set_aside(self, home: LogDirectory, name: str, topic: str, index: int, unique: bytes) -> None:
        """Rename a folder that is in the way, to be removed."""
        stray = deleted_folder_name(topic, index, unique)
        try:
            home.directory.rename(name, stray)
        except OSError as error:
            raise DirectoryFailed(home, error) from error
        self._strays.append((home.directory, stray))

    def set_strays_aside(self, topics: Mapping[bytes, TopicFacts], is_all: bool) -> list[DirectoryFailed]:
        """Rename folders of partitions that belong to other brokers now, to be removed; if `is_all`, those of
        topics that there are not too, to be kept: they may have been deleted, or the store be an old copy.
        One that does not say whose it is goes by its name, and stays if there is no such topic."""
        by_id = {encode_id(topic_id): topic for topic_id, topic in topics.items()}
        by_name = {topic.name: topic for topic in topics.values()}
        failures: list[DirectoryFailed] = []
        for home in self.directories:
            try:
                if home.failure is None:
                    self._set_strays_aside(home, by_id, by_name, is_all)
            except DirectoryFailed as failed:
                failures.append(failed)
            except OSError as error:
                failures.append(DirectoryFailed(home, error))
        return failures

    def _set_strays_aside(
        self,
        home: LogDirectory,
        by_id: Mapping[str, TopicFacts],
        by_name: Mapping[str, TopicFacts],
        is_all: bool,
    ) -> None:
        known = {folder_name(each.topic, each.index) for each in self.in_directory(home)}
        known |= {*home.directory.sizes()}  # files are nobody's logs
        for name in home.directory.names():
            topic_name, _, number = name.rpartition("-")
            if not topic_name or not number.isdecimal() or name in known:
                continue
            topic_id, index = read_topic_id(home.directory.folder(name)), int(number)
            topic = by_id.get(topic_id) if topic_id is not None else by_name.get(topic_name)
            facts = topic.partitions.get(index) if topic is not None else None
            if topic is not None and facts is not None and self._node_id not in facts.replicas:
                self._events.append(info("log removed that was moved away", log=name))
                self._set_aside(home, name, topic_name, index, topic.topic_id)
            elif is_all and topic is None and topic_id is not None:
                stray = stray_folder_name(topic_name, index, decode_id(topic_id))
                home.directory.rename(name, stray)
                self._events.append(warning("log of no topic set aside", log=name, kept_as=stray))

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
            watermarks[key] = partition.high_watermark
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
        directory.mark_clean(broker_epoch)


def run_in_turn(jobs: list[FlushJob]) -> None:
    for job in jobs:
        job.run()
