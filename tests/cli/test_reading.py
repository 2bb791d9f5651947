"""Records without a group: what of transactions is shown."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.client.scripted import TOPIC, ScriptedBroker
from tests.client.told_log import ToldLog, ends_at
from tidelog.cli.consume import Printer, _print_to_the_end, _print_until_done
from tidelog.cli.options import RecordFormat
from tidelog.cli.reading import Reading, open_cluster
from tidelog.cli.start import Start
from tidelog.client.cluster import Cluster
from tidelog.client.errors import DamagedBatch, GaveUp, TopicPartition
from tidelog.protocol.records import Marker, build_batch, build_control_batch

ABORTED, KEPT = 7, 8


def transactional(offset: int, producer_id: int, value: bytes) -> bytearray:
    return build_batch(
        [(None, value, (), 1_000)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def marker(offset: int, producer_id: int, kind: Marker) -> bytearray:
    return build_control_batch(kind, producer_id, 0, 0, 1_000, base_offset=offset)


def plain(offset: int) -> bytearray:
    return build_batch([(None, b"%d" % offset, (), 1_000)], base_offset=offset)


@pytest.mark.parametrize(
    ("committed_only", "shown"),
    [(True, [b"kept", b"plain", b"again"]), (False, [b"aborted", b"kept", b"plain", b"again"])],
)
def test_what_was_aborted_is_shown_only_to_who_asks_for_it(committed_only: bool, shown: list[bytes]) -> None:
    log = ToldLog(
        [
            transactional(0, ABORTED, b"aborted"),
            transactional(1, KEPT, b"kept"),
            build_batch([(None, b"plain", (), 1_000)], base_offset=2),
            marker(3, ABORTED, Marker.ABORT),
            marker(4, KEPT, Marker.COMMIT),
            transactional(5, ABORTED, b"again"),
            marker(6, ABORTED, Marker.COMMIT),
        ]
    )
    log.aborted = [(ABORTED, 0)] if committed_only else None

    with (
        ScriptedBroker(fetch=log.fetch, list_offsets=ends_at(lambda: 7)) as broker,
        open_cluster(broker.bootstrap_servers) as cluster,
    ):
        reading = Reading(cluster, TOPIC, [0], Start("offset", 0), committed_only=committed_only)
        assert [found.record.value for found in reading.records()] == shown
        assert list(reading.records()) == [], "what was read is not read again"


@contextmanager
def two_partitions(
    end: Callable[[], int], timeout_ms: int, leaderless: int = 1
) -> Iterator[tuple[ScriptedBroker, Cluster, Reading]]:
    """Two partitions of four batches, with no leader for one of them."""
    log = ToldLog([plain(offset) for offset in range(4)])
    with ScriptedBroker(fetch=log.fetch, list_offsets=ends_at(end)) as broker:
        broker.partition_count, broker.leaderless = 2, {leaderless}
        properties = {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": "1"}
        with Cluster(properties | {"default.api.timeout.ms": str(timeout_ms)}) as cluster:
            yield broker, cluster, Reading(cluster, TOPIC, [0, 1], Start("earliest"), committed_only=False)


@pytest.mark.parametrize("leaderless", [0, 1])
def test_a_partition_without_a_leader_is_read_once_it_has_one(leaderless: int) -> None:
    with two_partitions(lambda: 4, 5_000, leaderless) as (broker, _, reading):
        read = [found.partition.partition for found in reading.records()]
        assert read == [1 - leaderless] * 4
        assert reading.unread == [TopicPartition(TOPIC, leaderless)]
        assert "has no leader at the moment" in str(reading.problem)
        broker.leaderless = set()
        read = [
            found.partition.partition for _ in range(2) for found in reading.records()
        ]  # leaders, records
        assert read == [leaderless] * 4
        assert not reading.unread and reading.problem is None


def test_who_follows_goes_on_with_the_partitions_that_have_a_leader(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidelog.cli.consume.LOOK_S", 0.001)
    monkeypatch.setattr("tidelog.cli.consume.OUTAGE_TOLD_S", 0.0)
    counts = iter(range(1_000_000))
    out = io.BytesIO()
    with two_partitions(lambda: min(next(counts) // 100, 4), 20) as (_, cluster, reading):
        _print_until_done(cluster, reading, Printer(out, RecordFormat.TEXT, None, 4))
    assert out.getvalue() == b"0\n1\n2\n3\n"
    assert (
        capsys.readouterr().err
        == "tidelog: told-1 has no leader at the moment; reading the other partitions\n"
    )


def test_who_reads_to_the_end_sees_what_is_led_before_it_fails() -> None:
    out = io.BytesIO()
    with (
        two_partitions(lambda: 4, 50) as (_, cluster, reading),
        pytest.raises(GaveUp, match="told-1 has no leader at the moment"),
    ):
        _print_to_the_end(cluster, reading, Printer(out, RecordFormat.TEXT, None, None))
    assert out.getvalue() == b"0\n1\n2\n3\n"


def test_who_follows_ends_when_no_partition_has_a_leader() -> None:
    printer = Printer(io.BytesIO(), RecordFormat.TEXT, None, None)
    with two_partitions(lambda: 4, 50) as (broker, cluster, reading):
        broker.leaderless = {0, 1}
        with pytest.raises(GaveUp, match="has no leader at the moment"):
            _print_until_done(cluster, reading, printer)


def test_a_damaged_body_is_named_with_the_way_around_it() -> None:
    damaged = plain(1)
    damaged[-2] ^= 1
    log = ToldLog([plain(0), damaged, plain(2)])
    with (
        ScriptedBroker(fetch=log.fetch, list_offsets=ends_at(lambda: 3)) as broker,
        open_cluster(broker.bootstrap_servers) as cluster,
    ):
        records = Reading(cluster, TOPIC, [0], Start("earliest"), committed_only=False).records()
        assert next(records).record.offset == 0
        told = r"told-0: the batch at offset 1 is damaged \(.*checksum.*\); .*: --partition 0 --from 2"
        with pytest.raises(DamagedBatch, match=told):
            next(records)
