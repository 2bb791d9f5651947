"""Partitions that a scripted broker appends to, with the check of sequences that real ones have.

As in Kafka, a producer that the partition does not know may begin with any sequence: who sends a second batch
before the first is acknowledged can lose their order here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from tests.client.scripted import Asked
from tidelog.protocol.batch import check_whole
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.produce import ProducedPartition, decode_produce, encode_produce
from tidelog.protocol.records import read_records

RECENT = 5


class ToldPartition:
    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self._recent: dict[int, list[tuple[int, int, int]]] = {}  # producer: first, last sequence, offset

    def append(self, batch: bytes) -> tuple[int, int]:
        """Error code and base offset."""
        header = check_whole(memoryview(batch), 0, len(batch))
        recent = self._recent.setdefault(header.producer_id, [])
        for first, last, offset in recent[-RECENT:]:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return 0, offset
        if header.producer_id >= 0 and recent and header.base_sequence != (recent[-1][1] + 1) & 0x7FFFFFFF:
            return int(ErrorCode.out_of_order_sequence_number), -1
        offset = len(self.values)
        recent.append((header.base_sequence, header.last_sequence, offset))
        self.values += [record.value for record in read_records(batch)]
        return 0, offset


class ToldPartitions:
    """`fate(topic, index)` says what becomes of a batch: an error code, and whether it is appended first."""

    def __init__(self, fate: Callable[[], tuple[int, bool]] = lambda: (0, True)) -> None:
        self.partitions: defaultdict[tuple[str | bytes, int], ToldPartition] = defaultdict(ToldPartition)
        self.request_count = 0
        self.batches_per_request: list[int] = []
        self._fate = fate

    def produce(self, asked: Asked) -> bytes:
        request = decode_produce(asked.data, asked.position, asked.version)
        self.request_count += 1
        produced = []
        for topic, batches in request.topics:
            rows = []
            for index, start, end in batches:
                code, is_appended = self._fate()
                offset = -1
                if is_appended:
                    error, offset = self.partitions[topic, index].append(bytes(asked.data[start:end]))
                    code = error or code
                rows.append(ProducedPartition(index, code, offset if code == 0 else -1))
            produced.append((topic, rows))
        self.batches_per_request.append(sum(len(rows) for _, rows in produced))
        if request.acks == 0:
            return b""
        return bytes(encode_produce(asked.version, asked.correlation, produced, 0, ()))


def tell_producer_id(asked: Asked) -> bytes:
    return asked.respond(error_code=0, producer_id=7, producer_epoch=0)
