"""Topics read from the files of a broker's log directories, or of copies of them, without a broker.

| what         | source                                                                       |
|--------------|------------------------------------------------------------------------------|
| topics       | folders `<topic>-<partition>`; the id in `partition.metadata`                |
| earliest     | the first segment's name, or `log-start-offset-checkpoint` if that is higher |
| latest       | the end of the last batch that is whole and has its checksum                 |
| last stable  | the first offset of the oldest open transaction                              |
| by timestamp | `.timeindex`, if it is valid, and the headers of the batches                 |

A broker shows its consumers records below the high watermark only. It saves the high watermark when it stops,
and otherwise every few seconds. So after a clean stop `replication-offset-checkpoint` is exact and is used;
for a running or killed broker, or an inconsistent copy, it is too old, and all whole batches are read. That
is correct for a topic with one replica. With several replicas, the last records of such a directory may be
missing on the others.

**Invariant:** files are only read.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Collection, Iterable, Iterator, Mapping
from os import listdir
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.client.cluster import EARLIEST, LATEST, FoundOffset, TopicFacts
from tidelog.client.errors import TopicGone, TopicPartition
from tidelog.client.reader import RawBatches
from tidelog.log.format.checkpoint import decode_offsets
from tidelog.log.format.metadata import decode_topic_id
from tidelog.log.format.names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    partition_in_name,
)
from tidelog.spark.option_rows import LOG_DIRS, OptionError
from tidelog.spark.positions import NO_TOPIC_ID

if TYPE_CHECKING:
    from tidelog.spark.partition_log import PartitionLog
    from tidelog.spark.transaction_books import TransactionBooks

_NONE_FOUND = FoundOffset(-1, -1, -1)


class LogFolders:
    def __init__(self, paths: Collection[str]) -> None:
        self._paths = [Path(path) for path in dict.fromkeys(paths)]
        self._books: dict[TopicPartition, TransactionBooks] = {}  # of the partitions used last

    def describe(self, topics: Collection[str] | None) -> dict[str, TopicFacts]:
        """The topics that have folders, among the named ones or (None) all, including internal topics."""
        by_topic: dict[str, dict[int, Path]] = {}
        for (topic, index), folder in self._folders(topics).items():
            by_topic.setdefault(topic, {})[index] = folder
        return {
            topic: TopicFacts(topic, _topic_id(folders.values()), tuple(folders))
            for topic, folders in by_topic.items()
        }

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """The latest offset (-1), the earliest (-2), or the first offset at or after a time in ms.

        `committed_only`: no offset is at or after the start of a transaction that is still open.
        """
        folders = self._folders({partition.topic for partition in wanted})
        marks = {path: _Marks(path) for path in self._paths}
        if committed_only:
            self._books = {place: books for place, books in self._books.items() if place in wanted}
        return {
            partition: _find(_log(partition, folders, marks, self._books), time, committed_only)
            for partition, time in wanted.items()
        }

    def read(self, partition: TopicPartition, start: int, end: int) -> Iterator[RawBatches]:
        """The batches that overlap [start, end); OffsetOutOfRange if some do not exist."""
        folders = self._folders([partition.topic])
        yield from _log(partition, folders, {path: _Marks(path) for path in self._paths}).read(start, end)

    def _folders(self, topics: Collection[str] | None) -> dict[TopicPartition, Path]:
        """The folders of the topics, sorted."""
        wanted = None if topics is None else frozenset(topics)
        found: dict[TopicPartition, Path] = {}
        for path in self._paths:
            for partition, folder in _partitions_in(path, wanted):
                if other := found.get(partition):
                    raise OptionError(f"{LOG_DIRS.name}: {partition} has two folders, {other} and {folder}")
                found[partition] = folder
        return dict(sorted(found.items()))


class _Marks:
    """The checkpoints of a log directory."""

    def __init__(self, path: Path) -> None:
        self.starts = decode_offsets(_read_small(path / LOG_START_OFFSETS))
        is_exact = (path / CLEAN_SHUTDOWN).exists()
        self.high_watermarks = decode_offsets(_read_small(path / HIGH_WATERMARKS)) if is_exact else {}


def _log(
    partition: TopicPartition,
    folders: Mapping[TopicPartition, Path],
    marks: Mapping[Path, _Marks],
    books: dict[TopicPartition, TransactionBooks] | None = None,
) -> PartitionLog:
    from tidelog.spark.partition_log import (
        PartitionLog,
    )  # loads the compiled loops, only where they run

    partition = TopicPartition(*partition)
    folder = folders.get(partition)
    if folder is None:
        places = ", ".join(map(str, marks))
        raise TopicGone(f"{partition}: no such folder in {places}")
    known = marks[folder.parent]
    start, high_watermark = known.starts.get(partition, 0), known.high_watermarks.get(partition)
    return PartitionLog(partition, folder, start, high_watermark, books)


def _find(log: PartitionLog, time: int, committed_only: bool) -> FoundOffset:
    if time == EARLIEST:
        return FoundOffset(log.start(), -1, -1)
    if time == LATEST:
        return FoundOffset(log.end(committed_only=committed_only), -1, -1)
    found = log.find_time(time, committed_only=committed_only)
    return _NONE_FOUND if found is None else FoundOffset(found.offset, found.timestamp, found.leader_epoch)


def _partitions_in(path: Path, topics: Collection[str] | None) -> Iterator[tuple[TopicPartition, Path]]:
    try:
        names = listdir(path)
    except OSError as problem:
        raise OptionError(f"{LOG_DIRS.name}: {path} cannot be listed: {problem.strerror}") from problem
    for name in names:
        partition = partition_in_name(name)
        if partition is not None and (topics is None or partition[0] in topics) and (path / name).is_dir():
            yield TopicPartition(*partition), path / name


def _topic_id(folders: Iterable[Path]) -> bytes:
    """The id of the topic with these folders; zeros if none has it."""
    found: dict[bytes, Path] = {}
    for folder in folders:
        if (topic_id := _read_topic_id(folder)) is not None:
            found.setdefault(topic_id, folder)
    if len(found) > 1:
        first, second, *_ = found.values()
        raise OptionError(
            f"{LOG_DIRS.name}: {first} and {second} belong to different topics of one name: one was deleted "
            "and created again; remove the folders of the old one"
        )
    return next(iter(found), NO_TOPIC_ID)


def _read_topic_id(folder: Path) -> bytes | None:
    topic_id = decode_topic_id(_read_small(folder / PARTITION_METADATA))
    return urlsafe_b64decode(f"{topic_id}==") if topic_id is not None else None


def _read_small(path: Path) -> bytes | None:
    """A file that is not there, or cannot be read, says nothing."""
    try:
        return path.read_bytes()
    except OSError:
        return None
