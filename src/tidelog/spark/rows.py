"""Arrow to record batches: the rows of a query, as batches for the partitions of topics.

The columns are those of Spark's Kafka connector: value and, if present, key, headers, topic and partition;
others are ignored. Rows are collected in a buffer per partition, across Arrow's record batches, until it is
full; the compiled loop of `scatter` writes them, and Python runs once per batch.

**Invariant:** rows of one partition keep their order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import pyarrow as pa

from tidelog.base.compiled import Int32s
from tidelog.base.limits import BATCH_HEADER_SIZE, KIB
from tidelog.protocol import compression
from tidelog.protocol.batch import HEADER, LENGTH_OVERHEAD, NO_PRODUCER_ID, NO_SEQUENCE
from tidelog.spark import scatter
from tidelog.spark.inputs import read_rows
from tidelog.spark.sums import number_of_topic, sum_rows

EncodedBatch = tuple[str, int, bytearray, int]

_FIRST_ROOM = 4 * KIB
_GROWTH = 4


class RowEncoder:
    """Record batches without producer id and checksum, which the sender adds.

    `partition_count` is called once for each topic. With `topic`, all rows go there, whatever their own
    column says.
    """

    def __init__(
        self,
        *,
        partition_count: Callable[[str], int],
        topic: str | None,
        codec: int,
        level: int | None = None,
        batch_bytes: int,
        now_ms: Callable[[], int],
        seed: int = 0,
        sums: bool = False,
    ) -> None:
        self._partition_count = partition_count
        self._topic = topic
        self._sums = sums
        self._codec = codec
        self._level = level
        self._batch_bytes = batch_bytes
        self._now_ms = now_ms
        self._random = Random(seed)
        self._topics: dict[str, int] = {}  # name to its row in the table
        self._table = np.zeros((0, scatter.TOPIC_FIELDS), np.int64)
        self._slots = np.zeros((0, scatter.SLOT_FIELDS), np.int64)
        self._places: list[tuple[str, int, int]] = []  # of each slot: topic, its row, partition
        self._buffers: list[bytearray] = []
        self._rooms: list[int] = []  # of each slot: the size of its next buffer
        self._opened_ms: list[int] = []
        self._topic_numbers = np.zeros(0, np.int64)
        self.row_count = 0
        self.row_sum = 0  # see `sums`; a multiple of 2**64 may be missing

    def add(self, rows: pa.RecordBatch) -> Iterator[EncodedBatch]:
        """Add rows; the batches that became full."""
        inputs = read_rows(rows, self._topic, self._rows_of)
        self.row_count += rows.num_rows
        self.row_sum += int(sum_rows(inputs, rows.num_rows, self._topic_numbers)) if self._sums else 0
        at = np.zeros(scatter.AT_FIELDS, np.int64)
        while True:
            status = scatter.scatter(inputs, rows.num_rows, self._batch_bytes, self._table, self._slots, at)
            if status == scatter.DONE:
                return
            if status != scatter.NO_ROOM:
                raise self._refusal(status, rows, int(at[scatter.AT_ROW]))
            slot, size = int(at[scatter.AT_SLOT]), int(at[scatter.AT_SIZE])
            _, _, fill, records = self._slots[slot].tolist()
            if not records or fill + size <= self._batch_bytes:
                self._grow(slot, fill + size)
                continue
            yield self._close(slot)
            if not self._choose_another(slot):
                self._grow(slot, BATCH_HEADER_SIZE + size)

    def finish(self) -> Iterator[EncodedBatch]:
        """The batches that are not full."""
        for slot in np.flatnonzero(self._slots[:, scatter.SLOT_RECORDS]).tolist():
            yield self._close(slot)

    def _rows_of(self, names: list[str]) -> Int32s:
        """The rows of topics in the table; new topics get a row, and a slot for each partition."""
        for name in names:
            if name not in self._topics:
                self._add_topic(name, self._partition_count(name))
        return np.array([self._topics[name] for name in names], np.int32)

    def _add_topic(self, name: str, partitions: int) -> None:
        if partitions < 1:
            raise ValueError(f"topic {name} has no partitions")
        row, first = len(self._table), len(self._slots)
        entry = np.array([[first, partitions, self._random.randrange(partitions)]], np.int64)
        slots = np.zeros((partitions, scatter.SLOT_FIELDS), np.int64)
        slots[:, scatter.SLOT_FILL] = BATCH_HEADER_SIZE
        self._table = np.concatenate([self._table, entry])
        self._slots = np.concatenate([self._slots, slots])
        self._topics[name] = row
        self._topic_numbers = np.append(self._topic_numbers, np.int64(number_of_topic(name)))
        self._topic_numbers.flags.writeable = False
        self._places += [(name, row, partition) for partition in range(partitions)]
        self._buffers += [bytearray()] * partitions
        self._rooms += [_FIRST_ROOM] * partitions
        self._opened_ms += [0] * partitions

    def _grow(self, slot: int, end: int) -> None:
        """Give a slot a larger buffer, or its first."""
        old = self._buffers[slot]
        if not old:
            self._opened_ms[slot] = self._now_ms()
        wanted = max(self._rooms[slot], _GROWTH * len(old))
        new = bytearray(max(end, min(wanted, self._batch_bytes)))
        new[: len(old)] = old
        self._buffers[slot] = new
        self._slots[slot, scatter.SLOT_ADDRESS] = ctypes.addressof(ctypes.c_char.from_buffer(new))
        self._slots[slot, scatter.SLOT_ROOM] = len(new)

    def _choose_another(self, slot: int) -> bool:
        """After a full batch, switch rows without a key to another partition; whether this slot had them."""
        _, row, partition = self._places[slot]
        _, partitions, sticky = self._table[row].tolist()
        if partition != sticky or partitions == 1:
            return False
        step = self._random.randrange(1, partitions)
        self._table[row, scatter.TOPIC_STICKY] = (partition + step) % partitions
        return True

    def _close(self, slot: int) -> EncodedBatch:
        """The slot's batch; the slot is empty after it."""
        buffer, (topic, _, partition) = self._buffers[slot], self._places[slot]
        _, _, fill, records = self._slots[slot].tolist()
        self._slots[slot] = (0, 0, BATCH_HEADER_SIZE, 0)
        self._buffers[slot] = bytearray()
        self._rooms[slot] = min(fill + fill // 8, self._batch_bytes)
        del buffer[fill:]
        if self._codec != compression.NONE:
            buffer[BATCH_HEADER_SIZE:] = compression.compress(
                self._codec, memoryview(buffer)[BATCH_HEADER_SIZE:], self._level
            )
        _write_header(buffer, self._codec, records, self._opened_ms[slot])
        return topic, partition, buffer, records

    def _refusal(self, status: int, rows: pa.RecordBatch, row: int) -> ValueError:
        if status == scatter.NO_HEADER_KEY:
            return ValueError("a header without a key: Kafka has none, filter them or give them a key")
        if status == scatter.TOO_LARGE:
            return ValueError(f"a row is larger than a record may be: {scatter.RECORD_SIZE_MAX} bytes")
        names = rows.schema.names
        topic = self._topic or rows.column(names.index("topic"))[row].as_py()
        partition = rows.column(names.index("partition"))[row].as_py()
        count = int(self._table[self._topics[topic], scatter.TOPIC_PARTITIONS])
        return ValueError(
            f"the partition column names partition {partition} of topic {topic}, which has {count} "
            f"(0 to {count - 1}); leave it null to have one chosen"
        )


def _write_header(batch: bytearray, codec: int, records: int, now_ms: int) -> None:
    length, producer_epoch = len(batch) - LENGTH_OVERHEAD, -1
    producer = (NO_PRODUCER_ID, producer_epoch, NO_SEQUENCE)
    HEADER.pack_into(batch, 0, 0, length, -1, 2, 0, codec, records - 1, now_ms, now_ms, *producer, records)
