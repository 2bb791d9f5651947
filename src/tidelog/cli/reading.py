"""Records of some partitions, read without a consumer group.

librdkafka looks up the coordinator of its group in any case, and the first such lookup creates
`__consumer_offsets`. This reader asks only the leaders for records.

**Invariant:** nothing is created, joined or committed. An unreadable partition does not delay the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from tidelog.cli.addresses import ANSWER_TIMEOUT_S
from tidelog.cli.failure import Failure
from tidelog.cli.nodes import describe_cluster
from tidelog.cli.start import Start, starting_offsets
from tidelog.client.cluster import LATEST, Cluster, FoundOffset
from tidelog.client.errors import ClientError, DamagedBatch, GaveUp, ReadTimedOut, TopicPartition
from tidelog.client.reader import RangeReader, RawBatches
from tidelog.protocol.batch import BatchHeader, read_header
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import Marker, Record, read_marker, read_records

UNREACHABLE_AFTER_S = 10.0


class PlacedRecord(NamedTuple):
    partition: TopicPartition
    record: Record


def open_cluster(bootstrap_server: str) -> Cluster:
    """A client that stops retrying a broker after some seconds."""
    timeout_ms = int(UNREACHABLE_AFTER_S * 1_000)
    return Cluster(
        {
            "bootstrap.servers": bootstrap_server,
            "client.id": "tidelog-cli",
            "default.api.timeout.ms": str(timeout_ms),
        }
    )


def explain_client(error: ClientError, bootstrap_server: str) -> Failure:
    """The failure for an error of Tidelog's own client."""
    if isinstance(error, GaveUp | ReadTimedOut):
        try:
            describe_cluster(bootstrap_server)
        except Failure as failure:
            return failure
    return Failure(str(error))


class Reading:
    """Partitions of one topic, each from `start` on.

    A partition without a leader is read as soon as it has one.
    """

    def __init__(
        self, cluster: Cluster, topic: str, partitions: Iterable[int], start: Start, *, committed_only: bool
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._topic_id = cluster.describe([topic])[topic].id
        self._start = start
        self._committed_only = committed_only
        self._places = [TopicPartition(topic, number) for number in partitions]
        self._positions: dict[TopicPartition, int] = {}
        self._aborted: dict[TopicPartition, set[int]] = {place: set() for place in self._places}
        self.unread: list[TopicPartition] = []  # at the last pass
        self.problem: ClientError | None = None  # the problem of one of them

    def records(self, places: Collection[TopicPartition] | None = None) -> Iterator[PlacedRecord]:
        """All unread records of these partitions, or of all: one partition after the other, without those
        that cannot be read now."""
        self.problem = None
        places = self._places if places is None else places
        self._begin([place.partition for place in places if place not in self._positions])
        ends = self._ask({place: LATEST for place in places if place in self._positions})
        self.unread = [place for place in places if place not in ends]
        for place, end in ends.items():
            try:
                yield from self._read(place, end.offset)
            except (GaveUp, ReadTimedOut) as problem:
                self.problem = problem
                self.unread.append(place)

    @property
    def is_at_a_loss(self) -> bool:
        """Whether no partition could be read in the last pass."""
        return len(self.unread) == len(self._places)

    def _begin(self, numbers: list[int]) -> None:
        if numbers:
            for number, offset in starting_offsets(self._ask, self._topic, numbers, self._start).items():
                self._positions[TopicPartition(self._topic, number)] = offset

    def _ask(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        found, problem = self._cluster.offsets_now(wanted, committed_only=self._committed_only)
        self.problem = self.problem or problem
        return found

    def _read(self, place: TopicPartition, end: int) -> Iterator[PlacedRecord]:
        start = self._positions[place]
        if start >= end:
            return
        position = start
        try:
            for record in self._range(place, start, end):
                position = record.offset + 1
                yield PlacedRecord(place, record)
            position = end
        finally:
            self._positions[place] = position

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
                try:
                    records = read_records(batch) if self._is_shown(place, header, batch) else ()
                except CorruptBatch as problem:
                    raise _damaged(place, header, problem) from None
                yield from (record for record in records if start <= record.offset < end)

    def _is_shown(self, place: TopicPartition, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a batch is printed: no control batches, no aborted transactions."""
        aborted = self._aborted[place]
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and marker[0] is Marker.ABORT:
                aborted.discard(header.producer_id)
            return False
        return not (self._committed_only and header.is_transactional and header.producer_id in aborted)


def _damaged(place: TopicPartition, header: BatchHeader, problem: CorruptBatch) -> DamagedBatch:
    next_offset = header.last_offset + 1
    return DamagedBatch(
        f"{place}: the batch at offset {header.base_offset} is damaged ({problem}); "
        f"to read on behind it: --partition {place.partition} --from {next_offset}"
    )


def _batches(piece: RawBatches) -> Iterator[tuple[BatchHeader, memoryview]]:
    position = piece.start
    while position < piece.end:
        header = read_header(piece.data, position)
        yield header, piece.data[position : position + header.size]
        position += header.size
