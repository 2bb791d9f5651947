"""aiokafka against the contract, and batches cut by hand."""

from __future__ import annotations

import pytest

from tests.compat.aio.driver import Aio
from tests.compat.client import MESSAGE_TOO_LARGE, Refused, Sent
from tests.compat.conftest import NewTopic
from tests.compat.contract import LONG_AGO_MS, Places, ProduceAndConsume, Sizes, Timestamps, Topics
from tests.compat.stored import stored_batches


class TestAiokafka(ProduceAndConsume, Timestamps, Places, Sizes, Topics):
    @pytest.fixture
    def client(self, bootstrap: str) -> Aio:
        return Aio(bootstrap)

    def test_a_batch_of_many_records_is_taken_whole_or_not_at_all(
        self, client: Aio, new_topic: NewTopic, bootstrap: str
    ) -> None:
        many = [Sent(b"%04d" % number * 25, timestamp_ms=LONG_AGO_MS) for number in range(100)]
        roomy = new_topic()
        client.produce_batch(roomy, many)
        (batch,) = stored_batches(bootstrap, roomy)
        assert batch.record_count == len(many)
        exact = new_topic({"max.message.bytes": str(batch.size)})
        client.produce_batch(exact, many)
        assert client.edges(exact) == (0, len(many))
        tight = new_topic({"max.message.bytes": str(batch.size - 1)})
        with pytest.raises(Refused) as refused:
            client.produce_batch(tight, many)
        assert refused.value.code == MESSAGE_TOO_LARGE
        assert client.edges(tight) == (0, 0)
