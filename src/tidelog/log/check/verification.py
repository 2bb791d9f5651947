"""A whole log directory, or one partition's folder, checked without a broker.

**Invariant:** nothing is written. What a broker that runs is writing at that moment may look torn.
"""

from __future__ import annotations

from tidelog.base.reading import ReadOnlyFolder
from tidelog.log.check.findings import Findings, WrongPath
from tidelog.log.check.partition import Extent, Known, PartitionCheck
from tidelog.log.format.checkpoint import Offsets, decode_offset_rows, decode_offsets
from tidelog.log.format.metadata import decode_properties
from tidelog.log.format.names import (
    CLEAN_SHUTDOWN,
    CLEANED_OFFSETS,
    FOLDER_MARKS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    LOG_SUFFIX,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    folder_name,
    offset_in_name,
    partition_in_name,
)

_FATES = {
    RECOVERY_POINTS: "everything is read again",
    HIGH_WATERMARKS: "high watermarks are worked out again",
    LOG_START_OFFSETS: "every log begins at its first segment, deleted records come back",
    CLEANED_OFFSETS: "compacted logs are cleaned from their start again",
}
_UNREADABLE = "not a checkpoint: version 0, a count and that many lines"


class Verification:
    """Of one directory: `run` fills the findings. WrongPath if the folder is none."""

    def __init__(self, folder: ReadOnlyFolder, findings: Findings) -> None:
        self._findings = findings
        self._is_partition = _is_partition(folder)
        self._root = folder.parent if self._is_partition else folder
        self.folders = [folder] if self._is_partition else _partition_folders(folder)
        if not self.folders and not _is_log_directory(folder):
            raise WrongPath("neither a log directory nor a partition's folder")
        self.is_in_use = self._root.is_locked()
        self.was_clean = self._root.exists(CLEAN_SHUTDOWN)

    @property
    def size(self) -> int:
        """Bytes of all segments that are going to be read."""
        return sum(
            size
            for folder in self.folders
            for name, size in folder.sizes().items()
            if offset_in_name(name, LOG_SUFFIX) is not None
        )

    def run(self) -> None:
        recovery_points = self._offsets(RECOVERY_POINTS)
        high_watermarks = self._offsets(HIGH_WATERMARKS)
        start_offsets = self._offsets(LOG_START_OFFSETS)
        cleaned_offsets = self._offsets(CLEANED_OFFSETS)
        if not self._is_partition:
            self._check_root()
            self._check_missing(recovery_points)
        topic_ids: dict[str, tuple[str, str]] = {}
        for folder in self.folders:
            key = partition_in_name(folder.name) or (folder.name, -1)
            known = Known(
                self.was_clean,
                recovery_points.get(key),
                high_watermarks.get(key),
                start_offsets.get(key),
                cleaned_offsets.get(key, 0),
            )
            try:
                extent = PartitionCheck(self._findings, folder, known).run()
            except FileNotFoundError:
                if not self.is_in_use:  # a broker at work removes segments, and whole topics
                    raise
                continue
            self._compare_topic_ids(topic_ids, key[0], folder.name, extent)

    def _offsets(self, name: str) -> Offsets:
        return decode_offsets(self._root.read_whole(name))

    def _check_root(self) -> None:
        findings, root = self._findings, self._root
        for name, fate in _FATES.items():
            if root.exists(name) and decode_offset_rows(root.read_whole(name)) is None:
                findings.add(name, _UNREADABLE, fate)
        for name in _misnamed_folders(root):
            findings.add(
                name, "holds segments, but is not named <topic>-<partition>", "left alone, not served"
            )
        content = root.read_whole(META_PROPERTIES)
        if content is None:
            if self.folders:
                findings.add(META_PROPERTIES, "missing", "written again; any broker may take the directory")
            return
        properties = decode_properties(content)
        version = properties.get("version", "0")
        if version not in ("0", "1"):
            findings.add(META_PROPERTIES, f"version {version} is unknown", "the broker refuses to start")
        elif version == "1" and not {"cluster.id", "node.id"} <= properties.keys():
            findings.add(META_PROPERTIES, "no cluster.id or no node.id", "any broker may take the directory")

    def _check_missing(self, recovery_points: Offsets) -> None:
        """After a clean stop the checkpoints name exactly what is there."""
        names = [folder.name for folder in self.folders]
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


def _partition_folders(root: ReadOnlyFolder) -> list[ReadOnlyFolder]:
    try:
        return [root.folder(name) for name in root.folders() if partition_in_name(name) is not None]
    except OSError as error:
        raise WrongPath(f"{error.strerror}; name a log directory or a partition's folder") from None


def _misnamed_folders(root: ReadOnlyFolder) -> list[str]:
    """Folders that hold segments under a name that no partition has."""
    return [
        name
        for name in root.folders()
        if partition_in_name(name) is None
        and not name.endswith(FOLDER_MARKS)
        and _holds_segments(root.folder(name))
    ]


def _is_partition(folder: ReadOnlyFolder) -> bool:
    return _holds_segments(folder) or folder.exists(PARTITION_METADATA)


def _holds_segments(folder: ReadOnlyFolder) -> bool:
    try:
        return any(offset_in_name(name, LOG_SUFFIX) is not None for name in folder.names())
    except OSError:
        return False


def _is_log_directory(folder: ReadOnlyFolder) -> bool:
    return folder.exists(META_PROPERTIES) or folder.exists(RECOVERY_POINTS)
