"""What the driver has decided last: a batch and the transactions of its tasks, as offsets of a group.

The offset is the batch, the metadata the rest. A broker bounds the metadata of a partition, so a long list
goes on in the next partitions of the marker's topic, in the same transaction.

Metadata: `1:<part>:<parts>:<producer id>.<epoch>:<piece>`. Producer id and epoch are those of the driver's
transaction: no other decision has them. The pieces together are base64 of compressed JSON.

**Invariant:** a marker is read whole or not at all: parts of an earlier, longer one do not count.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.client.errors import TopicPartition
from tidelog.client.transaction_messages import CommittedOffset, Opened
from tidelog.spark.exactly_once import stops
from tidelog.spark.exactly_once.tasks import TaskReport

VERSION = "1"
METADATA_SIZE_MAX = 4_096  # offset.metadata.max.bytes, by default
_HEAD_SIZE_MAX = 64  # version, part, parts, and the numbers of a decision: 57 digits and colons at most
_PIECE_SIZE = METADATA_SIZE_MAX - _HEAD_SIZE_MAX


class Entry(NamedTuple):
    """The transaction of one task."""

    task: int
    rows: int
    row_sum: int
    opened: Opened

    @property
    def content(self) -> tuple[int, int, int]:
        return self.task, self.rows, self.row_sum


class Marker(NamedTuple):
    batch: int
    run: str
    print: str  # of the batch (`offset_file`); empty if it could not be read
    entries: tuple[Entry, ...]
    decision: tuple[int, int]  # producer id and epoch of the driver's transaction

    @property
    def opened(self) -> list[Opened]:
        return [entry.opened for entry in self.entries]


def entries_of(reports: Iterable[TaskReport]) -> tuple[Entry, ...]:
    return tuple(
        Entry(report.place.task, report.rows, report.row_sum, report.opened)
        for report in reports
        if report.opened is not None
    )


def pack(marker: Marker, sink_id: str, topic: str) -> dict[TopicPartition, CommittedOffset]:
    """The offsets of the marker's partitions, from 0 on."""
    workers: dict[str, int] = {}
    rows = []
    for entry in marker.entries:
        worker, _, slot = entry.opened.transactional_id.removeprefix(f"{sink_id}/").partition("/")
        number = workers.setdefault(worker, len(workers))
        identity = entry.opened.producer_id, entry.opened.producer_epoch
        rows.append([number, int(slot), *identity, *entry.content])
    says = {"run": marker.run, "print": marker.print, "workers": list(workers), "tasks": rows}
    packed = zlib.compress(json.dumps(says, separators=(",", ":")).encode(), 9)
    text = base64.b64encode(packed).decode()
    pieces = [text[first : first + _PIECE_SIZE] for first in range(0, len(text), _PIECE_SIZE)]
    decision = ".".join(map(str, marker.decision))
    return {
        TopicPartition(topic, part): CommittedOffset(
            marker.batch, f"{VERSION}:{part}:{len(pieces)}:{decision}:{piece}"
        )
        for part, piece in enumerate(pieces)
    }


def unpack(committed: Mapping[TopicPartition, CommittedOffset], sink_id: str) -> Marker | None:
    """The marker of the highest batch; None if the group has no offsets. The marker's topic may have been
    another one before."""
    found = [
        marker
        for partition in committed
        if partition.partition == 0 and (marker := _unpack_topic(committed, partition.topic, sink_id))
    ]
    if committed and not found:
        raise stops.unreadable_marker(sink_id)
    return max(found, key=lambda marker: marker.batch, default=None)


def _unpack_topic(
    committed: Mapping[TopicPartition, CommittedOffset], topic: str, sink_id: str
) -> Marker | None:
    first = committed[TopicPartition(topic, 0)]
    try:
        _, _, count, decision, _ = _split(first)
        pieces = []
        for part in range(int(count)):
            piece = committed[TopicPartition(topic, part)]
            if piece.offset != first.offset or _split(piece)[:4] != (VERSION, str(part), count, decision):
                raise stops.unreadable_marker(sink_id)
            pieces.append(_split(piece)[4])
        says = json.loads(zlib.decompress(base64.b64decode("".join(pieces))))
        producer_id, epoch = map(int, decision.split("."))
        entries = tuple(_entry(row, says["workers"], sink_id) for row in says["tasks"])
        return Marker(first.offset, says["run"], says["print"], entries, (producer_id, epoch))
    except (ValueError, KeyError, TypeError, IndexError, zlib.error) as problem:
        raise stops.unreadable_marker(sink_id) from problem


def _split(committed: CommittedOffset) -> tuple[str, ...]:
    return tuple(committed.metadata.split(":", 4))


def _entry(row: Sequence[int], workers: Sequence[str], sink_id: str) -> Entry:
    worker, slot, producer_id, epoch, task, rows, row_sum = row
    return Entry(task, rows, row_sum, Opened(f"{sink_id}/{workers[worker]}/{slot}", producer_id, epoch))
