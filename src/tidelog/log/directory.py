"""A log directory: the partitions in it, its checkpoints, whose it is, and whether it still works.

**Invariant:** once an I/O error was seen, the directory is offline for the life of the process: nothing
is acknowledged, nothing is tried again (L10).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tidelog.base.files import Directory
from tidelog.log.checkpoint import read_offsets, write_offsets
from tidelog.log.format.checkpoint import Offsets
from tidelog.log.format.metadata import (
    decode_clean_shutdown,
    decode_properties,
    decode_topic_id,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_topic_id,
)
from tidelog.log.format.names import (
    CLEAN_SHUTDOWN,
    CLEANED_OFFSETS,
    DELETE_MARK,
    FUTURE_MARK,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    partition_in_name,
)
from tidelog.log.manifest import Manifest
from tidelog.log.trust import Kept, Life, Note, StorePosition, judge, read_note, read_position

RUNNING = ".tidelog-running"
NEXT_RUNNING = ".tidelog-running.next"  # before it takes the place of the other
STORE_POSITION = ".tidelog-store"


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
        self.cleaned_offsets: Offsets = {}
        self.noted_epoch = -1  # of the broker, by the note
        self.store_position = StorePosition()  # the last one seen, as the disk has it
        self.is_ahead = False  # of the store, which was restored from a backup: nothing may be removed
        self.manifest = Manifest(directory)
        self.partition_count = 0

    def fail(self, reason: str, is_lost: bool) -> None:
        """After an I/O error the kernel may have dropped what it was told before; a full disk keeps it."""
        self.failure, self.is_lost = reason, is_lost
        if is_lost:
            with suppress(OSError):
                self.directory.remove(RUNNING)

    def forget_note(self) -> None:
        """Make durable that the note is gone, off the loop: the disk may take seconds, or refuse."""
        self.directory.remove(RUNNING)
        self.directory.sync()

    @property
    def offsets(self) -> tuple[Offsets, ...]:
        """What the checkpoints had when the directory was opened, of logs that are not open yet."""
        return self.recovery_points, self.start_offsets, self.high_watermarks, self.cleaned_offsets

    def peek(self, boot_id: str, life: Life) -> None:
        """Find out how the last life ended here. An empty directory is whole: nothing was in it."""
        meta = self.directory.read_whole(META_PROPERTIES)
        is_new = meta is None and not any(partition_in_name(name) for name in self.directory.names())
        content = self.directory.read_whole(CLEAN_SHUTDOWN)
        # The mark of an earlier stop may be back after a power cut: its removal is not synced.
        is_last = content is not None and (
            life.registered < 0 or decode_clean_shutdown(content) >= life.registered
        )
        self.was_clean = is_new or is_last
        note = read_note(self.directory.read_whole(RUNNING))
        self.noted_epoch = note.broker_epoch if note is not None else -1
        self.store_position = read_position(self.directory.read_whole(STORE_POSITION))
        was_rebooted = boot_id != "" and note is not None and note.boot not in ("", boot_id)
        self.is_cached = not self.was_clean and not was_rebooted
        if is_new:
            return
        if meta is None:  # removed by hand: nobody knows which directory it was
            self.kept = Kept.LOST if life.notes else Kept.UNFLUSHED
            return
        directory_id = decode_properties(meta).get("directory.id", "")
        self.kept = judge(
            life, directory_id, decode_clean_shutdown(content), note, boot_id, self.directory.mount()
        )
        if note is not None and note.broker_epoch >= life.registered:
            self.failed_before = note.failed

    def open(self, cluster_id: str, node_id: int, directory_id: str) -> None:
        """Check whose it is, and read the checkpoints."""
        self._check_owner(cluster_id, node_id, directory_id)
        self.recovery_points = read_offsets(self.directory, RECOVERY_POINTS)
        self.start_offsets = read_offsets(self.directory, LOG_START_OFFSETS)
        self.high_watermarks = read_offsets(self.directory, HIGH_WATERMARKS)
        self.cleaned_offsets = read_offsets(self.directory, CLEANED_OFFSETS)
        self.manifest.load()
        for name in self.directory.names():
            if name.endswith((DELETE_MARK, FUTURE_MARK)):
                self.directory.remove(name)

    def write_note(self, boot_id: str, broker_epoch: int, failed: Sequence[str]) -> None:
        """Say who uses the directory, and what it may have lost before; the last clean stop is history."""
        self.directory.replace_whole(RUNNING, self._note(boot_id, broker_epoch, failed))
        self.noted_epoch = broker_epoch
        self.directory.remove(CLEAN_SHUTDOWN)

    def _note(self, boot_id: str, broker_epoch: int, failed: Sequence[str]) -> bytes:
        return Note(boot_id, self.directory.mount(), broker_epoch, self.kept, tuple(failed)).encode()

    def write_next_note(self, boot_id: str, broker_epoch: int, failed: Sequence[str]) -> None:
        """On a thread: the note in use is the loop's, which removes it if the disk fails meanwhile."""
        self.directory.replace_whole(NEXT_RUNNING, self._note(boot_id, broker_epoch, failed))

    def use_next_note(self, broker_epoch: int) -> None:
        """Durable when the directory is synced."""
        self.directory.rename(NEXT_RUNNING, RUNNING)
        self.noted_epoch = broker_epoch

    def epoch_to_vouch(self, epoch: int) -> int:
        """The epoch that the next start must find in the note, if the broker registers under `epoch`. A full
        directory keeps its older note; the note of a failed one, or of an older copy, must not do."""
        return epoch if self.is_lost or self.kept is Kept.LOST else self.noted_epoch

    def _check_owner(self, cluster_id: str, node_id: int, directory_id: str) -> None:
        content = self.directory.read_whole(META_PROPERTIES)
        if content is None:
            content = encode_meta_properties(cluster_id, node_id, directory_id)
            self.directory.replace_whole(META_PROPERTIES, content)
            self.directory_id = directory_id
            return
        found = decode_properties(content)
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

    def write_store_position(self, position: StorePosition) -> None:
        """The next start compares it with the store's."""
        if position > self.store_position:
            self.directory.replace_whole(STORE_POSITION, position.encode())
            self.store_position = position

    def write_checkpoints(
        self, recovery_points: Offsets, high_watermarks: Offsets, starts: Offsets, cleaned: Offsets
    ) -> None:
        write_offsets(self.directory, RECOVERY_POINTS, recovery_points)
        write_offsets(self.directory, HIGH_WATERMARKS, high_watermarks)
        write_offsets(self.directory, LOG_START_OFFSETS, starts)
        write_offsets(self.directory, CLEANED_OFFSETS, cleaned)

    def mark_clean(self, broker_epoch: int) -> None:
        """The last act of a clean stop."""
        self.directory.replace_whole(CLEAN_SHUTDOWN, encode_clean_shutdown(broker_epoch))


def read_topic_id(folder: Directory) -> str | None:
    """The topic id in a partition's folder; None if there is none that can be read."""
    return decode_topic_id(folder.read_whole(PARTITION_METADATA))


def write_topic_id(folder: Directory, topic_id: str) -> None:
    """Not fsynced here: the log's first flush does that. Torn by a crash, it is written again."""
    folder.replace_whole(PARTITION_METADATA, encode_topic_id(topic_id), durable=False)
