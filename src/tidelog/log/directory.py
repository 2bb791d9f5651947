"""A log directory: the partitions in it, its checkpoints, whose it is, and whether it still works.

**Invariant:** once an I/O error was seen, the directory is offline for the life of the process: nothing
is acknowledged, nothing is tried again (L10).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from tidelog.base.files import Directory
from tidelog.log.checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    Offsets,
    read_offsets,
    write_offsets,
)
from tidelog.log.manifest import Manifest
from tidelog.log.trust import Kept, Life, Note, fields_of, judge, read_note

META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RUNNING = ".tidelog-running"
PARTITION_METADATA = "partition.metadata"
DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"
FOLDER_NAME_LENGTH_MAX = 255


class ForeignDirectory(Exception):
    """The directory belongs to another cluster or node, or to a format from the future (L11)."""


class LogDirectory:
    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.path = directory.path
        self.failure: str | None = None
        self.is_lost = False  # by that failure
        self.was_clean = False
        self.is_cached = False  # what is found may be in memory alone, and never have reached the disk
        self.kept = Kept.WHOLE  # since the last life, by its marks; whole again once the store knows
        self.failed_before: tuple[str, ...] = ()  # directories that failed in the last life, by its note
        self.directory_id = ""
        self.recovery_points: Offsets = {}
        self.start_offsets: Offsets = {}
        self.high_watermarks: Offsets = {}
        self.manifest = Manifest(directory)
        self.partition_count = 0

    def fail(self, reason: str, is_lost: bool) -> None:
        """After an I/O error the kernel may have dropped what it was told before; a full disk keeps it."""
        self.failure, self.is_lost = reason, is_lost
        if is_lost:
            with suppress(OSError):
                self.directory.remove(RUNNING)

    @property
    def offsets(self) -> tuple[Offsets, Offsets, Offsets]:
        """What the checkpoints had when the directory was opened, of logs that are not open yet."""
        return self.recovery_points, self.start_offsets, self.high_watermarks

    def peek(self, boot_id: str, life: Life) -> None:
        """Find out how the last life ended here. An empty directory is whole: nothing was in it."""
        is_new = not self.directory.exists(META_PROPERTIES)
        content = self.directory.read_whole(CLEAN_SHUTDOWN)
        self.was_clean = is_new or content is not None
        note = read_note(self.directory.read_whole(RUNNING))
        was_rebooted = boot_id != "" and note is not None and note.boot not in ("", boot_id)
        self.is_cached = not self.was_clean and not was_rebooted
        if is_new:
            return
        self.kept = judge(life, _epoch_of(content), note, boot_id, self.directory.mount())
        if note is not None and note.broker_epoch >= life.registered:
            self.failed_before = note.failed

    def open(self, cluster_id: str, node_id: int, directory_id: str) -> None:
        """Check whose it is, and read the checkpoints."""
        self._check_owner(cluster_id, node_id, directory_id)
        self.recovery_points = read_offsets(self.directory, RECOVERY_POINTS)
        self.start_offsets = read_offsets(self.directory, LOG_START_OFFSETS)
        self.high_watermarks = read_offsets(self.directory, HIGH_WATERMARKS)
        self.manifest.load()
        for name in self.directory.names():
            if name.endswith((DELETE_SUFFIX, FUTURE_SUFFIX)):
                self.directory.remove(name)

    def write_note(self, boot_id: str, broker_epoch: int, failed: Sequence[str]) -> None:
        """Say who uses the directory, and what it may have lost before; the last clean stop is history."""
        note = Note(boot_id, self.directory.mount(), broker_epoch, self.kept, tuple(failed))
        self.directory.replace_whole(RUNNING, note.encode())
        self.directory.remove(CLEAN_SHUTDOWN)

    def _check_owner(self, cluster_id: str, node_id: int, directory_id: str) -> None:
        content = self.directory.read_whole(META_PROPERTIES)
        if content is None:
            lines = [
                "version=1",
                f"cluster.id={cluster_id}",
                f"node.id={node_id}",
                f"directory.id={directory_id}",
            ]
            self.directory.replace_whole(META_PROPERTIES, "\n".join([*lines, ""]).encode())
            self.directory_id = directory_id
            return
        found = parse_properties(content.decode(errors="replace"))
        self.directory_id = found.get("directory.id", "")
        version = found.get("version", "0")
        if version not in ("0", "1"):
            raise ForeignDirectory(
                f"{self.path}: {META_PROPERTIES} has version {version}; this Tidelog reads 0 and 1"
            )
        if found.get("cluster.id", cluster_id) != cluster_id:
            raise ForeignDirectory(
                f"{self.path}: belongs to cluster {found['cluster.id']}, this broker to {cluster_id}; "
                "point log.dirs at a folder of this cluster"
            )
        owner = found.get("node.id", found.get("broker.id", str(node_id)))
        if owner != str(node_id):
            raise ForeignDirectory(
                f"{self.path}: belongs to node {owner}, this broker is node {node_id}; "
                f"start it with node.id={owner} or another log.dirs"
            )

    def write_checkpoints(self, recovery_points: Offsets, high_watermarks: Offsets, starts: Offsets) -> None:
        write_offsets(self.directory, RECOVERY_POINTS, recovery_points)
        write_offsets(self.directory, HIGH_WATERMARKS, high_watermarks)
        write_offsets(self.directory, LOG_START_OFFSETS, starts)

    def mark_clean(self, broker_epoch: int) -> None:
        """The last act of a clean stop."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self.directory.replace_whole(CLEAN_SHUTDOWN, content.encode())


def _epoch_of(clean: bytes | None) -> int:
    found = fields_of(clean).get("brokerEpoch")
    return found if isinstance(found, int) else -1


def parse_properties(text: str) -> dict[str, str]:
    """`key=value` lines; `#` begins a comment."""
    found = {}
    for line in text.splitlines():
        key, separator, value = line.strip().partition("=")
        if separator and not key.startswith("#"):
            found[key.strip()] = value.strip()
    return found


def folder_name(topic: str, index: int) -> str:
    return f"{topic}-{index}"


def deleted_folder_name(topic: str, index: int, unique: bytes) -> str:
    """The name a deleted partition's folder gets before it is removed in the background."""
    return _marked_folder_name(topic, index, unique, DELETE_SUFFIX)


def future_folder_name(topic: str, index: int, unique: bytes) -> str:
    """The name of a folder that a partition is being copied to."""
    return _marked_folder_name(topic, index, unique, FUTURE_SUFFIX)


def stray_folder_name(topic: str, index: int, unique: bytes) -> str:
    """The name of a folder that belongs to no topic, and that nobody removes."""
    return _marked_folder_name(topic, index, unique, STRAY_SUFFIX)


def _marked_folder_name(topic: str, index: int, unique: bytes, mark: str) -> str:
    suffix = f"-{index}.{unique.hex()}{mark}"
    return topic[: FOLDER_NAME_LENGTH_MAX - len(suffix)] + suffix


def read_topic_id(folder: Directory) -> str | None:
    """The topic id in a partition's folder; None if there is none that can be read."""
    lines = (folder.read_whole(PARTITION_METADATA) or b"").decode(errors="replace").split()
    is_whole = lines[:3] == ["version:", "0", "topic_id:"] and len(lines) == 4 and len(lines[3]) == 22
    return lines[3] if is_whole else None


def write_topic_id(folder: Directory, topic_id: str) -> None:
    """Not fsynced here: the log's first flush does that. Torn by a crash, it is written anew."""
    folder.replace_whole(PARTITION_METADATA, f"version: 0\ntopic_id: {topic_id}".encode(), durable=False)
