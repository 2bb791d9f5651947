"""Records of some partitions, read without a consumer group.

librdkafka asks for the coordinator of its group whatever it reads, and the first question of that kind makes
`__consumer_offsets`. Here leaders are asked for records, and nobody for a group.

**Invariant:** nothing is created, joined or committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.cli.addresses import ANSWER_TIMEOUT_S
from tidelog.cli.failure import Failure
from tidelog.cli.nodes import describe_cluster
from tidelog.client.cluster import LATEST, Cluster
from tidelog.client.errors import ClientError, GaveUp, ReadTimedOut, TopicPartition
from tidelog.client.reader import RangeReader, RawBatches
from tidelog.protocol.batch import BatchHeader, read_header
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import Marker, Record, read_marker, read_records

UNREACHABLE_AFTER_S = 10.0


class PlacedRecord(NamedTuple):
    partition: TopicPartition
    record: Record


def open_cluster(bootstrap_server: str) -> Cluster:
    """A client that gives a broker up that has been away for some seconds."""
    timeout_ms = int(UNREACHABLE_AFTER_S * 1_000)
    return Cluster(
        {
            "bootstrap.servers": bootstrap_server,
            "client.id": "tidelog-cli",
            "default.api.timeout.ms": str(timeout_ms),
        }
    )


def explain_client(error: ClientError | CorruptBatch, bootstrap_server: str) -> Failure:
    """The failure that an error of our own client means, or a batch that cannot be read."""
    if isinstance(error, GaveUp | ReadTimedOut):
        try:
            describe_cluster(bootstrap_server)
        except Failure as failure:
            return failure
    return Failure(str(error))


class Reading:
    """Partitions of one topic, each from some offset on."""

    def __init__(self, cluster: Cluster, topic: str, starts: dict[int, int], *, committed_only: bool) -> None:
        self._cluster = cluster
        self._topic_id = cluster.describe([topic])[topic].id
        self._committed_only = committed_only
        self._positions = {TopicPartition(topic, number): offset for number, offset in starts.items()}
        self._aborted: dict[TopicPartition, set[int]] = {place: set() for place in self._positions}

    def records(self) -> Iterator[PlacedRecord]:
        """All that is there and was not read, one partition after the other."""
        ends = self._cluster.list_offsets(
            dict.fromkeys(self._positions, LATEST), committed_only=self._committed_only
        )
        for place, start in list(self._positions.items()):
            end = ends[place].offset
            if start < end:
                for record in self._range(place, start, end):
                    yield PlacedRecord(place, record)
                self._positions[place] = end

    def _range(self, place: TopicPartition, start: int, end: int) -> Iterator[Record]:
        pieces = RangeReader(
            self._cluster,
            place,
            self._topic_id,
            start,
            end,
            committed_only=self._committed_only,
            timeout_ms=int(ANSWER_TIMEOUT_S * 1_000),
        )
        for piece in pieces:
            waiting = sorted(piece.aborted or (), key=lambda row: row[1])
            for header, batch in _batches(piece):
                while waiting and waiting[0][1] <= header.last_offset:
                    self._aborted[place].add(waiting.pop(0)[0])
                if self._is_shown(place, header, batch):
                    yield from (record for record in read_records(batch) if start <= record.offset < end)

    def _is_shown(self, place: TopicPartition, header: BatchHeader, batch: memoryview) -> bool:
        """Not the ends of transactions, and not what belongs to one that was aborted."""
        aborted = self._aborted[place]
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and marker[0] is Marker.ABORT:
                aborted.discard(header.producer_id)
            return False
        return not (self._committed_only and header.is_transactional and header.producer_id in aborted)


def _batches(piece: RawBatches) -> Iterator[tuple[BatchHeader, memoryview]]:
    position = piece.start
    while position < piece.end:
        header = read_header(piece.data, position)
        yield header, piece.data[position : position + header.size]
        position += header.size
