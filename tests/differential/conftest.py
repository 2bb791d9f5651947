"""The two brokers, started once: Apache Kafka as the benchmarks fetch it, and Tidelog, set up alike.

Where Kafka cannot be had, the tests say so and are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers.kafka import SETTINGS as KAFKA_SETTINGS
from bench.peers.process import PeerMissing

from tests.compat.java.tools import apache_kafka, running_kafka
from tests.differential.pair import Pair
from tests.differential.sides import Side
from tests.differential.world import build_world
from tests.soak import choose_seed, is_soak
from tidelog.testing.process import BrokerProcess

# Coordinators would make fifty partitions each at the first question.
SETTINGS = KAFKA_SETTINGS | {
    "log.retention.hours": "100",
    "num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0",  # what a heartbeat changes, the next one tells
}
SAMPLE_SEED = 1


@pytest.fixture(scope="session")
def drawn_seed() -> int:
    """Of what is generated: always the same in a sample, unless TIDELOG_SEED names one."""
    if is_soak() or os.environ.get("TIDELOG_SEED"):
        return choose_seed()
    return SAMPLE_SEED


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    # The same length, so that a path in a request can be replaced by the other broker's.
    folder = tmp_path_factory.mktemp("pair")
    homes = {"kafka": folder / "k", "tidelog": folder / "t"}
    log_dirs = {name: f"{home}/logs-0,{home}/logs-1" for name, home in homes.items()}
    try:
        kafka = apache_kafka()
    except PeerMissing as missing:
        pytest.skip(str(missing))
    site = kafka.prepare(homes["kafka"], SETTINGS | {"log.dirs": log_dirs["kafka"]})
    broker = BrokerProcess(homes["tidelog"], SETTINGS | {"log.dirs": log_dirs["tidelog"]})
    with running_kafka(site) as bootstrap, broker:
        kafka_port = int(bootstrap.rpartition(":")[2])
        directories = {name: str(home).encode() for name, home in homes.items()}
        both = Pair(Side("kafka", kafka_port), Side("tidelog", broker.port), directories)
        build_world(both)
        yield both
        both.kafka.close()
        both.tidelog.close()
        assert broker.is_running, broker.stderr()[-2000:]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.java)
