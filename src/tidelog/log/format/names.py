"""Names in a log directory: of its checkpoints, of a partition's folder, and of the files of a segment.

**Invariant:** a name that Kafka would not give has no offset and no partition.
"""

from __future__ import annotations

import re

from tidelog.base.limits import TOPIC_NAME_LENGTH_MAX

META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"

PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES, SNAPSHOT_SUFFIX)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TMP_SUFFIX = ".tmp"

DELETE_MARK = "-delete"
FUTURE_MARK = "-future"
STRAY_MARK = "-stray"
FOLDER_MARKS = (DELETE_MARK, FUTURE_MARK, STRAY_MARK)
FOLDER_NAME_LENGTH_MAX = 255  # of one name, in every file system that matters

_FOLDER = re.compile(rf"([a-zA-Z0-9._-]{{1,{TOPIC_NAME_LENGTH_MAX}}})-(0|[1-9][0-9]{{0,9}})")
_NO_TOPICS = (".", "..")
_OFFSET_DIGITS = 20


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def offset_in_name(name: str, suffix: str) -> int | None:
    """The offset that a file of that kind is named by, or None if the file is of another kind."""
    return _offset(name[: -len(suffix)]) if name.endswith(suffix) else None


def base_in_name(name: str) -> int | None:
    """The offset that any file of a segment is named by."""
    stem, dot, suffix = name.partition(".")
    return _offset(stem) if dot + suffix in SEGMENT_SUFFIXES else None


def _offset(stem: str) -> int | None:
    return int(stem) if len(stem) == _OFFSET_DIGITS and stem.isascii() and stem.isdigit() else None


def folder_name(topic: str, index: int) -> str:
    return f"{topic}-{index}"


def partition_in_name(name: str) -> tuple[str, int] | None:
    """The topic and the index of the partition whose folder has that name; None if no partition's has."""
    matched = _FOLDER.fullmatch(name)
    return (matched[1], int(matched[2])) if matched and matched[1] not in _NO_TOPICS else None


def deleted_folder_name(topic: str, index: int, unique: bytes) -> str:
    """The name a deleted partition's folder gets before it is removed in the background."""
    return _marked_folder_name(topic, index, unique, DELETE_MARK)


def future_folder_name(topic: str, index: int, unique: bytes) -> str:
    """The name of a folder that a partition is being copied to."""
    return _marked_folder_name(topic, index, unique, FUTURE_MARK)


def stray_folder_name(topic: str, index: int, unique: bytes) -> str:
    """The name of a folder that belongs to no topic, and that nobody removes."""
    return _marked_folder_name(topic, index, unique, STRAY_MARK)


def _marked_folder_name(topic: str, index: int, unique: bytes, mark: str) -> str:
    suffix = f"-{index}.{unique.hex()}{mark}"
    return topic[: FOLDER_NAME_LENGTH_MAX - len(suffix)] + suffix
