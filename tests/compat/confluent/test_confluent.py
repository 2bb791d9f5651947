"""confluent-kafka (librdkafka) against the contract, and what only it can say."""

from __future__ import annotations

import pytest

from tests.compat.client import MESSAGE_TOO_LARGE, Refused, Sent, contents
from tests.compat.confluent.driver import Confluent
from tests.compat.conftest import NewTopic
from tests.compat.contract import Places, ProduceAndConsume, Sizes, Timestamps, Topics
from tests.compat.stored import stored_batches

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
DEFAULT_VALUE_SIZE = DEFAULT_MAX_MESSAGE_BYTES - 61 - 3 - 8
"""Like `ONE_RECORD_BATCH_SIZE`, with lengths of three bytes."""


class TestConfluent(ProduceAndConsume, Timestamps, Places, Sizes, Topics):
    @pytest.fixture
    def client(self, bootstrap: str) -> Confluent:
        return Confluent(bootstrap)

    def test_a_header_may_have_a_null_value(self, client: Confluent, topic: str) -> None:
        sent = [Sent(b"v", b"k", (("null", None), ("empty", b"")))]
        client.produce(topic, sent)
        assert [record.content for record in client.consume(topic, 1)] == contents(sent)

    def test_the_brokers_default_size_holds_to_the_byte(
        self, client: Confluent, new_topic: NewTopic, bootstrap: str
    ) -> None:
        topic = new_topic()
        client.produce(topic, [Sent(b"v" * DEFAULT_VALUE_SIZE)])
        assert [batch.size for batch in stored_batches(bootstrap, topic)] == [DEFAULT_MAX_MESSAGE_BYTES]
        with pytest.raises(Refused) as refused:
            client.produce(topic, [Sent(b"v" * (DEFAULT_VALUE_SIZE + 1))])
        assert refused.value.code == MESSAGE_TOO_LARGE
        assert client.edges(topic) == (0, 1)

    def test_reading_to_the_end_finds_the_end(self, client: Confluent, topic: str) -> None:
        client.produce(topic, [Sent(b"one"), Sent(b"two")])
        for committed_only in (False, True):
            records = client.read_to_end(topic, committed_only=committed_only)
            assert [record.value for record in records] == [b"one", b"two"]
