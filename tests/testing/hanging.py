"""A transaction that no coordinator has, in a broker of this process.

It comes about as in the world: a producer's batch arrives after its transaction has ended, on a broker that
does not ask the coordinator.
"""

from __future__ import annotations

from unittest.mock import patch

from tests.log.making import make_batch
from tests.server.wire_client import WireClient, produce_values
from tests.wire.harness import PRODUCE
from tidelog.broker.data_plane import verifying
from tidelog.testing import Broker


def hang(broker: Broker, topic: str, producer_id: int, epoch: int = 0, timestamp: int = 1_000) -> None:
    """One record in partition 0, in a transaction that is open from now on."""
    batch = make_batch(
        producer_id=producer_id, producer_epoch=epoch, sequence=0, transactional=True, timestamp=timestamp
    )
    values = produce_values(topic, batch) | {"transactional_id": "late"}
    with (
        patch.object(verifying, "_is_decided", lambda partition, producer: True),
        WireClient(broker.port) as client,
    ):
        answer = client.ask(PRODUCE, 9, **values)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer
