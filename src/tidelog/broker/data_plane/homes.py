"""Where partitions live: the directory that has a folder or is to have it, and folders in the way.

**Invariant:** a folder is removed under a name that no partition has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.base.events import Event, info, warning
from tidelog.base.files import Directory
from tidelog.cluster.controller import decode_id, encode_id
from tidelog.cluster.facts import TopicFacts
from tidelog.log.directory import LogDirectory, read_topic_id
from tidelog.log.format.names import LOG_SUFFIX, deleted_folder_name, stray_folder_name
from tidelog.log.trust import Kept


class DirectoryFailed(Exception):
    """A log directory could not be used; a log in it has kept that much."""

    def __init__(self, directory: LogDirectory, error: OSError, kept: Kept = Kept.WHOLE) -> None:
        super().__init__(f"{directory.path}: {error}")
        self.directory = directory
        self.error = error
        self.kept = kept


class Home(NamedTuple):
    """The directory that a partition lives in, its folder there, if there is one, and whose that is: a topic
    id, or nobody's."""

    directory: LogDirectory
    folder: Directory | None
    topic_id: str | None


class Homes:
    def __init__(self, node_id: int, directories: Sequence[LogDirectory]) -> None:
        self._node_id = node_id
        self.directories = list(directories)
        self._events: list[Event] = []
        self._strays: list[tuple[Directory, str]] = []

    def take_strays(self) -> list[tuple[Directory, str]]:
        """Folders of deleted topics that were in the way, renamed, to be removed."""
        strays, self._strays = self._strays, []
        return strays

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def find(self, name: str, topic: TopicFacts, index: int, is_new: bool) -> Home:
        """The directory that has the folder, or is to have it. What is in the way is set aside: folders of a
        deleted topic of that name, and what remains of a partition that has left. Where the log starts may be
        in the checkpoint of the directory that it left, and not yet in that of the other one."""
        own, key = encode_id(topic.topic_id), (topic.name, index)
        start_offset = 0
        homes: dict[LogDirectory, Home] = {}
        for directory in self.directories:
            if directory.failure is None and directory.directory.exists(name):
                found = self._open(directory, name)
                is_other = found.topic_id not in (None, own)
                if not is_other and not directory.manifest.has_left(name, own):
                    homes[directory] = found
                    continue
                self._set_aside(directory, name, topic.name, index, topic.topic_id)
                if not is_other:
                    start_offset = max(start_offset, directory.start_offsets.get(key, 0))
                for offsets in directory.offsets:
                    offsets.pop(key, None)
        home = self._home_of(list(homes), name, topic, index, is_new)
        if start_offset > home.start_offsets.get(key, 0):
            home.start_offsets[key] = start_offset
        return homes.get(home) or Home(home, None, None)

    def _open(self, home: LogDirectory, name: str) -> Home:
        try:
            folder = home.directory.folder(name)
            return Home(home, folder, read_topic_id(folder))
        except OSError as error:
            raise DirectoryFailed(home, error) from error

    def _home_of(
        self, homes: list[LogDirectory], name: str, topic: TopicFacts, index: int, is_new: bool
    ) -> LogDirectory:
        """The directory that has the folder; for a new one, that with the fewest partitions.

        A folder that is not found while a directory is offline may be in that one: to begin anew
        elsewhere would give its offsets a second time.
        """
        if len(homes) > 1:
            return self._choose_home(homes, name, topic, index)
        if homes:
            return homes[0]
        failed = [directory for directory in self.directories if directory.failure is not None]
        working = [directory for directory in self.directories if directory.failure is None]
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
            reached.append((is_its, -home.kept, max(logs, default=("", 0))))
        chosen = homes[reached.index(max(reached))]
        key = (topic.name, index)
        chosen.start_offsets[key] = max(home.start_offsets.get(key, 0) for home in homes)
        for home in homes:
            if home is not chosen:
                self._set_aside(home, name, topic.name, index, topic.topic_id)
        return chosen

    def _set_aside(self, home: LogDirectory, name: str, topic: str, index: int, unique: bytes) -> None:
        """Rename a folder that is in the way, to be removed. It is kept if it may be newer than the store."""
        if home.is_ahead:
            self._keep_aside(home, name, topic, index, unique)
            return
        stray = deleted_folder_name(topic, index, unique)
        try:
            home.directory.rename(name, stray)
        except OSError as error:
            raise DirectoryFailed(home, error) from error
        self._strays.append((home.directory, stray))

    def set_strays_aside(
        self, topics: Mapping[bytes, TopicFacts], open_names: Mapping[LogDirectory, set[str]], is_all: bool
    ) -> list[DirectoryFailed]:
        """Rename folders of partitions that belong to other brokers now, to be removed; if `is_all`, those of
        topics that there are not too, to be kept: they may have been deleted, or the store be an old copy.
        One that does not say whose it is goes by its name, and stays if there is no such topic."""
        by_id = {encode_id(topic_id): topic for topic_id, topic in topics.items()}
        by_name = {topic.name: topic for topic in topics.values()}
        failures: list[DirectoryFailed] = []
        for home in self.directories:
            try:
                if home.failure is None:
                    self._set_strays_aside(home, by_id, by_name, open_names[home], is_all)
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
        open_names: set[str],
        is_all: bool,
    ) -> None:
        known = {*open_names, *home.directory.sizes()}  # files are nobody's logs
        for name in home.directory.names():
            topic_name, _, number = name.rpartition("-")
            if not topic_name or not number.isdecimal() or name in known:
                continue
            topic_id, index = read_topic_id(home.directory.folder(name)), int(number)
            topic = by_id.get(topic_id) if topic_id is not None else by_name.get(topic_name)
            facts = topic.partitions.get(index) if topic is not None else None
            if topic is not None and facts is not None and self._node_id not in facts.replicas:
                if not home.is_ahead:
                    self._events.append(info("log of reassigned replica removed", log=name))
                self._set_aside(home, name, topic_name, index, topic.topic_id)
            elif is_all and topic is None and topic_id is not None:
                self._keep_aside(home, name, topic_name, index, decode_id(topic_id))

    def _keep_aside(self, home: LogDirectory, name: str, topic: str, index: int, unique: bytes) -> None:
        """Rename a folder that an operator may want to have back."""
        try:
            found = read_topic_id(home.directory.folder(name))
            stray = stray_folder_name(topic, index, decode_id(found) if found is not None else unique)
            home.directory.rename(name, stray)
        except OSError as error:
            raise DirectoryFailed(home, error) from error
        self._events.append(warning("orphaned log set aside", log=name, kept_as=stray))
