"""Transactions in a partition: what readers of committed data see, held against a model of Kafka's rules."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.batches import Row, columns_for, plain_rows, rows_of
from tidelog.protocol.batch import read_header
from tidelog.protocol.records import Marker, build_batch, build_control_batch

STEPS = st.lists(
    st.tuples(st.sampled_from([None, 5, 6, 7]), st.sampled_from(["write", "write", "commit", "abort"])),
    min_size=1,
    max_size=25,
)
CUTS = st.lists(st.integers(0, 30), max_size=4)


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # of its marker


class History(NamedTuple):
    """A log in which every transaction has ended, which of them were aborted, and what is committed."""

    log: list[bytearray]
    aborted: list[Aborted]
    committed: list[Row]


def play(steps: list[tuple[int | None, str]]) -> History:
    """Write the log that the steps describe; a producer of None is not transactional."""
    log: list[bytearray] = []
    aborted: list[Aborted] = []
    written: list[tuple[int | None, bytearray]] = []
    begun: dict[int, tuple[int, list[int]]] = {}
    dropped: set[int] = set()
    endings = [(producer, "commit") for producer in (5, 6, 7)]
    for producer, step in [*steps, *endings]:
        offset = read_header(log[-1]).last_offset + 1 if log else 0
        if step == "write":
            written.append((producer, write(producer, offset)))
            log.append(written[-1][1])
            if producer is not None:
                begun.setdefault(producer, (offset, []))[1].append(len(log) - 1)
        elif producer in begun:
            first, places = begun.pop(producer)
            marker = Marker.ABORT if step == "abort" else Marker.COMMIT
            log.append(build_control_batch(marker, producer, 0, 0, offset, base_offset=offset))
            if marker == Marker.ABORT:
                aborted.append(Aborted(producer, first, offset))
                dropped.update(places)
    return History(log, aborted, rows_of([batch for place, batch in enumerate(log) if place not in dropped]))


def write(producer: int | None, offset: int) -> bytearray:
    records = [(b"%d" % (offset + number), b"v" * number, (), 7) for number in range(offset % 3 + 1)]
    if producer is None:
        return build_batch(records, base_offset=offset)
    return build_batch(
        records,
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


@given(
    steps=STEPS, cuts=st.lists(st.integers(0, 30), max_size=4), start=st.integers(0, 20), whole=st.booleans()
)
@settings(max_examples=400, deadline=None)
def test_committed_rows_are_read_and_aborted_ones_are_not(
    steps: list[tuple[int | None, str]], cuts: list[int], start: int, whole: bool
) -> None:
    """However the log is cut into fetches, and whether each names its own aborted transactions or all."""
    history = play(steps)
    columns = columns_for(start, committed_only=True)
    pages: list[pa.RecordBatch] = []
    places = sorted({min(cut, len(history.log)) for cut in [0, *cuts, len(history.log)]})
    for first, last in pairwise(places):
        data = b"".join(history.log[first:last])
        end = read_header(history.log[last - 1]).last_offset
        wanted = [
            (entry.producer_id, entry.first_offset)
            for entry in history.aborted
            if entry.last_offset >= columns.position and (whole or entry.first_offset <= end)
        ]
        pages += columns.add(memoryview(data), 0, len(data), wanted)
    pages += columns.finish()
    expected = [row for row in history.committed if row[4] >= start]
    assert [row for page in pages for row in plain_rows(page)] == expected


@given(steps=STEPS)
@settings(max_examples=50, deadline=None)
def test_uncommitted_readers_see_all_but_the_markers(steps: list[tuple[int | None, str]]) -> None:
    history = play(steps)
    data = b"".join(history.log)
    columns = columns_for()
    aborted = [(entry.producer_id, entry.first_offset) for entry in history.aborted]
    pages = [*columns.add(memoryview(data), 0, len(data), aborted), *columns.finish()]
    assert [row for page in pages for row in plain_rows(page)] == rows_of(history.log)
    assert columns.next_offset == (read_header(history.log[-1]).last_offset + 1 if history.log else 0)
