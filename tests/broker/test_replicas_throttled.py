"""Throttled replicas: a leader gives no more than its rate, a follower asks for no more than its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.broker.test_topics import assign
from tests.wire.harness import Harness, batch_of
from tests.wire.requests import fetch, produce
from tidelog.cluster.facts import BrokerEpoch, BrokerFacts
from tidelog.protocol.fetch import FetchedPartition, decode_fetch, encode_fetch
from tidelog.replication.fetcher import CLIENT_ID, FETCH_VERSION, Fetcher

BODY = 4 + 8 + 2 + len(CLIENT_ID) + 1
RATE = 1_000
VALUE = bytes(2 * RATE)


def set_up(folder: Path, throttled: str, **rates: int) -> Harness:
    """A topic whose replicas are throttled as its settings say, with two records."""
    settings = {f"{side}_replication_throttled_rate": str(rate) for side, rate in rates.items()}
    harness = Harness(folder, **settings)
    harness.create_topic(
        "t",
        leader_replication_throttled_replicas=throttled,
        follower_replication_throttled_replicas=throttled,
    )
    for _ in range(2):
        assert produce(harness, 9, "t", batch_of(value=VALUE)).error_code == 0
    return harness


def given(harness: Harness, offset: int) -> Any:
    return fetch(harness, 16, "t", offset, replica_id=2, partition_max_bytes=RATE, leader_epoch=1)


def test_a_follower_that_is_not_in_sync_gets_no_more_than_the_rate(tmp_path: Path) -> None:
    harness = set_up(tmp_path, "0:1", leader=RATE)
    assign(harness, 0, 1, 1, 2)
    assert len(given(harness, 0).records) > 2 * RATE
    held = given(harness, 1)
    assert (held.error_code, held.records, held.high_watermark) == (0, b"", 2)
    harness.advance(1_500)
    assert given(harness, 1).records == b""
    harness.advance(1_000)
    assert len(given(harness, 1).records) > 2 * RATE


def test_a_follower_in_sync_is_not_held_back_but_counts(tmp_path: Path) -> None:
    harness = set_up(tmp_path, "*", leader=RATE)
    assign(harness, 0, 1, 1, 2, isr=(1, 2))
    for offset in (0, 1, 0):
        assert len(given(harness, offset).records) > 2 * RATE
    assert harness.broker.replicas.given.wait_ms(RATE, harness.broker.clock.uptime_ms) > 6_000


@pytest.mark.parametrize("throttled", ["0:2", "1:1", ""])
def test_who_is_not_named_is_not_held_back(tmp_path: Path, throttled: str) -> None:
    harness = set_up(tmp_path, throttled, leader=RATE)
    assign(harness, 0, 1, 1, 2)
    for offset in (0, 1, 0):
        assert len(given(harness, offset).records) > 2 * RATE


def test_without_a_rate_nothing_is_counted(tmp_path: Path) -> None:
    harness = set_up(tmp_path, "*")
    assign(harness, 0, 1, 1, 2)
    for offset in (0, 1):
        assert len(given(harness, offset).records) > 2 * RATE
    assert harness.broker.replicas.given.wait_ms(RATE, 0) == 0


class Leader:
    """Another broker that leads the partition, done by hand; it has one record of the size of two seconds."""

    def __init__(self, harness: Harness) -> None:
        self._broker = harness.broker
        self._broker.image.brokers[2] = BrokerFacts(2, "host", 1, "", 1)
        self._broker.image.broker_epochs[2] = BrokerEpoch(1, 1)
        self._end_offset = 2

    @property
    def fetcher(self) -> Fetcher:
        return self._broker.replicas.fetching.fetcher(2)

    def answer(self) -> list[int]:
        """Answer what is asked, with a record more; the partitions that were asked for."""
        frame = self.fetcher.next_request(self._broker.uptime_ms)
        assert frame is not None
        request = decode_fetch(bytes(frame), BODY, FETCH_VERSION)
        asked = [each.index for _, partitions in request.topics for each in partitions]
        topic_id = self._broker.image.topics["t"].topic_id
        batch = batch_of(value=VALUE, base_offset=self._end_offset, leader_epoch=1)
        self._end_offset += len(asked)
        parts = [FetchedPartition(0, 0, 0, 0, 0, None, -1, memoryview(batch))] if asked else []  # type: ignore[arg-type]
        number = int.from_bytes(frame[8:12], "big")
        pieces = encode_fetch(FETCH_VERSION, number, 0, 0, 9, [(topic_id, parts)] if parts else [])
        data = b"".join(bytes(piece) for piece in pieces)  # type: ignore[arg-type]
        self._broker.replicas.fetching.on_frame(2, memoryview(data)[4:])
        return asked


def test_a_follower_asks_for_no_more_than_its_rate(tmp_path: Path) -> None:
    harness = set_up(tmp_path, "*", follower=RATE)
    leader = Leader(harness)
    assign(harness, 0, 2, 2, 1)
    assert leader.answer() == [0]
    assert harness.partition("t").log.end_offset == 3
    assert leader.answer() == []  # it is left out
    harness.advance(1_500)
    assert leader.fetcher.next_request(harness.broker.clock.uptime_ms) is None
    harness.advance(1_000)
    assert leader.answer() == [0]
    harness.broker.settings.set_dynamic({}, {"follower.replication.throttled.rate": str(2**63 - 1)})
    harness.advance(1)
    assert leader.answer() == [0]


def test_a_follower_in_sync_goes_on_asking(tmp_path: Path) -> None:
    harness = set_up(tmp_path, "*", follower=RATE)
    leader = Leader(harness)
    assign(harness, 0, 2, 2, 1, isr=(2, 1))
    assert [leader.answer(), leader.answer()] == [[0], [0]]
