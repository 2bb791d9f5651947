"""Folders of topics: what is listed, what is refused, what happens when files change while they are read."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from shutil import rmtree
from unittest.mock import patch

import pytest

from tests.log.making import append, append_marker, make_batch, open_new
from tests.spark.batches import thinned
from tests.spark.segment_rows import edges, offset_at, offsets, read_folder, read_whole, rows_of
from tidelog.base.compiled import Bytes
from tidelog.client.cluster import TopicFacts
from tidelog.client.errors import DamagedBatch, OffsetOutOfRange, TopicGone, TopicPartition
from tidelog.client.reader import RawBatches
from tidelog.log.log import Log
from tidelog.protocol.batch import read_header
from tidelog.protocol.records import Marker, build_batch
from tidelog.spark import segment_file, transaction_books
from tidelog.spark.options import OptionError
from tidelog.spark.segments import LogFolders

PLACE = TopicPartition("clicks", 0)
TOPIC_ID = bytes(range(16))


def make_folder(path: Path, name: str, topic_id: bytes | None = None) -> Path:
    folder = path / name
    folder.mkdir(parents=True)
    if topic_id is not None:
        text = urlsafe_b64encode(topic_id).decode().rstrip("=")
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {text}")
    return folder


def new_log(path: Path, **settings: int) -> Log:
    return open_new(make_folder(path, str(PLACE)), **settings)


def filled(path: Path, batches: int = 40) -> Log:
    """A log with several segments of two batches each, of 5 records."""
    log = new_log(path, segment_bytes=1_024, index_interval_bytes=1)
    for _ in range(batches):
        append(log, make_batch(5, value=b"v" * 60))
    assert len(log.segments) > 3
    return log


def write_checkpoint(path: Path, name: str, *entries: str) -> None:
    (path / name).write_text("".join(f"{line}\n" for line in ("0", len(entries), *entries)))


def test_topics_are_the_folders_that_kafka_would_serve(tmp_path: Path) -> None:
    for name in ("clicks-1", "clicks-10", "clicks-2", "page-views.v2-0", "__consumer_offsets-49"):
        make_folder(tmp_path, name, TOPIC_ID)
    for name in (
        "clicks-0.f83b1e10b3e04c0f8f8f8f8f8f8f8f8f-delete",
        "clicks-3.f83b1e10b3e04c0f8f8f8f8f8f8f8f8f-future",
        "clicks-4-stray",
        "clicks",
        "clicks-",
        "-5",
        "clicks-01",
        "..-1",
        "no topic-0",
    ):
        make_folder(tmp_path, name)
    (tmp_path / "clicks-5").write_text("a file")
    found = LogFolders([str(tmp_path)]).describe(None)
    assert found == {
        "__consumer_offsets": TopicFacts("__consumer_offsets", TOPIC_ID, (49,)),
        "clicks": TopicFacts("clicks", TOPIC_ID, (1, 2, 10)),
        "page-views.v2": TopicFacts("page-views.v2", TOPIC_ID, (0,)),
    }


def test_only_topics_that_are_asked_for_are_told(tmp_path: Path) -> None:
    for name in ("a-0", "b-0"):
        make_folder(tmp_path, name)
    folders = LogFolders([str(tmp_path)])
    assert list(folders.describe(["b", "c"])) == ["b"]
    assert folders.describe([]) == {}


@pytest.mark.parametrize("content", [None, b"version: 0\ntopic_id: short"])
def test_a_topic_without_a_known_id_has_none(tmp_path: Path, content: bytes | None) -> None:
    folder = make_folder(tmp_path, str(PLACE))
    if content is not None:
        (folder / "partition.metadata").write_bytes(content)
    assert LogFolders([str(tmp_path)]).describe(None)["clicks"].id == bytes(16)


def test_partitions_of_a_topic_may_lie_in_several_directories(tmp_path: Path) -> None:
    for index in range(3):
        log = open_new(make_folder(tmp_path / f"disk{index}", f"clicks-{2 - index}", TOPIC_ID))
        append(log, make_batch(index + 1))
    folders = LogFolders([str(tmp_path / f"disk{index}") for index in range(3)])
    assert folders.describe(["clicks"])["clicks"] == TopicFacts("clicks", TOPIC_ID, (0, 1, 2))
    assert [edges(folders, TopicPartition("clicks", index)) for index in range(3)] == [(0, 3), (0, 2), (0, 1)]


def test_a_partition_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    twice = [make_folder(tmp_path / name, str(PLACE)) for name in ("one", "two")]
    with pytest.raises(OptionError) as refused:
        LogFolders([str(folder.parent) for folder in twice]).describe(["clicks"])
    assert all(word in str(refused.value) for word in ("logDirs", "clicks-0", *map(str, twice)))


def test_folders_of_two_topics_of_one_name_are_refused(tmp_path: Path) -> None:
    both = [make_folder(tmp_path, f"clicks-{index}", bytes([index + 1]) * 16) for index in range(2)]
    with pytest.raises(OptionError) as refused:
        LogFolders([str(tmp_path)]).describe(["clicks"])
    assert all(word in str(refused.value) for word in ("logDirs", *map(str, both)))
    make_folder(tmp_path, "views-0")
    assert list(LogFolders([str(tmp_path)]).describe(["views"])) == ["views"]


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "nothing", tmp_path / "file"):
        with pytest.raises(OptionError, match=f"logDirs: {path} cannot be listed: N"):
            LogFolders([str(path)]).describe(None)


def test_a_partition_without_a_folder_is_gone(tmp_path: Path) -> None:
    make_folder(tmp_path, "clicks-1")
    folders = LogFolders([str(tmp_path)])
    with pytest.raises(TopicGone, match=f"clicks-0: .*{tmp_path}"):
        edges(folders, PLACE)
    with pytest.raises(TopicGone, match="clicks-0"):
        list(folders.read(PLACE, 0, 1))


def test_a_folder_without_segments_is_an_empty_log(tmp_path: Path) -> None:
    make_folder(tmp_path, str(PLACE))
    folders = LogFolders([str(tmp_path)])
    assert edges(folders, PLACE, committed_only=True) == (0, 0)
    assert offset_at(folders, PLACE, 0).offset == -1
    with pytest.raises(OffsetOutOfRange):
        list(folders.read(PLACE, 0, 1))


def test_records_that_were_deleted_are_not_there(tmp_path: Path) -> None:
    filled(tmp_path)
    write_checkpoint(tmp_path, "log-start-offset-checkpoint", "views 0 150", "clicks 0 33", "clicks 1 44")
    assert edges(LogFolders([str(tmp_path)]), PLACE) == (33, 200)
    assert offset_at(LogFolders([str(tmp_path)]), PLACE, 0).offset == 33
    assert offsets(read_folder(tmp_path, PLACE, 33, 200)) == list(range(33, 200))
    with pytest.raises(OffsetOutOfRange) as below:
        read_folder(tmp_path, PLACE, 32, 200)
    assert below.value.args[1:] == (32, 33, 200)


def test_a_log_whose_records_were_all_deleted_is_empty_there(tmp_path: Path) -> None:
    filled(tmp_path)
    write_checkpoint(tmp_path, "log-start-offset-checkpoint", "clicks 0 1000")
    assert edges(LogFolders([str(tmp_path)]), PLACE, committed_only=True) == (1_000, 1_000)


def test_a_checkpoint_that_is_not_whole_says_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nclicks 0 33")
    assert edges(LogFolders([str(tmp_path)]), PLACE) == (0, 200)


def test_the_high_watermark_of_a_clean_stop_is_kept_to(tmp_path: Path) -> None:
    log = filled(tmp_path)
    append(log, make_batch(1, producer_id=1, transactional=True))  # 200
    append_marker(log, Marker.COMMIT, 1)
    write_checkpoint(tmp_path, "replication-offset-checkpoint", "clicks 0 201")
    folders = LogFolders([str(tmp_path)])
    assert edges(folders, PLACE) == (0, 202)
    assert edges(folders, PLACE, committed_only=True) == (0, 202)
    (tmp_path / ".kafka_cleanshutdown").write_text("{}")
    assert edges(folders, PLACE) == (0, 201)
    assert edges(folders, PLACE, committed_only=True) == (0, 200)  # its marker may yet be another
    write_checkpoint(tmp_path, "replication-offset-checkpoint", "clicks 0 900")
    assert edges(folders, PLACE) == (0, 202)


def test_offsets_that_the_log_does_not_have_are_out_of_range(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.advance_start(100)
    log.remove_segments(2)
    first = log.bases[0]
    assert first > 0
    for start, end, missing in ((0, 10, 0), (first - 1, 200, first - 1), (200, 201, 200), (300, 301, 300)):
        with pytest.raises(OffsetOutOfRange) as refused:
            read_folder(tmp_path, PLACE, start, end)
        assert refused.value.args[1:] == (missing, first, 200)
        assert f"clicks-0: offset {missing} " in str(refused.value)
    assert read_folder(tmp_path, PLACE, 0, 0) == []


def test_a_range_beyond_the_end_gives_what_there_is_and_then_says_so(tmp_path: Path) -> None:
    filled(tmp_path)
    pieces = LogFolders([str(tmp_path)]).read(PLACE, 190, 250)
    got, missing = until_error(pieces)
    assert offsets(rows_of(got, PLACE, 190, 250, committed_only=False)) == list(range(190, 200))
    assert isinstance(missing, OffsetOutOfRange) and missing.args[1:] == (200, 0, 200)


def until_error(pieces: Iterator[RawBatches]) -> tuple[list[RawBatches], Exception | None]:
    got = []
    try:
        for piece in pieces:
            got.append(piece)
    except (OffsetOutOfRange, TopicGone, DamagedBatch) as problem:
        return got, problem
    return got, None


def test_pieces_are_whole_batches_of_the_size_that_was_asked(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(1_000):
        append(log, make_batch(3))
    with patch.object(segment_file, "SPARK_PIECE_SIZE", 5_000):
        pieces = list(LogFolders([str(tmp_path)]).read(PLACE, 10, 2_990))
    assert max(piece.end for piece in pieces) <= 5_000 and len(pieces) > 30
    assert [piece.next_offset for piece in pieces] == sorted({piece.next_offset for piece in pieces})
    for before, piece in pairwise(pieces):
        assert read_header(piece.data, piece.start).base_offset == before.next_offset
    assert offsets(rows_of(pieces, PLACE, 10, 2_990, committed_only=False)) == list(range(10, 2_990))


def test_no_more_is_read_than_a_small_range_needs(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(1_000):
        append(log, make_batch(10))
    log.close(clean=True)
    (piece,) = LogFolders([str(tmp_path)]).read(PLACE, 4_000, 4_020)
    assert len(piece.data) < 20_000 < log.size


def test_gaps_of_compaction_are_passed(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, str(PLACE))
    plain = [(b"k", b"v", (), 1_000 + number) for number in range(5)]
    kept = [0, 3, 4, 10, 12]  # of 20 offsets; the last batch of the first segment is gone altogether
    first = thinned(build_batch(plain, base_offset=0), [0, 3, 4])
    second = thinned(build_batch(plain, base_offset=10), [0, 2])
    bare = thinned(build_batch(plain, base_offset=15), [])
    (folder / f"{0:020d}.log").write_bytes(first + second)
    (folder / f"{17:020d}.log").write_bytes(b"")
    assert edges(LogFolders([str(tmp_path)]), PLACE, committed_only=True) == (0, 17)
    assert offsets(read_whole(tmp_path, PLACE)) == kept
    (folder / f"{17:020d}.log").unlink()
    (folder / f"{15:020d}.log").write_bytes(bare)
    assert edges(LogFolders([str(tmp_path)]), PLACE) == (0, 20)
    assert offsets(read_whole(tmp_path, PLACE)) == kept
    assert offsets(read_folder(tmp_path, PLACE, 5, 12)) == [10]
    assert read_folder(tmp_path, PLACE, 5, 9) == [] == read_folder(tmp_path, PLACE, 16, 20)


def test_a_hole_in_the_middle_of_a_copy_is_an_error(tmp_path: Path) -> None:
    log = filled(tmp_path)
    cut = tmp_path / str(PLACE) / f"{log.bases[1]:020d}.log"
    cut.write_bytes(cut.read_bytes()[:-1])
    got, problem = until_error(LogFolders([str(tmp_path)]).read(PLACE, 0, 200))
    assert isinstance(problem, DamagedBatch)
    read = offsets(rows_of(got, PLACE, 0, 200, committed_only=False))
    assert read == list(range(log.bases[2] - 5))
    assert f"clicks-0: {cut} has no whole batch at offset {log.bases[2] - 5}," in str(problem)


def test_segments_that_age_out_while_they_are_read_are_told(tmp_path: Path) -> None:
    log = filled(tmp_path)
    pieces = LogFolders([str(tmp_path)]).read(PLACE, 0, 200)
    got = [next(pieces)]
    for base in log.bases[:3]:
        (tmp_path / str(PLACE) / f"{base:020d}.log").unlink()
    rest, problem = until_error(pieces)
    read = offsets(rows_of(got + rest, PLACE, 0, 200, committed_only=False))
    assert read == list(range(log.bases[1]))
    assert isinstance(problem, OffsetOutOfRange)
    assert problem.args[1:] == (log.bases[1], log.bases[3], 200)


def test_a_file_that_goes_away_before_it_is_opened_is_looked_for_again(tmp_path: Path) -> None:
    log = filled(tmp_path)
    folder = tmp_path / str(PLACE)
    names = [f"{base:020d}.log" for base in log.bases]
    opened: list[str] = []

    class Vanishing(segment_file.SegmentFile):
        def __init__(self, folder: Path, name: str) -> None:
            opened.append(name)
            if name == names[1]:
                (folder / name).rename(folder / f"{name}.swap")  # and compaction puts its own in place
            super().__init__(folder, name)

    with patch("tidelog.spark.partition_log.SegmentFile", Vanishing):
        assert offsets(read_folder(tmp_path, PLACE, 0, 200)) == list(range(200))
    assert opened[:4] == [names[0], names[1], f"{names[1]}.swap", names[2]]
    assert (folder / f"{names[1]}.swap").exists()


def test_a_folder_that_goes_away_while_it_is_read_is_gone(tmp_path: Path) -> None:
    filled(tmp_path)
    pieces = LogFolders([str(tmp_path)]).read(PLACE, 0, 200)
    next(pieces)
    rmtree(tmp_path / str(PLACE))
    _, problem = until_error(pieces)
    assert isinstance(problem, TopicGone)


@pytest.mark.parametrize("left", [0, 61, 500])
def test_a_file_that_shrinks_while_it_is_read_ends_there(tmp_path: Path, left: int) -> None:
    log = new_log(tmp_path)
    for _ in range(200):
        append(log, make_batch(1))
    with patch.object(segment_file, "SPARK_PIECE_SIZE", 1_000):
        pieces = LogFolders([str(tmp_path)]).read(PLACE, 0, 200)
        got = [next(pieces)]
        log.segments[0].file.truncate(left)
        rest, problem = until_error(pieces)
    read = offsets(rows_of(got + rest, PLACE, 0, 200, committed_only=False))
    assert read == list(range(len(read))) and len(read) < 20
    assert isinstance(problem, OffsetOutOfRange) and problem.log_end_offset < 10


def test_records_that_are_appended_and_rolled_while_they_are_read_are_found(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=1_024)
    append(log, make_batch(1))
    pieces = LogFolders([str(tmp_path)]).read(PLACE, 0, 100)
    got = [next(pieces)]
    for _ in range(99):
        append(log, make_batch(1))
    rest, problem = until_error(pieces)
    assert problem is None
    assert offsets(rows_of(got + rest, PLACE, 0, 100, committed_only=False)) == list(range(100))


def test_a_time_index_that_lacks_its_last_entries_hides_nothing(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=1_024, index_interval_bytes=1)
    for time in range(1_000, 1_040):
        append(log, make_batch(1, timestamp=time))
    assert len(log.segments) > 3
    for base in log.bases:
        index = tmp_path / str(PLACE) / f"{base:020d}.timeindex"
        index.write_bytes(index.read_bytes()[:-24])
    found = [offset_at(LogFolders([str(tmp_path)]), PLACE, time).offset for time in range(1_000, 1_041)]
    assert found == [*range(40), -1]


def test_aborts_are_known_before_their_index_is_written(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, make_batch(2, producer_id=1, transactional=True))
    append_marker(log, Marker.ABORT, 1)
    append(log, make_batch(1))
    log.roll(0)
    append(log, make_batch(2, producer_id=1, sequence=2, transactional=True))
    append(log, make_batch(1))
    append_marker(log, Marker.ABORT, 1)
    (tmp_path / str(PLACE) / f"{log.bases[-1]:020d}.txnindex").unlink()
    assert offsets(read_whole(tmp_path, PLACE, committed_only=True)) == [3, 6]
    assert offsets(read_whole(tmp_path, PLACE)) == [0, 1, 3, 4, 5, 6]
    # A task that begins inside of the transaction is told of it as well.
    (piece,) = LogFolders([str(tmp_path)]).read(PLACE, 5, 8)
    assert piece.aborted == [(1, 4)]


def test_a_transaction_older_than_the_last_segment_holds_the_end_back(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, make_batch(1))
    append(log, make_batch(1, producer_id=1, transactional=True))
    for _ in range(3):
        log.roll(0)
        append(log, make_batch(1))
    assert edges(LogFolders([str(tmp_path)]), PLACE, committed_only=True) == (0, 1)
    for snapshot in (tmp_path / str(PLACE)).glob("*.snapshot"):
        snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"\xff")
    assert edges(LogFolders([str(tmp_path)]), PLACE, committed_only=True) == (0, 1)


@pytest.mark.parametrize("seed", range(5))
def test_a_second_look_at_a_log_that_grew_sees_what_a_first_one_sees(tmp_path: Path, seed: int) -> None:
    log, choose = new_log(tmp_path, segment_bytes=4_096), Random(seed)
    folders = LogFolders([str(tmp_path)])
    sequences = dict.fromkeys(range(1, 5), 0)
    stable = set()
    for _ in range(150):
        producer = choose.choice(list(sequences))
        match choose.choice(["plain", "transaction", "transaction", "end", "end", "roll"]):
            case "plain":
                append(log, make_batch(2))
            case "transaction":
                sequence = sequences[producer]
                append(log, make_batch(1, producer_id=producer, sequence=sequence, transactional=True))
                sequences[producer] += 1
            case "end" if sequences[producer]:
                append_marker(log, choose.choice([Marker.ABORT, Marker.COMMIT]), producer)
            case "roll" if log.end_offset > log.bases[-1]:
                log.roll(0)
        seen = edges(folders, PLACE, committed_only=True)
        assert seen == edges(LogFolders([str(tmp_path)]), PLACE, committed_only=True)
        stable.add(seen[1])
    assert len(stable) > 4


def test_a_second_look_for_transactions_walks_only_what_was_appended(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(300):
        append(log, make_batch(1, value=b"v" * 5_000))
    folders = LogFolders([str(tmp_path)])
    sizes: list[int] = []

    def counted(data: bytes) -> Bytes:
        sizes[-1] += len(data)
        return segment_file.as_view(data)

    with patch.object(transaction_books, "as_view", counted):
        for end in (300, 301, 302):
            sizes.append(0)
            assert edges(folders, PLACE, committed_only=True) == (0, end)
            append(log, make_batch(1))
    assert sizes[0] > 1_000_000
    assert 0 < max(sizes[1:]) < 1_000


def test_a_log_that_was_cut_and_went_on_differently_is_looked_at_anew(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, make_batch(1))
    size = log.size
    append(log, make_batch(1, producer_id=1, transactional=True))
    folders = LogFolders([str(tmp_path)])
    assert edges(folders, PLACE, committed_only=True) == (0, 1)
    log.close(clean=False)
    path = tmp_path / str(PLACE) / f"{0:020d}.log"
    instead = build_batch([(b"k", b"v" * 100, (), 1_000)] * 3, base_offset=1)
    path.write_bytes(path.read_bytes()[:size] + instead)
    assert edges(folders, PLACE, committed_only=True) == (0, 4)
    path.write_bytes(path.read_bytes()[:size])
    assert edges(folders, PLACE, committed_only=True) == (0, 1)
