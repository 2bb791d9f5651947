"""The Java client 4.3 against the contract: both of its consumers, and what only it does."""

from __future__ import annotations

from random import Random

import pytest

from tests.compat.client import Client, Sent, contents
from tests.compat.conftest import NewTopic
from tests.compat.contract import PLAIN, Places, ProduceAndConsume, Sizes, Timestamps, Topics
from tests.compat.java.driver import Java
from tests.compat.java.jvm import Jvm


class TestJava(ProduceAndConsume, Timestamps, Places, Sizes, Topics):
    @pytest.fixture
    def client(self, java: Java) -> Java:
        return java

    @pytest.mark.parametrize("codec", ["none", "zstd"])
    def test_a_record_of_many_megabytes_comes_back(
        self, client: Java, new_topic: NewTopic, codec: str
    ) -> None:
        topic = new_topic({"max.message.bytes": str(16 << 20)})
        large = Sent(Random(0).randbytes(10_000_000), b"key", (("header", b"h" * 1000), ("null", None)))
        client.produce(topic, [large], codec=codec, idempotent=True)
        (record,) = client.consume(topic, 1)
        assert [record.content] == contents([large])

    def test_a_consumer_seeks_and_tells_its_position(self, client: Java, writer: Client, topic: str) -> None:
        writer.produce(topic, PLAIN)
        with client.consumer(topic, "latest") as consumer:
            assert consumer.call("position") == 20
            consumer.call("seek", start="earliest")
            assert consumer.call("position") == 0
            consumer.call("seek", start=7)
            assert [record.offset for record in consumer.poll(13)] == list(range(7, 20))
            assert consumer.call("position") == 20
            assert consumer.call("edges") == [0, 20]


class TestJavaWithItsNewConsumer(Places):
    """The consumer of KIP-848 fetches by a thread of its own, also where no group is joined."""

    @pytest.fixture
    def client(self, bootstrap: str, jvm: Jvm) -> Java:
        return Java(bootstrap, jvm, {"group.protocol": "consumer"})
