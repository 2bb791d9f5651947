"""Markers on a leader: written into its partitions, and reported to who goes by them.

**Invariant:** what is held of a producer is refused before anybody can hear that its transaction has ended.
"""

from __future__ import annotations

from tidelog.broker.data_plane.coordinators import Coordinators
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.data_plane.flushing import Flushing
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.data_plane.verifying import Verifying
from tidelog.broker.kernel import Kernel
from tidelog.broker.waiting import WaitingRoom
from tidelog.cluster.features import GROUPS_TOPIC
from tidelog.log.markers import End, Marked
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition


class MarkerWrites:
    def __init__(
        self,
        kernel: Kernel,
        disks: Disks,
        partitions: Partitions,
        flushing: Flushing,
        waiting: WaitingRoom,
        coordinators: Coordinators,
        verifying: Verifying,
    ) -> None:
        self._clock = kernel.clock
        self._disks = disks
        self._partitions = partitions
        self._flushing = flushing
        self._waiting = waiting
        self._coordinators = coordinators
        self._verifying = verifying

    def write(self, topic: str, index: int, ends: list[End]) -> tuple[Partition | None, list[Marked]]:
        """The partition, if it is here, and the answer to each end."""
        partition = self._partitions.find(topic, index)
        code = _refusal(partition)
        if partition is None or code:
            return None, [Marked(code)] * len(ends)
        marked = self._write(partition, ends)
        pairs = zip(ends, marked, strict=True)
        self._verifying.on_marked(partition, [end.producer_id for end, done in pairs if not done.code])
        return partition, marked

    def _write(self, partition: Partition, ends: list[End]) -> list[Marked]:
        if partition.topic == GROUPS_TOPIC:
            return self._coordinators.append_markers(partition, ends)
        try:
            marked = partition.append_markers(ends, self._clock.now_ms)
        except OSError as failure:
            self._disks.fail(partition.directory, failure)
            return [Marked(ErrorCode.kafka_storage_error)] * len(ends)
        if partition.is_flush_wanted:
            self._flushing.maybe_begin(partition)
        self._waiting.on_moved(partition)
        return marked


def _refusal(partition: Partition | None) -> ErrorCode:
    if partition is None:
        return ErrorCode.unknown_topic_or_partition
    if partition.error_code:
        return ErrorCode(partition.error_code)
    return ErrorCode.not_enough_replicas if partition.is_under_minimum else ErrorCode.none
