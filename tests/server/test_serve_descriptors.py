"""A broker with far more files than it may have open (L10): it works, and nothing goes offline.

Each partition has three files once it was written to; the process may have 256 open.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.server.wire_client import WireClient, fetch_values, produce_values
from tests.wire.harness import FETCH, PRODUCE, batch_of
from tidelog.testing.process import BrokerProcess

FILES_MAX = 256
PARTITIONS = 300


class TightBroker(BrokerProcess):
    def command(self) -> list[str]:
        return ["sh", "-c", f'ulimit -n {FILES_MAX} && exec "$@"', "sh", *super().command()]


def produce_to_all(client: WireClient) -> list[int]:
    values = produce_values("t", batch_of())
    (topic,) = values["topic_data"]
    (data,) = topic.partition_data
    everywhere = tuple(replace(data, index=index) for index in range(PARTITIONS))
    values["topic_data"] = (replace(topic, partition_data=everywhere),)
    outcomes = client.ask(PRODUCE, 9, **values).responses[0].partition_responses
    assert {outcome.error_code for outcome in outcomes} == {0}
    return [outcome.base_offset for outcome in outcomes]


def fetch_all_values(max_bytes: int = 2**26) -> dict[str, Any]:
    values = fetch_values("t", 0, max_bytes=max_bytes)
    (topic,) = values["topics"]
    (asked,) = topic.partitions
    everywhere = tuple(replace(asked, partition=index) for index in range(PARTITIONS))
    values["topics"] = (replace(topic, partitions=everywhere),)
    return values


def check_all(client: WireClient, size: int) -> None:
    fetched = client.ask(FETCH, 12, **fetch_all_values()).responses[0].partitions
    assert {partition.error_code for partition in fetched} == {0}
    assert {len(partition.records) for partition in fetched} == {size}


def test_more_partitions_than_descriptors_are_written_read_and_recovered(tmp_path: Path) -> None:
    size = len(batch_of())
    with TightBroker(tmp_path) as broker:
        with WireClient(broker.port) as client:
            client.create_topic("t", PARTITIONS)
            assert produce_to_all(client) == [0] * PARTITIONS
            check_all(client, size)
        broker.kill()
        broker.start()
        with WireClient(broker.port) as client:
            check_all(client, size)
            assert produce_to_all(client) == [1] * PARTITIONS
            check_all(client, 2 * size)
        broker.stop()
        broker.start()
        with WireClient(broker.port) as client:
            check_all(client, 2 * size)
    assert "offline" not in Path(broker.stderr_path).read_text()


def test_answers_that_nobody_takes_leave_descriptors_for_the_others(tmp_path: Path) -> None:
    """Each of them would pin a file; beyond some of them the bytes are copied instead."""
    with TightBroker(tmp_path) as broker, WireClient(broker.port) as client:
        client.create_topic("t", PARTITIONS)
        produce_to_all(client)
        slow = [WireClient(broker.port) for _ in range(20)]
        for reader in slow:
            for _ in range(50):
                reader.send(FETCH, 12, **fetch_all_values())
        for _ in range(3):
            produce_to_all(client)
            client.greet()
        for reader in slow:
            reader.socket.close()
    assert "offline" not in Path(broker.stderr_path).read_text()
