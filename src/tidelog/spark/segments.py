"""Topics of a broker's log directories, or of copies of them, read from their files without a broker.

| what         | where it comes from                                                          |
|--------------|------------------------------------------------------------------------------|
| topics       | folders `<topic>-<partition>`; the id in `partition.metadata`                |
| earliest     | the first segment's name, or `log-start-offset-checkpoint` if that is higher |
| latest       | behind the last batch that is whole and has its checksum                     |
| last stable  | the first offset of the oldest transaction that is open there                |
| by timestamp | `.timeindex`, where it is right, and the headers of the batches              |

A broker shows its consumers no more than the high watermark. It writes that down when it stops, and else
every few seconds: after a clean stop `replication-offset-checkpoint` is therefore exact and is kept to;
beside a broker that runs, was killed, or was copied meanwhile it is too old, and all that is whole is read.
That is right for a topic with one replica. Of a replicated one, the last records of such a directory may be
ones that its other replicas never got.

**Invariant:** files are only read.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from binascii import Error as NotBase64
from collections.abc import Collection, Iterable, Iterator, Mapping
from os import listdir
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.client.cluster import EARLIEST, LATEST, FoundOffset, TopicFacts
from tidelog.client.errors import TopicGone, TopicPartition
from tidelog.client.reader import RawBatches
from tidelog.spark.option_rows import LOG_DIRS, OptionError
from tidelog.spark.positions import NO_TOPIC_ID

if TYPE_CHECKING:
    from tidelog.spark.partition_log import PartitionLog
    from tidelog.spark.transaction_books import TransactionBooks

_FOLDER = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_TOPIC_ID = re.compile(rb"^topic_id: *([A-Za-z0-9_-]{22})\s*$", re.MULTILINE)
_NO_TOPICS = (".", "..")
_START_OFFSETS = "log-start-offset-checkpoint"
_HIGH_WATERMARKS = "replication-offset-checkpoint"
_CLEAN_STOP = ".kafka_cleanshutdown"
_NONE_FOUND = FoundOffset(-1, -1, -1)


class LogFolders:
    def __init__(self, paths: Collection[str]) -> None:
        self._paths = [Path(path) for path in dict.fromkeys(paths)]
        self._books: dict[TopicPartition, TransactionBooks] = {}  # of the partitions looked at last

    def describe(self, topics: Collection[str] | None) -> dict[str, TopicFacts]:
        """The topics that have folders, of those named or (None) of all, internal ones too."""
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
        """The latest (-1), the earliest (-2), or the first offset at or after a time in ms.

        `committed_only`: no offset is at or behind a transaction that is still open.
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
        """The batches that reach into [start, end); OffsetOutOfRange where they are not all there."""
        folders = self._folders([partition.topic])
        yield from _log(partition, folders, {path: _Marks(path) for path in self._paths}).read(start, end)

    def _folders(self, topics: Collection[str] | None) -> dict[TopicPartition, Path]:
        """Sorted."""
        wanted = None if topics is None else frozenset(topics)
        found: dict[TopicPartition, Path] = {}
        for path in self._paths:
            for partition, folder in _partitions_in(path, wanted):
                if other := found.get(partition):
                    raise OptionError(f"{LOG_DIRS.name}: {partition} is there twice, {other} and {folder}")
                found[partition] = folder
        return dict(sorted(found.items()))


class _Marks:
    """What a log directory has written down about its partitions."""

    def __init__(self, path: Path) -> None:
        self.starts = _read_checkpoint(path / _START_OFFSETS)
        is_exact = (path / _CLEAN_STOP).exists()
        self.high_watermarks = _read_checkpoint(path / _HIGH_WATERMARKS) if is_exact else {}


def _log(
    partition: TopicPartition,
    folders: Mapping[TopicPartition, Path],
    marks: Mapping[Path, _Marks],
    books: dict[TopicPartition, TransactionBooks] | None = None,
) -> PartitionLog:
    from tidelog.spark.partition_log import (
        PartitionLog,
    )  # which loads the compiled loops: only where they run

    partition = TopicPartition(*partition)
    folder = folders.get(partition)
    if folder is None:
        places = ", ".join(map(str, marks))
        raise TopicGone(f"{partition}: no folder of that name is in {places}")
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
        names = [match for name in listdir(path) if (match := _FOLDER.fullmatch(name))]
    except OSError as problem:
        raise OptionError(f"{LOG_DIRS.name}: {path} cannot be listed: {problem.strerror}") from problem
    for match in names:
        topic, index = match.groups()
        is_wanted = topic in topics if topics is not None else topic not in _NO_TOPICS
        if is_wanted and (path / match[0]).is_dir():
            yield TopicPartition(topic, int(index)), path / match[0]


def _topic_id(folders: Iterable[Path]) -> bytes:
    """The id of the topic that has these folders; zeros if none has it written down."""
    found: dict[bytes, Path] = {}
    for folder in folders:
        if (topic_id := _read_topic_id(folder)) is not None:
            found.setdefault(topic_id, folder)
    if len(found) > 1:
        first, second, *_ = found.values()
        raise OptionError(
            f"{LOG_DIRS.name}: {first} and {second} belong to different topics of one name: one was deleted "
            "and made again; take away the folders of the old one"
        )
    return next(iter(found), NO_TOPIC_ID)


def _read_topic_id(folder: Path) -> bytes | None:
    try:
        match = _TOPIC_ID.search((folder / "partition.metadata").read_bytes())
        return urlsafe_b64decode(match[1] + b"==") if match else None
    except (OSError, NotBase64):
        return None


def _read_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """An offset for each partition; one that is not there, or not whole, says nothing."""
    try:
        version, count, *lines = path.read_text("utf-8").splitlines()
        rows = [line.split(" ") for line in lines]
        found = {TopicPartition(topic, int(index)): int(offset) for topic, index, offset in rows}
    except (OSError, ValueError):
        return {}
    return found if (version, count) == ("0", str(len(rows))) else {}
