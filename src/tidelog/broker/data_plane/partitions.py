"""The partitions that live on this broker, by topic name and by topic id, and the directories they are in.

**Invariant:** a topic is found under its name and its id, or under neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tidelog.base.config import TopicSettings
from tidelog.base.events import Event, error, warning
from tidelog.base.files import Directory
from tidelog.broker.data_plane.homes import DirectoryFailed, Home, Homes
from tidelog.cluster.controller import encode_id
from tidelog.cluster.facts import PartitionFacts, TopicFacts
from tidelog.log.directory import LogDirectory, read_topic_id, write_topic_id
from tidelog.log.flush import FlushJob
from tidelog.log.format.names import PARTITION_METADATA, deleted_folder_name, folder_name, future_folder_name
from tidelog.log.log import Log
from tidelog.log.recovery import open_log
from tidelog.log.trust import Kept, read_mark, write_mark
from tidelog.replication.counters import PartitionCounters
from tidelog.replication.partition import Partition

FOREVER_MS = 2**62
RunJobs = Callable[[list[FlushJob]], None]  # until all have ended; the first failure is raised


def _offline(topic: TopicFacts, index: int, settings: TopicSettings, failed: DirectoryFailed) -> Partition:
    """A partition whose log cannot be opened: it answers, with an error."""
    home = failed.directory
    log = Log(home.directory, settings)
    partition = Partition(topic.name, topic.topic_id, index, log, home, kept=failed.kept)
    partition.become_offline()
    return partition


class Partitions:
    def __init__(self, node_id: int, directories: Sequence[LogDirectory]) -> None:
        self._node_id = node_id
        self.homes = Homes(node_id, directories)
        self.directories = self.homes.directories
        self._by_topic: dict[str | bytes, list[Partition | None]] = {}
        self._names: dict[bytes, str] = {}
        self._timed_flush: dict[Partition, None] = {}
        self._events: list[Event] = []
        self.scanned_size = 0  # what opening logs has read and checked,
        self.cut_size = 0  # and what of it had to go
        self._are_all_here = False  # the directories that the store knows, none of them old
        self._is_any_gone = False
        self._mark_epoch = 0  # what logs that have lost something are marked with
        self._registered = -1  # marks up to this epoch are void
        self._is_store_shared = False
        self.departed = PartitionCounters()  # what was counted by partitions that are gone

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

    def expect(self, known_ids: Collection[str], mark_epoch: int, registered: int, is_shared: bool) -> None:
        """Before logs are opened: the directories that the store knows of this broker, the epoch that it is
        about to register with, that of its last registration, and whether other brokers use the store."""
        found_ids = [each.directory_id for each in self.directories if each.kept < Kept.LOST]
        self._is_any_gone = any(each not in found_ids for each in known_ids)
        self._are_all_here = bool(known_ids) and not self._is_any_gone
        self._mark_epoch, self._registered, self._is_store_shared = mark_epoch, registered, is_shared

    def open_topic(
        self, topic: TopicFacts, settings: TopicSettings, now_ms: int, is_new: bool
    ) -> list[DirectoryFailed]:
        """Open or make the logs of a topic's partitions that are not open. One that cannot be opened is
        offline from here on, and the failure of its directory is returned; the others are not the worse
        for it."""
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
                partition = _offline(topic, index, settings, failed)
            if settings.flush_ms < FOREVER_MS:
                self._timed_flush[partition] = None
            here[index] = partition
        return failures

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
        is_listed = self._node_id in facts.listed and not is_new
        try:
            found = self.homes.find(name, topic, index, is_new)
        except DirectoryFailed as failed:
            if is_listed and self._is_any_gone:  # it may have been in that one
                failed.kept = Kept.LOST
            raise
        home, kept = found.directory, Kept.WHOLE
        try:
            if not is_new:
                kept = self._kept_of(found, name, topic, index, is_listed)
            if kept >= Kept.TORN and found.folder is None:
                found = found._replace(folder=self._make_marked(home, topic, index, kept))
            # What the checkpoints may still have of one whose folder is gone is of the log that is gone.
            is_new = is_new or found.folder is None
            home.manifest.add(name, encode_id(topic.topic_id))
            log, kept = self._open_in(found, topic, index, settings, now_ms, is_new, kept)
        except OSError as error:
            raise DirectoryFailed(home, error, max(kept, self._marked(home, name))) from error
        if log.epochs.latest > facts.leader_epoch and self._is_store_shared:
            kept = Kept.LOST
            self._events.append(
                warning(
                    "store epoch exceeded",
                    log=name,
                    leader_epoch=log.epochs.latest,
                    store_epoch=facts.leader_epoch,
                )
            )
        home.partition_count += 1
        high_watermark = 0 if is_new else home.high_watermarks.get((topic.name, index), 0)
        return Partition(topic.name, topic.topic_id, index, log, home, high_watermark, kept)

    def _kept_of(self, found: Home, name: str, topic: TopicFacts, index: int, is_listed: bool) -> Kept:
        """What is known of a log before it is opened. A folder that is missing though the broker is listed
        was never made, or is lost; by a power cut, if it was never flushed."""
        if found.folder is not None:
            return max(found.directory.kept, self._mark_in(found.folder))
        if not is_listed:
            return Kept.WHOLE
        entry = (name, encode_id(topic.topic_id))
        before = max(each.kept for each in self.directories)
        if not self._are_all_here or any(entry in each.manifest for each in self.directories):
            was_flushed = any(each.recovery_points.get((topic.name, index)) for each in self.directories)
            is_excused = self._are_all_here and before is Kept.UNFLUSHED and not was_flushed
            return Kept.TORN if is_excused else Kept.LOST
        return before

    def _make_marked(self, home: LogDirectory, topic: TopicFacts, index: int, kept: Kept) -> Directory:
        """Make the folder of a log that is gone. It has its name only with the mark in it: without one it
        would pass for whole at the next start."""
        name = folder_name(topic.name, index)
        aside = future_folder_name(topic.name, index, topic.topic_id)
        write_mark(home.directory.folder(aside), kept, self._mark_epoch)
        home.directory.rename(aside, name)
        home.directory.sync()
        self._events.append(error("log missing", log=name, directory=home.path))
        return home.directory.folder(name)

    def _marked(self, home: LogDirectory, name: str) -> Kept:
        """The same when opening the log has failed: the mark may have been written by that."""
        try:
            is_there = home.directory.exists(name)
            return self._mark_in(home.directory.folder(name)) if is_there else Kept.WHOLE
        except OSError:
            return Kept.WHOLE

    def _mark_in(self, folder: Directory) -> Kept:
        """What the mark in a log's folder says. A directory that cannot be read has lost nothing by that."""
        try:
            mark = read_mark(folder)
        except OSError:
            return Kept.WHOLE
        return mark[0] if mark is not None and mark[1] > self._registered else Kept.WHOLE

    def _open_in(
        self,
        found: Home,
        topic: TopicFacts,
        index: int,
        settings: TopicSettings,
        now_ms: int,
        is_new: bool,
        kept: Kept,
    ) -> tuple[Log, Kept]:
        home, folder, topic_id = found
        name, key = folder_name(topic.name, index), (topic.name, index)
        recovery_point, start_offset = home.recovery_points.get(key, 0), home.start_offsets.get(key, 0)
        high_watermark, cleaned_offset = home.high_watermarks.get(key, 0), home.cleaned_offsets.get(key, 0)
        if is_new:
            recovery_point = start_offset = high_watermark = cleaned_offset = 0
        if folder is None:
            folder = home.directory.folder(name)
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
            cleaned_offset,
        )
        if topic_id is None:
            write_topic_id(folder, encode_id(topic.topic_id))
        if topic_id is None or home.is_cached:
            # The folder may be in memory alone: the first flush makes it durable, before it acknowledges.
            log.note_replaced(PARTITION_METADATA)
            log.note_made_in(home.directory)
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
        encoded_id = encode_id(topic_id)
        for index, partition in enumerate(here):
            if partition is not None:
                self.departed.add(partition.counters)
            for directory in self.directories:  # also one that the partition has left
                directory.manifest.forget(folder_name(name, index), encoded_id)

    def forget_one(self, partition: Partition) -> None:
        self._by_topic[partition.topic_id][partition.index] = None
        self.departed.add(partition.counters)

    def mark_overdue_flushes(self, now_ms: int) -> None:
        """Partitions with `flush.ms` whose oldest unflushed record has waited that long."""
        for partition in self._timed_flush:
            log = partition.log
            if log.end_offset > log.recovery_point and now_ms - log.last_flush_ms >= log.settings.flush_ms:
                partition.want_flush()

    def wanting_flush(self) -> list[Partition]:
        return [
            partition for partition in self._timed_flush if partition.is_flush_wanted and partition.is_open
        ]

    def expire_producers(self, uptime_ms: int) -> None:
        for partition in self.all():
            partition.log.producers.expire(uptime_ms, partition.log.settings.producer_expiration_ms)
