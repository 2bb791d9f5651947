"""The content of one file of a log directory as rows: numbers, text, and the bytes of keys and values.

**Invariant:** what comes before the damage is still returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from tidelog.base.reading import Readable
from tidelog.log.check.findings import WrongPath
from tidelog.log.format.checkpoint import decode_rows
from tidelog.log.format.index import OFFSET_ENTRY, TIME_ENTRY
from tidelog.log.format.names import (
    LEADER_EPOCHS,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from tidelog.log.format.snapshot import ProducerEntry, decode_snapshot
from tidelog.log.format.txnindex import ABORTED_SIZE, AbortedTransaction, decode_aborted
from tidelog.log.scan import BatchAt, Scan
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.compression import CODEC_NAMES
from tidelog.protocol.errors import CorruptBatch
from tidelog.protocol.records import read_marker, read_records

Row = tuple[object, ...]

_NAMED = re.compile(r"[0-9]{20}")

_BATCH_COLUMNS = (
    "position",
    "size",
    "base_offset",
    "last_offset",
    "records",
    "max_timestamp",
    "leader_epoch",
    "codec",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "kind",
    "crc",
)
_RECORD_COLUMNS = ("offset", "timestamp", "key", "value", "headers")


@dataclass(slots=True)
class Dump:
    """What is in a file; `problem` names the first damage, if there is any."""

    columns: tuple[str, ...]
    rows: list[Row]
    problem: str | None = None


def dump_file(file: Readable, suffix: str, records: bool) -> Dump:
    """A file that belongs to a segment, by its suffix; WrongPath if the file's name does not say enough."""
    if suffix == LOG_SUFFIX:
        return _dump_batches(Scan(file, 0, file.size, _first_offset(file)), records)
    content = file.read(0, file.size)
    if suffix == SNAPSHOT_SUFFIX:
        return _dump_snapshot(content)
    if suffix == TRANSACTION_INDEX_SUFFIX:
        return _dump_transactions(content)
    if suffix == TIME_INDEX_SUFFIX:
        return _dump_index(content, TIME_ENTRY, ("timestamp", "offset"), (0, _base_offset(file)))
    return _dump_index(content, OFFSET_ENTRY, ("offset", "position"), (_base_offset(file), 0))


def dump_checkpoint(file: Readable) -> Dump:
    """One of Kafka's checkpoint files."""
    columns = ("epoch", "start_offset") if file.name == LEADER_EPOCHS else ("topic", "partition", "offset")
    rows = decode_rows(file.read(0, file.size), len(columns))
    if rows is None:
        return Dump(columns, [], "not a checkpoint: expected version 0, a count and that many lines")
    return Dump(columns, [tuple(int(word) if word.isdigit() else word for word in row) for row in rows])


def _dump_batches(scan: Scan, records: bool) -> Dump:
    found = Dump(_RECORD_COLUMNS if records else _BATCH_COLUMNS, [])
    for batch, data in scan.batches():
        if not records:
            found.rows.append(_batch_row(batch))
            continue
        try:
            found.rows.extend(_record_rows(batch.header, data))
        except CorruptBatch as error:
            found.problem = f"the records of the batch at {batch.position} cannot be read: {error}"
            return found
    found.problem = scan.problem
    return found


def _batch_row(batch: BatchAt) -> Row:
    header = batch.header
    return (
        batch.position,
        header.size,
        header.base_offset,
        header.last_offset,
        header.record_count,
        header.max_timestamp,
        header.leader_epoch,
        CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else header.codec,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        "control" if header.is_control else "transactional" if header.is_transactional else "plain",
        f"{header.crc:08x}",
    )


def _record_rows(header: BatchHeader, data: memoryview) -> Iterator[Row]:
    if header.is_control and (ended := read_marker(data)) is not None:
        marker, coordinator_epoch = ended
        value = f"{marker.name.lower()} by coordinator epoch {coordinator_epoch}"
        yield header.base_offset, header.max_timestamp, f"producer {header.producer_id}", value, []
        return
    for record in read_records(data):
        headers = [[name, value] for name, value in record.headers]
        yield record.offset, record.timestamp, record.key, record.value, headers


def _dump_index(content: bytes, entry: Struct, columns: tuple[str, str], added: tuple[int, int]) -> Dump:
    found = Dump(columns, [])
    whole_size = len(content) - len(content) % entry.size
    filled_size = len(content.rstrip(b"\0"))  # Kafka makes an index at its full size and fills it as it goes
    last = (-1, -1)
    for place, fields in enumerate(entry.iter_unpack(content[:whole_size])):
        if place * entry.size >= filled_size:
            return found
        if fields[0] <= last[0] or fields[1] < last[1]:
            found.problem = f"the entry at {place * entry.size} is corrupt: {fields} after {last}"
            return found
        last = fields
        found.rows.append((fields[0] + added[0], fields[1] + added[1]))
    if whole_size != len(content):
        found.problem = f"the entry at {whole_size} is cut off at {len(content)}"
    return found


def _dump_transactions(content: bytes) -> Dump:
    entries = decode_aborted(content)
    found = Dump(AbortedTransaction._fields, [tuple(entry) for entry in entries])
    if len(entries) * ABORTED_SIZE != len(content):
        found.problem = f"the entry at {len(entries) * ABORTED_SIZE} is torn or corrupt"
    return found


def _dump_snapshot(content: bytes) -> Dump:
    try:
        return Dump(ProducerEntry._fields, [tuple(entry) for entry in decode_snapshot(content)])
    except CorruptBatch as error:
        return Dump(ProducerEntry._fields, [], str(error))


def _first_offset(file: Readable) -> int:
    """By the file's name, or by its first batch if it was given another name."""
    named = _NAMED.match(file.name)
    return int(named.group()) if named else max(int.from_bytes(file.read(0, 8), "big", signed=True), 0)


def _base_offset(file: Readable) -> int:
    named = _NAMED.match(file.name)
    if named is None:
        raise WrongPath("the name of an index begins with the 20 digits of its base offset")
    return int(named.group())
