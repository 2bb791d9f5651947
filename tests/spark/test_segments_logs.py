"""Any log that the log engine writes, read from its files: held against what was put into it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.making import NOW_MS, append, append_marker, flush, make_batch, open_new
from tests.spark.segment_rows import edges, offset_at, offsets, read_folder
from tidelog.client.errors import TopicPartition
from tidelog.log.log import Log
from tidelog.protocol.records import Marker
from tidelog.spark import segment_file, transaction_books
from tidelog.spark.segments import LogFolders

PLACE = TopicPartition("clicks", 0)
PRODUCERS = st.integers(1, 3)
COUNTS = st.integers(1, 4)
TIMES = st.integers(0, 40)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), COUNTS, TIMES, st.integers(0, 4)),
        st.tuples(st.just("transactional"), COUNTS, TIMES, PRODUCERS),
        st.tuples(st.sampled_from(["abort", "commit"]), PRODUCERS),
        st.tuples(st.just("roll")),
    ),
    max_size=40,
)
INDEXES = (".index", ".timeindex", ".txnindex", ".snapshot")


class Put(NamedTuple):
    """A record that was put into the log."""

    offset: int
    timestamp: int
    producer_id: int


class Story:
    """A log, and what must be in it."""

    def __init__(self, folder: Path) -> None:
        self.log: Log = open_new(folder, index_interval_bytes=1, segment_bytes=1_024)
        self.records: list[Put] = []
        self.markers: list[Put] = []
        self.open: dict[int, int] = {}  # producer to first offset
        self.hidden: set[int] = set()  # offsets of aborted records
        self.sequences: dict[int, int] = {}

    def tell(self, step: tuple[object, ...]) -> None:
        kind, numbers = step[0], [int(str(each)) for each in step[1:]]
        if kind == "roll":
            self.log.roll(NOW_MS)
        elif kind in ("abort", "commit"):
            self._end(numbers[0], kind == "abort")
        else:
            count, time, last = numbers
            self._put(count, time, *((last, -1) if kind == "plain" else (0, last)))

    def _put(self, count: int, time: int, codec: int, producer_id: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        batch = make_batch(
            count,
            timestamp=NOW_MS + time,
            codec=codec,
            producer_id=producer_id,
            sequence=sequence,
            transactional=producer_id >= 0,
        )
        first = append(self.log, batch).base_offset
        self.records += [Put(first + each, NOW_MS + time + each, producer_id) for each in range(count)]
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + count
            self.open.setdefault(producer_id, first)

    def _end(self, producer_id: int, is_abort: bool) -> None:
        marker = Marker.ABORT if is_abort else Marker.COMMIT
        at = append_marker(self.log, marker, producer_id).end_offset - 1
        self.markers.append(Put(at, NOW_MS, producer_id))
        first = self.open.pop(producer_id, None)
        if first is not None and is_abort:
            mine = (each.offset for each in self.records if each.producer_id == producer_id)
            self.hidden.update(offset for offset in mine if offset >= first)

    @property
    def last_stable_offset(self) -> int:
        return min([self.log.end_offset, *self.open.values()])

    def first_since(self, timestamp: int, end: int) -> int:
        both = sorted(self.records + self.markers)
        return next((each.offset for each in both if each.timestamp >= timestamp and each.offset < end), -1)


@contextmanager
def story(steps: list[tuple[object, ...]]) -> Iterator[tuple[Path, Story]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / str(PLACE)
        folder.mkdir()
        told = Story(folder)
        for step in steps:
            told.tell(step)
        yield Path(name), told
        told.log.abandon()


def check(path: Path, told: Story, start: int, end: int) -> None:
    """All answers of the reader are those of the story."""
    folders = LogFolders([str(path)])
    log_end, stable = told.log.end_offset, told.last_stable_offset
    assert edges(folders, PLACE) == (0, log_end)
    assert edges(folders, PLACE, committed_only=True) == (0, stable)
    start, end = min(start, log_end), min(end, log_end)
    seen = [each.offset for each in told.records if start <= each.offset < end]
    assert offsets(read_folder(path, PLACE, start, end)) == seen
    end = min(end, stable)
    committed = [each for each in seen if each < end and each not in told.hidden]
    assert offsets(read_folder(path, PLACE, start, end, committed_only=True)) == committed
    for time in range(NOW_MS - 1, NOW_MS + 45, 5):
        assert offset_at(folders, PLACE, time).offset == told.first_since(time, log_end)
        assert offset_at(folders, PLACE, time, committed_only=True).offset == told.first_since(time, stable)


@contextmanager
def small_pieces(size: int) -> Iterator[None]:
    with (
        patch.object(segment_file, "SPARK_PIECE_SIZE", size),
        patch.object(segment_file, "SPARK_WALKED_SIZE", size),
        patch.object(transaction_books, "SPARK_WALKED_SIZE", size),
        patch.object(transaction_books, "_ROWS", 1),
    ):
        yield


@given(
    steps=STEPS,
    start=st.integers(0, 60),
    length=st.integers(0, 120),
    size=st.sampled_from([79, 300, 1 << 20]),
)
@settings(max_examples=150, deadline=None)
def test_any_log_gives_what_was_put_into_it(
    steps: list[tuple[object, ...]], start: int, length: int, size: int
) -> None:
    with story(steps) as (path, told), small_pieces(size):
        check(path, told, start, start + length)
        flush(told.log)
        told.log.close(clean=True)
        check(path, told, start, start + length)


@given(steps=STEPS, data=st.data())
@settings(max_examples=150, deadline=None)
def test_lost_and_damaged_indexes_change_nothing(
    steps: list[tuple[object, ...]], data: st.DataObject
) -> None:
    with story(steps) as (path, told):
        told.log.close(clean=True)
        for file in sorted((path / str(PLACE)).iterdir()):
            if file.suffix in INDEXES and data.draw(st.booleans()):
                damage(file, told, data)
        check(path, told, data.draw(st.integers(0, 60)), 1_000)


def damage(file: Path, told: Story, data: st.DataObject) -> None:
    """What a crash, a copy or a disk may do to a file that can be made from the log."""
    content = bytearray(file.read_bytes())
    if file.suffix == ".txnindex":
        # Whole entries that are missing are seen in the last segment alone, and damage by its version.
        if int(file.stem) == told.log.bases[-1]:
            file.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        else:
            file.write_bytes(b"\xff" + content)
        return
    how = data.draw(st.sampled_from(["gone", "zeros", "noise", "cut"]))
    if how == "gone":
        file.unlink()
    elif how == "zeros":
        file.write_bytes(content + bytes(480))
    elif how == "cut":
        file.write_bytes(content[:-1])
    elif content:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        file.write_bytes(content)


@given(steps=STEPS.filter(bool), data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_torn_or_damaged_last_batch_is_not_there(
    steps: list[tuple[object, ...]], data: st.DataObject
) -> None:
    with story(steps) as (path, told):
        told.log.close(clean=True)
        before = told.log.end_offset
        file = path / str(PLACE) / f"{told.log.bases[-1]:020d}.log"
        torn = make_batch(3)
        torn[0:8] = before.to_bytes(8, "big")
        if data.draw(st.booleans()):
            # The zeros behind it would make good for those that it ends with.
            torn = torn[: data.draw(st.integers(0, len(torn.rstrip(b"\0")) - 1))]
        else:
            torn[data.draw(st.integers(17, len(torn) - 1))] ^= 1
        with file.open("ab") as out:
            out.write(torn + bytes(data.draw(st.sampled_from([0, 5, 4_096]))))
        check(path, told, 0, before)


@pytest.mark.parametrize("offset", [0, 1, 57, 59, 60])
def test_a_batch_larger_than_a_piece_comes_whole(tmp_path: Path, offset: int) -> None:
    folder = tmp_path / str(PLACE)
    folder.mkdir()
    log = open_new(folder)
    append(log, make_batch(59))
    append(log, make_batch(1, value=b"x" * 900_000))
    append(log, make_batch(1))
    with small_pieces(100_000):
        rows = read_folder(tmp_path, PLACE, offset, 61)
    assert offsets(rows) == list(range(offset, 61))
    assert max(len(row["value"]) for row in rows) == (900_000 if offset < 60 else 30)


def test_segments_that_compaction_is_about_to_rename_are_read(tmp_path: Path) -> None:
    with story([("plain", 4, 0, 0)] * 30) as (path, told):
        folder = path / str(PLACE)
        told.log.close(clean=True)
        base = told.log.bases[1]
        for file in folder.glob(f"{base:020d}.*"):
            file.rename(folder / f"{file.name}.swap")
        check(path, told, 0, 1_000)
        for file in folder.glob("*.swap"):
            shutil.copy(file, file.with_suffix(""))
        check(path, told, 0, 1_000)
