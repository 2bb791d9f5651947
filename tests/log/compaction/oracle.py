"""What Apache Kafka 4.3.1 left behind: 60 histories, cleaned 174 times, with every segment before and after.

A history has the topic's settings and its rounds. Of a round `oracle.json.xz` has the segments before it
and behind it (fields of each batch, its records, indexes, the bytes in `raw`), the first dirty offset, the
bound, and the times between which it ran. Before the fourth round all producers were forgotten.

    python -m tests.log.compaction.oracle overwrite/1    # ends with FOUND if a round leaves something else
"""

from __future__ import annotations

import json
import lzma
import sys
from base64 import b64decode
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.log.making import split
from tests.sim.cluster_mutants import FOUND
from tidelog.base.files import Directory, DiskDirectory
from tidelog.log.compaction.cleaning import clean
from tidelog.log.compaction.keys import KeyMap, PlainKeyMap
from tidelog.log.compaction.request import CleaningRequest, CleaningResult, LiveProducer, Source
from tidelog.log.format.index import OFFSET_ENTRY, TIME_ENTRY
from tidelog.log.format.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from tidelog.log.format.txnindex import AbortedTransaction, decode_aborted
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.records import Record, build_batch, read_marker, read_records

Row = dict[str, Any]
ORACLE = Path(__file__).with_name("oracle.json.xz")
MIB = 1 << 20
SEED = 0x5EED
FORGOTTEN_ROUND = 4  # before which all producers were forgotten
# The log start offset, where DeleteRecords has moved it into a segment.
LOG_STARTS = {"delete-records/1": 3}


@cache
def histories() -> dict[str, Row]:
    found: dict[str, Row] = json.loads(lzma.decompress(ORACLE.read_bytes()))
    del found["_"]
    return found


def rounds() -> list[str]:
    """`history/number` of every round in which something was cleaned."""
    names = [f"{name}/{n + 1}" for name, row in histories().items() for n in range(len(row["rounds"]))]
    return [name for name in names if _was_cleaned(_round(name))]


def _round(name: str) -> Row:
    history, _, number = name.partition("/")
    found: Row = histories()[history]["rounds"][int(number) - 1]
    return found


def _was_cleaned(row: Row) -> bool:
    return row["checkpoint_after"] not in (None, row["first_dirty"])


def settings(name: str) -> dict[str, str]:
    """As of that round."""
    history, _, number = name.partition("/")
    found: dict[str, str] = dict(histories()[history]["config"])
    for row in histories()[history]["rounds"][: int(number)]:
        for kind, *values in row["steps"]:
            if kind == "config":
                found |= {key.replace("_", "."): value for key, value in values[0].items()}
    return found


def request_of(name: str) -> CleaningRequest:
    row, conf = _round(name), settings(name)
    segments = row["before"]["segments"]
    end_offset = row["checkpoint_after"]
    start = LOG_STARTS.get(name, segments[0]["base"])
    is_forgotten = name.endswith(f"/{FORGOTTEN_ROUND}")
    return CleaningRequest(
        sources=tuple(
            Source(each["base"], each["size"], each["mtime_ms"])
            for each in segments
            if each["base"] < end_offset
        ),
        dirty_offset=max(row["first_dirty"] or start, start),
        end_offset=end_offset,
        producers=() if is_forgotten else _live_producers(segments),
        aborted=tuple(AbortedTransaction(*e[1:]) for each in segments for e in each["txnindex"] or []),
        now_ms=row["cleaned_between_ms"][0],
        delete_retention_ms=int(conf["delete.retention.ms"]),
        segment_bytes=int(conf.get("segment.bytes", 1024 * MIB)),
        segment_index_bytes=int(conf.get("segment.index.bytes", 10 * MIB)),
        index_interval_bytes=int(conf.get("index.interval.bytes", 4096)),
        memory_max=MIB,
        bytes_per_second=float("inf"),
        hash_seed=SEED,
    )


def _live_producers(segments: list[Row]) -> tuple[LiveProducer, ...]:
    """As of the end of the log."""
    known: dict[int, LiveProducer] = {}
    for batch in (batch for segment in segments for batch in segment["batches"]):
        producer_id = batch["pid"]
        if producer_id < 0:
            continue
        found = known.get(producer_id)
        last = found.last_data_offset if found is not None and found.epoch == batch["pepoch"] else -1
        last = last if batch["control"] else batch["last"]
        known[producer_id] = LiveProducer(producer_id, batch["pepoch"], last)
    return tuple(known.values())


def write_sources(name: str, directory: Directory) -> None:
    for segment in _round(name)["before"]["segments"]:
        file = directory.open(file_name(segment["base"], LOG_SUFFIX))
        file.append(b64decode(segment["raw"]) if "raw" in segment else _built(segment))
        file.close()


def _built(segment: Row) -> bytes:
    """A segment too large to be kept: its batches are plain ones, of values of which the length is kept."""
    batches = [
        build_batch(
            [
                (key.encode(), b"v" * int(value.strip("<>")), (), time)
                for _, time, key, value in row["records"]
            ],
            base_offset=row["base"],
            leader_epoch=row["epoch"],
        )
        for row in segment["batches"]
    ]
    made = b"".join(batches)
    assert len(made) == segment["size"]
    return made


class Output(NamedTuple):
    """A new segment, as it was read from its files."""

    base: int
    batches: list[tuple[BatchHeader, bytes]]
    offset_index: list[list[int]]
    timeindex: list[list[int]]
    txnindex: list[AbortedTransaction]


def read_outputs(directory: Directory, result: CleaningResult) -> list[Output]:
    return [_read_output(directory, segment.base_offset) for segment in result.segments]


def _read_output(directory: Directory, base: int) -> Output:
    def content(suffix: str) -> bytes:
        return directory.read_whole(file_name(base, suffix) + CLEANED_SUFFIX) or b""

    return Output(
        base,
        split(content(LOG_SUFFIX)),
        [list(entry) for entry in OFFSET_ENTRY.iter_unpack(content(INDEX_SUFFIX))],
        [list(entry) for entry in TIME_ENTRY.iter_unpack(content(TIME_INDEX_SUFFIX))],
        decode_aborted(content(TRANSACTION_INDEX_SUFFIX), base),
    )


def difference(name: str, key_map: type[KeyMap] = PlainKeyMap) -> str | None:
    """What a round leaves that Kafka's did not, or the reverse."""
    with TemporaryDirectory() as folder:
        directory = DiskDirectory(folder)
        write_sources(name, directory)
        result = clean(directory, request_of(name), key_map=key_map)
        outputs = read_outputs(directory, result)
    return compare(name, outputs)


def compare(name: str, outputs: list[Output]) -> str | None:
    row = _round(name)
    wanted = [each for each in row["after"]["segments"] if each["base"] < row["checkpoint_after"]]
    if [output.base for output in outputs] != [each["base"] for each in wanted]:
        return f"segments {[output.base for output in outputs]}, Kafka's {[each['base'] for each in wanted]}"
    latest_epoch = -2
    for output, each in zip(outputs, wanted, strict=True):
        batches, latest_epoch = _without_additions(output, each, latest_epoch)
        found = [header.base_offset for header, _ in batches]
        if found != [batch["base"] for batch in each["batches"]]:
            return f"batches {found}, Kafka's {[batch['base'] for batch in each['batches']]}"
        for (header, data), batch in zip(batches, each["batches"], strict=True):
            if problem := _compare_batch(header, data, batch, row["cleaned_between_ms"]):
                return f"batch {header.base_offset}: {problem}"
        aborted = [list(entry[1:]) for entry in each["txnindex"] or []]
        if [list(entry) for entry in output.txnindex] != aborted:
            return f"aborted {output.txnindex}, Kafka's {aborted}"
        if len(batches) == len(output.batches) and output.timeindex != each["timeindex"]:
            return f"timeindex {output.timeindex}, Kafka's {each['timeindex']}"
        if len(batches) == len(output.batches) and output.offset_index != each["index"]:
            return f"index {output.offset_index}, Kafka's {each['index']}"
    return None


def _without_additions(
    output: Output, wanted: Row, latest_epoch: int
) -> tuple[list[tuple[BatchHeader, bytes]], int]:
    """Less the empty batches that Kafka does not keep: an epoch's first and a segment's last."""
    kafkas = {batch["base"] for batch in wanted["batches"]}
    batches = []
    for place, (header, data) in enumerate(output.batches):
        is_added = header.record_count == 0 and header.base_offset not in kafkas
        may_be = header.leader_epoch > latest_epoch or place == len(output.batches) - 1
        latest_epoch = max(latest_epoch, header.leader_epoch)
        if not (is_added and may_be):
            batches.append((header, data))
    return batches, latest_epoch


def _compare_batch(header: BatchHeader, data: bytes, wanted: Row, between_ms: list[int]) -> str | None:
    found: Row = {
        "last": header.last_offset,
        "count": header.record_count,
        "codec": header.codec,
        "attributes": header.attributes,
        "max_timestamp": header.max_timestamp,
        "pid": header.producer_id,
        "pepoch": header.producer_epoch,
        "seq": header.base_sequence,
        "epoch": header.leader_epoch,
        "records": [_shown(record, header, data) for record in read_records(data)],
    }
    for field, value in found.items():
        if value != wanted[field]:
            return f"{field} {value}, Kafka's {wanted[field]}"
    late_ms = wanted["base_timestamp"] - header.base_timestamp
    first, last = between_ms
    if wanted["horizon"] and not 0 <= late_ms <= last - first + 50:
        return f"horizon {header.base_timestamp}, Kafka's {wanted['base_timestamp']}"
    if not wanted["count"] and late_ms:
        return f"base timestamp {header.base_timestamp}, Kafka's {wanted['base_timestamp']}"
    return None


def _shown(record: Record, header: BatchHeader, data: bytes) -> list[Any]:
    if header.is_control:
        marker = read_marker(data)
        assert marker is not None
        return [record.offset, record.timestamp, "marker", marker[0].name.lower()]
    key = None if record.key is None else record.key.decode()
    value = None if record.value is None else record.value.decode()
    if value is not None and len(value) >= 40:
        value = f"<{len(value)}>"
    return [record.offset, record.timestamp, key, value]


if __name__ == "__main__":
    for wrong in filter(None, map(difference, sys.argv[1:])):
        print(wrong)
        sys.exit(FOUND)
