"""The protocol of the sink against Apache Kafka: some stories, and kills at some of the requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.peers.kafka import SETTINGS
from bench.peers.process import PeerMissing

from tests.compat.java.tools import apache_kafka, running_kafka
from tests.spark.exactly_once.stories import STORIES
from tests.spark.exactly_once.world import PARTITIONS, World

TOLD = (
    "a-decided-batch-is-not-written-again",
    "a-long-list-is-kept-whole",
    "what-a-killed-worker-leaves-open-is-aborted-with-the-batch",
    "of-two-drivers-one-decides",
    "a-sweep-never-aborts-what-another-driver-decides-on",
    "a-late-sweep-does-not-touch-the-next-transaction-of-an-id",
    "a-transaction-that-timed-out-before-the-decision-stops",
    "a-clock-that-jumps-stops-nothing",
    "a-torn-batch-is-completed-if-it-is-computed-as-before",
    "a-marker-is-read-only-when-no-transaction-may-change-it",
    "a-version-that-was-decided-is-finished-before-the-next",
)
FEW_PARTITIONS = {
    "num.partitions": str(PARTITIONS),
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        peer = apache_kafka()
    except PeerMissing as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("kafka")
    with running_kafka(peer.prepare(folder / "node", SETTINGS | FEW_PARTITIONS)) as bootstrap:
        yield World(folder, bootstrap)


@pytest.mark.java
@pytest.mark.parametrize("name", TOLD)
def test_kafka_s_rows_are_there_once(name: str, kafka: World) -> None:
    STORIES[name](kafka)


@pytest.mark.java
@pytest.mark.soak
def test_a_kill_at_any_request_to_kafka_loses_and_doubles_nothing(kafka: World) -> None:
    STORIES["a-kill-before-or-after-any-request-loses-and-doubles-nothing"](kafka)
