"""A journal with open transactions, written anew at any moment: a seeded walk beside a replay of the log.

**Invariant:** whatever the order of commits, markers, rewriting and cuts of the front, a machine that loads
the log is the machine that serves.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.log.making import NOW_MS
from tests.replication.test_journal import Memory, load, put
from tests.replication.test_partition import flush, led
from tidelog.base.decision import Entry, Writer
from tidelog.log.markers import NEW_PROTOCOL, End
from tidelog.protocol.records import Marker
from tidelog.replication import journal as room
from tidelog.replication.journal import Journal
from tidelog.replication.partition import Partition

WALKS, STEPS = 60, 120
KEYS = [b"a", b"b", b"c", b"d"]
PRODUCERS = range(1, 4)


class Walk:
    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.partition = led(folder)
        self.journal, self.memory = load(self.partition)
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.trim_count = self.value = 0

    def step(self) -> None:
        steps = [self.put, self.put_in_transaction, self.end, self.end, self.rewrite, self.trim]
        self.random.choice(steps)()

    def _entries(self, may_delete: bool) -> list[Entry]:
        keys = self.random.sample(KEYS, self.random.randint(1, 2))
        self.value += 1
        is_deleted = may_delete and self.random.random() < 0.2
        return [Entry(key, None if is_deleted else b"%d" % self.value) for key in keys]

    def put(self) -> None:
        entries = self._entries(may_delete=True)
        self.journal.take(entries)
        self.journal.write(entries, NOW_MS)

    def put_in_transaction(self) -> None:
        producer_id = self.random.choice(PRODUCERS)
        writer = Writer(producer_id, self.epochs[producer_id])
        entries = self._entries(may_delete=False)
        self.journal.take(entries, writer)
        self.journal.write(entries, NOW_MS, writer)

    def end(self) -> None:
        producer_id = self.random.choice(PRODUCERS)
        self.epochs[producer_id] += 1
        marker = self.random.choice(list(Marker))
        end = End(producer_id, self.epochs[producer_id], marker, 0, NEW_PROTOCOL)
        self.journal.append_markers([end] * self.random.randint(1, 2), NOW_MS)

    def rewrite(self) -> None:
        if self.journal.is_being_written_anew or self.journal.is_long:
            self.journal.write_anew(NOW_MS)

    def trim(self) -> None:
        if self.partition.is_flush_wanted:
            flush(self.partition)
        start_offset = self.journal.take_start()
        if start_offset is not None:
            self.trim_count += 1
            self.partition.trim(start_offset)

    def check(self) -> None:
        loaded = load(self.partition)[1]
        assert loaded.values == self.memory.values
        assert _pending(loaded) == _pending(self.memory)


def _pending(memory: Memory) -> dict[int, dict[bytes, bytes | None]]:
    return {
        producer_id: {key: entry.value for key, (_, entry) in own.items()}
        for producer_id, own in memory.pending._by_producer.items()
        if own
    }


def test_a_walk_with_transactions_and_rewriting_is_what_a_replay_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "JOURNAL_RECORDS_KEPT", 4)
    monkeypatch.setattr(room, "JOURNAL_GROWTH_MAX", 1)
    monkeypatch.setattr(room, "JOURNAL_SLICE_SIZE", 1)
    trim_count = 0
    for seed in range(WALKS):
        walk = Walk(tmp_path / str(seed), seed)
        for step in range(STEPS):
            walk.step()
            try:
                walk.check()
            except AssertionError:
                print(f"seed {seed}, step {step}")
                raise
        trim_count += walk.trim_count
    assert trim_count > WALKS, "logs must have been cut short for this to say anything"


# What each rule prevents.


def in_transaction(journal: Journal, producer_id: int, **values: bytes | None) -> None:
    entries = [Entry(key.encode(), value) for key, value in values.items()]
    writer = Writer(producer_id, 0)
    journal.take(entries, writer)
    journal.write(entries, NOW_MS, writer)


def end(journal: Journal, producer_id: int, marker: Marker = Marker.COMMIT) -> None:
    journal.append_markers([End(producer_id, 1, marker, 0, NEW_PROTOCOL)], NOW_MS)


def check(partition: Partition, memory: Memory, **values: bytes) -> None:
    """Of the machine that serves and of one that loads."""
    wanted = {key.encode(): value for key, value in values.items()}
    assert (memory.values, load(partition)[1].values) == (wanted, wanted)


def test_an_entry_counts_from_its_marker_on(tmp_path: Path) -> None:
    partition = led(tmp_path)
    journal, memory = load(partition)
    put(journal, a=b"1")
    in_transaction(journal, 1, a=b"2")
    in_transaction(journal, 2, a=b"3")
    check(partition, memory, a=b"1")
    end(journal, 2, Marker.ABORT)
    check(partition, memory, a=b"1")
    end(journal, 1)
    check(partition, memory, a=b"2")


def test_the_last_in_the_log_counts_whatever_the_order_of_the_markers(tmp_path: Path) -> None:
    partition = led(tmp_path)
    journal, memory = load(partition)
    in_transaction(journal, 1, a=b"1", b=b"1")
    in_transaction(journal, 2, a=b"2")
    put(journal, b=b"3")
    end(journal, 2)
    end(journal, 1)
    check(partition, memory, a=b"2", b=b"3")


def test_a_key_with_a_pending_entry_is_written_anew_in_the_turn_of_its_marker(tmp_path: Path) -> None:
    """Its value would stand behind the entry, and win over it after a restart."""
    partition = led(tmp_path)
    journal, memory = load(partition)
    put(journal, a=b"47", b=b"1")
    in_transaction(journal, 1, a=b"53")
    journal.write_anew(NOW_MS)
    end(journal, 1)
    check(partition, memory, a=b"53", b=b"1")
    flush(partition)
    start_offset = journal.take_start()
    assert start_offset is not None
    partition.trim(start_offset)
    check(partition, memory, a=b"53", b=b"1")


def test_a_key_that_becomes_pending_while_the_rest_is_written_anew_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "JOURNAL_SLICE_SIZE", 1)
    partition = led(tmp_path)
    journal, memory = load(partition)
    put(journal, a=b"1", b=b"47")
    journal.write_anew(NOW_MS)
    in_transaction(journal, 1, b=b"53")
    while journal.is_being_written_anew:
        journal.write_anew(NOW_MS)
    end(journal, 1)
    check(partition, memory, a=b"1", b=b"53")


def test_a_key_that_had_no_value_when_rewriting_began_is_not_trimmed_away(tmp_path: Path) -> None:
    partition = led(tmp_path)
    journal, memory = load(partition)
    put(journal, b=b"1")
    in_transaction(journal, 1, a=b"53")
    journal.write_anew(NOW_MS)
    if partition.is_flush_wanted:
        flush(partition)
    assert journal.take_start() is None, "something is owed"
    end(journal, 1)
    flush(partition)
    start_offset = journal.take_start()
    assert start_offset is not None
    partition.trim(start_offset)
    check(partition, memory, a=b"53", b=b"1")
