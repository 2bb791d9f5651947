"""`tidelog log verify`: a whole log directory, or one partition's folder, checked without a broker.

**Invariant:** nothing is written, made or locked for longer than a look. What a broker that runs is
writing at that moment may look torn.
"""

from __future__ import annotations

import fcntl
import os

from tidelog.base.files import DiskDirectory
from tidelog.cli.failure import BadWord
from tidelog.cli.findings import Findings
from tidelog.cli.verify_partition import FOLDER, Extent, Known, verify_partition
from tidelog.log.checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    Offsets,
    read_offsets,
    read_rows,
)
from tidelog.log.directory import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    PARTITION_METADATA,
    folder_name,
    parse_properties,
)
from tidelog.log.leftovers import offset_in_name
from tidelog.log.segment import LOG_SUFFIX

_LOCK = ".lock"
_FATES = {
    RECOVERY_POINTS: "everything is read again",
    HIGH_WATERMARKS: "high watermarks are found anew",
    LOG_START_OFFSETS: "every log begins at its first segment, deleted records come back",
}
_UNREADABLE = "not a checkpoint: version 0, a count and that many lines"


class Verification:
    """Of one directory: `run` fills the findings."""

    def __init__(self, path: str, findings: Findings) -> None:
        self._findings = findings
        self._is_partition = _is_partition(path)
        self._root = os.path.dirname(os.path.abspath(path)) if self._is_partition else path
        self.folders = [path] if self._is_partition else _partition_folders(path)
        if not self.folders and not _is_log_directory(path):
            raise BadWord(f"{path}: neither a log directory nor a partition's folder")
        self.is_in_use = _is_locked(self._root)
        self.was_clean = os.path.exists(os.path.join(self._root, CLEAN_SHUTDOWN))

    @property
    def size(self) -> int:
        """Bytes of all segments that are going to be read."""
        return sum(
            entry.stat().st_size
            for folder in self.folders
            for entry in os.scandir(folder)
            if offset_in_name(entry.name, LOG_SUFFIX) is not None
        )

    def run(self) -> None:
        root = DiskDirectory(self._root)
        recovery_points = read_offsets(root, RECOVERY_POINTS)
        high_watermarks = read_offsets(root, HIGH_WATERMARKS)
        start_offsets = read_offsets(root, LOG_START_OFFSETS)
        if not self._is_partition:
            self._check_root(root)
            self._check_missing(recovery_points)
        topic_ids: dict[str, tuple[str, str]] = {}
        for folder in self.folders:
            name = _base_name(folder)
            key = _partition_of(name)
            known = Known(
                self.was_clean, recovery_points.get(key), high_watermarks.get(key), start_offsets.get(key)
            )
            try:
                extent = verify_partition(self._findings, folder, known)
            except FileNotFoundError:
                if not self.is_in_use:  # a broker at work removes segments, and whole topics
                    raise
                continue
            self._compare_topic_ids(topic_ids, key[0], name, extent)

    def _check_root(self, root: DiskDirectory) -> None:
        findings = self._findings
        for name, fate in _FATES.items():
            if root.exists(name) and read_rows(root, name, width=3) is None:
                findings.add(name, _UNREADABLE, fate)
        for name in _misnamed_folders(self._root):
            findings.add(
                name, "holds segments, but is not named <topic>-<partition>", "left alone, not served"
            )
        content = root.read_whole(META_PROPERTIES)
        if content is None:
            if self.folders:
                findings.add(META_PROPERTIES, "missing", "made anew; any broker may take the directory")
            return
        properties = parse_properties(content.decode(errors="replace"))
        version = properties.get("version", "0")
        if version not in ("0", "1"):
            findings.add(META_PROPERTIES, f"version {version} is unknown", "the broker refuses to start")
        elif version == "1" and not {"cluster.id", "node.id"} <= properties.keys():
            findings.add(META_PROPERTIES, "no cluster.id or no node.id", "any broker may take the directory")

    def _check_missing(self, recovery_points: Offsets) -> None:
        """After a clean stop the checkpoints name exactly what is there."""
        names = {_base_name(folder) for folder in self.folders}
        for topic, index in sorted(recovery_points):
            name = folder_name(topic, index)
            if self.was_clean and name not in names and recovery_points[topic, index] > 0:
                problem = f"names {name}, which has no folder here"
                self._findings.add(RECOVERY_POINTS, problem, "the partition begins empty")

    def _compare_topic_ids(
        self, topic_ids: dict[str, tuple[str, str]], topic: str, name: str, extent: Extent
    ) -> None:
        if extent.topic_id is None:
            return
        topic_id, first_name = topic_ids.setdefault(topic, (extent.topic_id, name))
        if topic_id != extent.topic_id:
            problem = f"topic id {extent.topic_id}, but {first_name} has {topic_id}"
            self._findings.add(name, problem, "the folder whose id is not the topic's is removed")


def _partition_folders(path: str) -> list[str]:
    try:
        return sorted(
            entry.path for entry in os.scandir(path) if entry.is_dir() and FOLDER.fullmatch(entry.name)
        )
    except OSError as error:
        raise BadWord(f"{path}: {error.strerror}; name a log directory or a partition's folder") from None


def _misnamed_folders(path: str) -> list[str]:
    """Folders that hold segments under a name that no partition has."""
    return sorted(
        entry.name
        for entry in os.scandir(path)
        if entry.is_dir()
        and not FOLDER.fullmatch(entry.name)
        and not entry.name.endswith(("-delete", "-future", "-stray"))
        and _holds_segments(entry.path)
    )


def _is_partition(path: str) -> bool:
    return _holds_segments(path) or os.path.exists(os.path.join(path, PARTITION_METADATA))


def _holds_segments(path: str) -> bool:
    try:
        return any(offset_in_name(name, LOG_SUFFIX) is not None for name in os.listdir(path))
    except OSError:
        return False


def _is_log_directory(path: str) -> bool:
    return any(os.path.exists(os.path.join(path, name)) for name in (META_PROPERTIES, RECOVERY_POINTS))


def _base_name(path: str) -> str:
    return os.path.basename(os.path.abspath(path))


def _partition_of(name: str) -> tuple[str, int]:
    matched = FOLDER.fullmatch(name)
    return (matched[1], int(matched[2])) if matched else (name, -1)


def _is_locked(root: str) -> bool:
    """Whether a broker holds the directory. The lock is tried and given back at once."""
    try:
        descriptor = os.open(os.path.join(root, _LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)
