"""Partition folders change house: Kafka's is served by Tidelog, ours by Kafka.

Topics live in each broker's own store, so both have the topic first; then, with both stopped, the files of
one are put in place of the other's, which keeps its `partition.metadata` (the topic's id).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from bench.peers.kafka import Kafka
from bench.peers.process import Site

from tests.compat.broker import running_broker
from tests.compat.client import Sent
from tests.compat.confluent.driver import Confluent
from tests.compat.java.history import (
    COMPACTED,
    KEEP,
    ROUND_COUNT,
    SMALL_SEGMENTS,
    Served,
    served,
    write_and_await_compaction,
    write_every_codec,
    write_transactions,
)
from tests.compat.java.tools import (
    DUMPED_SUFFIXES,
    INDEX_SUFFIXES,
    dump,
    epochs,
    files_of,
    producers_at_the_end,
    replace_partition,
    running_kafka,
)
from tidelog.log.format.checkpoint import Offsets, decode_offsets, encode_offsets
from tidelog.log.format.names import CLEANED_OFFSETS

FROM_KAFKA: dict[str, tuple[dict[str, str], Callable[[str, str], None]]] = {
    "codecs": (SMALL_SEGMENTS, write_every_codec),
    "transactions": (KEEP, write_transactions),
    "compacted": (COMPACTED, write_and_await_compaction),
}
FROM_TIDELOG = "ours"
CLEANED_BY_TIDELOG = "cleaned"
CLEANER = {"log.cleaner.backoff.ms": "100"}
KAFKA_SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
REBUILT_SUFFIXES = (*INDEX_SUFFIXES, ".txnindex", ".snapshot")


@dataclass(frozen=True)
class Written:
    """A stopped Kafka: its folder, and what it served of each topic before."""

    site: Site
    served: dict[str, Served]

    def folder(self, topic: str) -> Path:
        return self.site.log_directory / f"{topic}-0"


@pytest.fixture(scope="module")
def written(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Written:
    site = kafka.prepare(tmp_path_factory.mktemp("kafka") / "node", KAFKA_SETTINGS)
    with running_kafka(site) as bootstrap:
        client = Confluent(bootstrap)
        client.create_topic(FROM_TIDELOG, 1, SMALL_SEGMENTS)
        client.create_topic(CLEANED_BY_TIDELOG, 1, COMPACTED)
        for topic, (settings, write) in FROM_KAFKA.items():
            client.create_topic(topic, 1, settings)
            write(bootstrap, topic)
        answers = {topic: served(bootstrap, topic) for topic in FROM_KAFKA}
    return Written(site, answers)


@pytest.fixture
def moved_in(written: Written, tmp_path: Path) -> Path:
    """A stopped Tidelog with Kafka's partitions in place of its own."""
    log_dir = tmp_path / "logs"
    with running_broker(log_dir) as bootstrap:
        for topic, (settings, _) in FROM_KAFKA.items():
            Confluent(bootstrap).create_topic(topic, 1, settings)
    for topic in FROM_KAFKA:
        replace_partition(log_dir / f"{topic}-0", written.folder(topic))
    return log_dir


def test_what_kafka_wrote_has_all_that_it_should(written: Written) -> None:
    """The comparison below is worth what its data is worth."""
    codecs, transactions, compacted = (written.served[topic] for topic in FROM_KAFKA)
    assert len(files_of(written.folder("codecs"), ".log")) > 3
    assert len(codecs.uncommitted) == len(codecs.committed) == 4000
    hidden = {record.value for record in transactions.uncommitted} - {
        record.value for record in transactions.committed
    }
    assert hidden == {b"aborted, first", b"aborted, second"}
    assert sum(path.stat().st_size for path in files_of(written.folder("transactions"), ".txnindex")) > 0
    offsets = [record.offset for record in compacted.uncommitted]
    assert len(offsets) < offsets[-1] - offsets[0] + 1
    assert any(record.value is None for record in compacted.uncommitted)


def test_tidelog_serves_what_kafka_wrote(written: Written, moved_in: Path) -> None:
    with running_broker(moved_in) as bootstrap:
        for topic in FROM_KAFKA:
            assert served(bootstrap, topic) == written.served[topic], topic


def test_tidelog_reads_on_where_compaction_left_a_gap(written: Written, moved_in: Path) -> None:
    offsets = [record.offset for record in written.served["compacted"].uncommitted]
    before = next(offset for offset, after in pairwise(offsets) if after > offset + 1)
    with running_broker(moved_in) as bootstrap:
        (record,) = Confluent(bootstrap).consume("compacted", 1, start=before + 1)
    assert record in written.served["compacted"].uncommitted
    assert record.offset == offsets[offsets.index(before) + 1]


def test_tidelog_goes_on_writing_where_kafka_stopped(written: Written, moved_in: Path) -> None:
    with running_broker(moved_in) as bootstrap:
        client = Confluent(bootstrap)
        for topic in FROM_KAFKA:
            _, end = written.served[topic].edges
            (acknowledged,) = client.produce(topic, [Sent(b"more", b"key")])
            assert acknowledged.offset == end
            assert client.read_to_end(topic, committed_only=True)[-1].value == b"more"


def test_what_tidelog_rebuilds_of_kafkas_files_is_what_kafka_had(written: Written, moved_in: Path) -> None:
    """Indexes, aborted ranges and producers are all derived from the log: without them it is the same."""
    for topic in FROM_KAFKA:
        for path in files_of(moved_in / f"{topic}-0", *REBUILT_SUFFIXES):
            path.unlink()
    with running_broker(moved_in) as bootstrap:
        for topic in FROM_KAFKA:
            assert served(bootstrap, topic) == written.served[topic], topic
    for topic in FROM_KAFKA:
        folder = moved_in / f"{topic}-0"
        for path in files_of(written.folder(topic), ".txnindex"):
            assert _content(folder / path.name) == path.read_bytes()
        assert producers_at_the_end(folder) == producers_at_the_end(written.folder(topic))
    indexes = [path for topic in FROM_KAFKA for path in files_of(moved_in / f"{topic}-0", *INDEX_SUFFIXES)]
    assert dump(indexes, "--index-sanity-check").complaints == ()
    assert dump(indexes, "--verify-index-only").complaints == ()


def test_kafka_serves_what_tidelog_wrote(written: Written, tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    with running_broker(log_dir) as bootstrap:
        Confluent(bootstrap).create_topic(FROM_TIDELOG, 1, SMALL_SEGMENTS)
        write_every_codec(bootstrap, FROM_TIDELOG)
        ours = served(bootstrap, FROM_TIDELOG)
    assert ours.edges == (0, 4000)
    folder = log_dir / f"{FROM_TIDELOG}-0"
    assert len(files_of(folder, ".log")) > 3
    replace_partition(written.folder(FROM_TIDELOG), folder)
    with running_kafka(written.site, [FROM_TIDELOG]) as bootstrap:
        assert served(bootstrap, FROM_TIDELOG) == ours
        (acknowledged,) = Confluent(bootstrap).produce(FROM_TIDELOG, [Sent(b"more")])
        assert acknowledged.offset == ours.edges[1]
    theirs = written.folder(FROM_TIDELOG)
    assert producers_at_the_end(theirs) == producers_at_the_end(folder)
    assert epochs(theirs)[: len(epochs(folder))] == epochs(folder)
    assert dump(files_of(theirs, *DUMPED_SUFFIXES)).complaints == ()


def test_kafkas_cleaner_goes_on_where_ours_has_stopped(written: Written, tmp_path: Path) -> None:
    log_dir, topic = tmp_path / "logs", CLEANED_BY_TIDELOG
    with running_broker(log_dir, CLEANER) as bootstrap:
        Confluent(bootstrap).create_topic(topic, 1, COMPACTED)
        write_and_await_compaction(bootstrap, topic)
        ours = served(bootstrap, topic)
    folder, cleaned = log_dir / f"{topic}-0", cleaned_offsets(log_dir)[topic, 0]
    assert 0 < cleaned <= ours.edges[1]
    assert dump(files_of(folder, *DUMPED_SUFFIXES)).complaints == ()
    replace_partition(written.folder(topic), folder)
    use_cleaned_offset(written.site.log_directory, topic, cleaned)
    with running_kafka(written.site, [topic]) as bootstrap:
        assert served(bootstrap, topic) == ours
        write_and_await_compaction(bootstrap, topic, ROUND_COUNT)
    assert cleaned_offsets(written.site.log_directory)[topic, 0] > cleaned
    assert dump(files_of(written.folder(topic), *DUMPED_SUFFIXES)).complaints == ()


def test_our_cleaner_goes_on_where_kafkas_has_stopped(written: Written, moved_in: Path) -> None:
    topic, folder = "compacted", moved_in / "compacted-0"
    cleaned = cleaned_offsets(written.site.log_directory)[topic, 0]
    use_cleaned_offset(moved_in, topic, cleaned)
    with running_broker(moved_in, CLEANER) as bootstrap:
        assert served(bootstrap, topic) == written.served[topic]
        write_and_await_compaction(bootstrap, topic, ROUND_COUNT)
        keys = {record.key for record in Confluent(bootstrap).read_to_end(topic, committed_only=True)}
    assert keys >= {record.key for record in written.served[topic].committed if record.value is not None}
    assert cleaned_offsets(moved_in)[topic, 0] > cleaned
    assert dump(files_of(folder, *DUMPED_SUFFIXES)).complaints == ()


def cleaned_offsets(log_dir: Path) -> Offsets:
    return decode_offsets((log_dir / CLEANED_OFFSETS).read_bytes())


def use_cleaned_offset(log_dir: Path, topic: str, offset: int) -> None:
    path = log_dir / CLEANED_OFFSETS
    known = decode_offsets(path.read_bytes() if path.exists() else None)
    path.write_bytes(encode_offsets({**known, (topic, 0): offset}))


def _content(path: Path) -> bytes:
    """Empty and absent are the same to Kafka."""
    return path.read_bytes() if path.exists() else b""
