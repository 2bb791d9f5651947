"""A journal with a machine that only remembers: what is appended, loaded, refused, and written anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.making import NOW_MS, append_marker, make_batch, reopen
from tests.replication.test_partition import flush, led
from tidelog.base.decision import Entry
from tidelog.base.pending import Pending
from tidelog.protocol.errors import RefusedBatch
from tidelog.protocol.records import Marker, build_batch
from tidelog.replication import journal as room
from tidelog.replication.journal import Journal
from tidelog.replication.partition import Partition


class Memory:
    """The last value of each key."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.pending = Pending()
        self.replayed_count = 0

    @property
    def record_count(self) -> int:
        return len(self.values)

    def replay(self, entry: Entry) -> None:
        self.replayed_count += 1
        if entry.value is None:
            self.values.pop(entry.key, None)
        else:
            self.values[entry.key] = entry.value

    def stored(self) -> Iterator[list[Entry]]:
        for key in list(self.values):
            yield [Entry(key, self.values[key])] if key in self.values else []

    def stored_at(self, key: bytes) -> Entry | None:
        return Entry(key, self.values[key]) if key in self.values else None


def put(journal: Journal, **values: bytes | None) -> int:
    entries = [Entry(key.encode(), value) for key, value in values.items()]
    journal.take(entries)
    return journal.write(entries, NOW_MS)


def load(partition: Partition) -> tuple[Journal, Memory]:
    memory = Memory()
    journal = Journal(partition, memory)
    while not journal.is_loaded and journal.failure is None:
        journal.load()
    return journal, memory


def test_what_is_appended_is_replayed_at_once_and_again_when_loaded(tmp_path: Path) -> None:
    partition = led(tmp_path)
    journal, memory = load(partition)
    assert put(journal, a=b"1", b=b"2") == 2
    put(journal, a=b"3", b=None, c=b"4")
    assert memory.values == {b"a": b"3", b"c": b"4"}
    assert load(partition)[1].values == memory.values


def test_loading_takes_the_last_value_of_each_key_alone(tmp_path: Path) -> None:
    partition = led(tmp_path)
    journal, _ = load(partition)
    for number in range(50):
        put(journal, a=b"%d" % number, b=None)
    _, loaded = load(partition)
    assert (loaded.values, loaded.replayed_count) == ({b"a": b"49"}, 1)


def test_a_record_that_is_too_large_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    partition = led(tmp_path, max_message_bytes=500)
    journal, memory = load(partition)
    with pytest.raises(RefusedBatch):
        put(journal, a=b"1", b=bytes(600))
    assert (memory.values, partition.log.end_offset) == ({}, 0)


def test_what_is_more_than_a_batch_should_have_is_appended_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "JOURNAL_BATCH_SIZE", 400)
    partition = led(tmp_path, max_message_bytes=500)
    journal, memory = load(partition)
    put(journal, **{f"k{number}": bytes(100) for number in range(20)})
    assert partition.counters.append_count > 1
    assert load(partition)[1].values == memory.values


def test_it_is_committed_when_it_is_on_disk_where_that_is_asked_for(tmp_path: Path) -> None:
    partition = led(tmp_path, flush_messages=1)
    journal, _ = load(partition)
    end_offset = put(journal, a=b"1")
    assert not journal.is_committed(end_offset)
    flush(partition)
    assert journal.is_committed(end_offset)


@pytest.mark.parametrize("marker", Marker)
def test_a_transaction_counts_when_it_is_committed(tmp_path: Path, marker: Marker) -> None:
    partition = led(tmp_path)
    batch = build_batch(
        [(b"a", b"1", (), NOW_MS)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    partition.append(memoryview(batch), 0, len(batch), NOW_MS)
    _, before = load(partition)
    assert (before.values, before.pending.keys()) == ({}, {b"a"})
    append_marker(partition.log, marker, 7)
    _, after = load(partition)
    assert after.values == ({b"a": b"1"} if marker is Marker.COMMIT else {})
    assert not after.pending


def begin(partition: Partition, producer_id: int, value: bytes) -> None:
    """A transaction that writes `a`, and stays open."""
    batch = build_batch(
        [(b"a", value, (), NOW_MS)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    partition.append(memoryview(batch), 0, len(batch), NOW_MS)


def test_a_transaction_does_not_take_back_what_was_written_behind_it(tmp_path: Path) -> None:
    """As Kafka, which compares the offsets of the records: two producers around a rebalance do that."""
    partition = led(tmp_path)
    journal, _ = load(partition)
    begin(partition, 7, b"100")
    put(journal, a=b"150")
    append_marker(partition.log, Marker.COMMIT, 7)
    assert load(partition)[1].values == {b"a": b"150"}
    begin(partition, 8, b"200")
    append_marker(partition.log, Marker.COMMIT, 8)
    assert load(partition)[1].values == {b"a": b"200"}


def test_of_two_transactions_the_later_write_counts_whichever_ends_first(tmp_path: Path) -> None:
    partition = led(tmp_path)
    begin(partition, 7, b"first")
    begin(partition, 8, b"second")
    append_marker(partition.log, Marker.COMMIT, 8)
    append_marker(partition.log, Marker.COMMIT, 7)
    assert load(partition)[1].values == {b"a": b"second"}


def test_a_deletion_drops_what_open_transactions_have_written(tmp_path: Path) -> None:
    """As in Kafka, where a tombstone takes pending offsets with it."""
    partition = led(tmp_path)
    journal, _ = load(partition)
    begin(partition, 7, b"kept")
    put(journal, a=b"150")
    put(journal, a=None)
    append_marker(partition.log, Marker.COMMIT, 7)
    assert load(partition)[1].values == {}


def test_a_log_that_is_no_journal_fails_with_its_place_and_is_not_served(tmp_path: Path) -> None:
    partition = led(tmp_path)
    batch = make_batch(key=None)
    partition.append(memoryview(batch), 0, len(batch), NOW_MS)
    journal, _ = load(partition)
    assert journal.failure is not None and "t-0 at offset 0" in journal.failure
    assert not journal.is_loaded


def test_written_anew_it_starts_where_that_began_and_not_before_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "JOURNAL_RECORDS_KEPT", 5)
    monkeypatch.setattr(room, "JOURNAL_SLICE_SIZE", 1)
    partition = led(tmp_path)
    journal, memory = load(partition)
    for number in range(10):
        put(journal, a=b"%d" % number, b=b"%d" % number)
    assert journal.is_long
    journal.write_anew(NOW_MS)
    put(journal, a=b"newer", c=b"new")  # while it is being written
    while journal.is_being_written_anew:
        journal.write_anew(NOW_MS)
    assert journal.take_start() is None
    flush(partition)
    assert journal.take_start() == 20
    assert journal.take_start() is None, "it is taken once"
    partition.trim(20)
    assert load(partition)[1].values == memory.values == {b"a": b"newer", b"b": b"9", b"c": b"new"}


def test_one_that_is_short_for_what_it_keeps_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "JOURNAL_RECORDS_KEPT", 5)
    journal, _ = load(led(tmp_path))
    for number in range(20):
        put(journal, **{f"k{number}": b"1"})
    assert not journal.is_long


def test_it_is_loaded_again_from_the_files(tmp_path: Path) -> None:
    partition = led(tmp_path)
    journal, memory = load(partition)
    put(journal, a=b"1")
    flush_wanted = partition.log.end_offset
    log = reopen(tmp_path / "t-0")[0]
    again = Partition("t", bytes(16), 0, log, partition.directory)
    assert log.end_offset == flush_wanted and load(again)[1].values == memory.values
