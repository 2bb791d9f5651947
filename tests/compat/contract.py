"""What must hold for every client, written once.

Each `tests/compat/<client>/test_*.py` subclasses these with its own driver. They hold for Apache Kafka as
they stand (see `conftest.py`), so a claim here is a claim about Kafka's behaviour, not about ours.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from tests.compat.client import (
    CODECS,
    INVALID_TOPIC_EXCEPTION,
    MESSAGE_TOO_LARGE,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    Acks,
    Admin,
    Client,
    Refused,
    Sent,
    contents,
    eventually,
)
from tests.compat.conftest import NewTopic
from tests.compat.stored import stored_batches

LONG_AGO_MS = 1_700_000_000_000
PLAIN = [Sent(b"value %03d " % number + b"x" * 200) for number in range(20)]
TIMED = [Sent(b"at %d" % number, timestamp_ms=LONG_AGO_MS + 1000 * number) for number in range(10)]

ONE_RECORD_VALUE_SIZE = 5000
ONE_RECORD_BATCH_SIZE = 61 + 2 + 7 + ONE_RECORD_VALUE_SIZE
"""A batch's header; the record's length (two bytes); its attributes, two deltas, the null key, the value's
length (two bytes) and the header count; the value."""


class ProduceAndConsume:
    """Records go in and come out as they were."""

    @pytest.mark.parametrize("codec", CODECS)
    def test_records_come_back_and_stay_compressed(
        self, client: Client, topic: str, bootstrap: str, codec: str
    ) -> None:
        _require_codec(client, codec)
        client.produce(topic, PLAIN, codec=codec)
        records = client.consume(topic, len(PLAIN))
        assert [record.content for record in records] == contents(PLAIN)
        assert [record.offset for record in records] == list(range(len(PLAIN)))
        assert {batch.codec for batch in stored_batches(bootstrap, topic)} == {codec}

    @pytest.mark.parametrize("acks", ["0", "1", "all"])
    def test_every_acknowledgement_level_keeps_order(self, client: Client, topic: str, acks: Acks) -> None:
        acknowledged = client.produce(topic, PLAIN, acks=acks)
        assert [record.content for record in client.consume(topic, len(PLAIN))] == contents(PLAIN)
        if acks != "0":
            assert [each.offset for each in acknowledged] == list(range(len(PLAIN)))

    @pytest.mark.parametrize("codec", ["none", "gzip"])
    def test_an_idempotent_producer_writes_each_record_once(
        self, client: Client, topic: str, bootstrap: str, codec: str
    ) -> None:
        client.produce(topic, PLAIN, idempotent=True, codec=codec)
        assert [record.content for record in client.consume(topic, len(PLAIN))] == contents(PLAIN)
        assert client.edges(topic) == (0, len(PLAIN))
        assert all(batch.producer_id >= 0 for batch in stored_batches(bootstrap, topic))

    def test_two_idempotent_producers_get_ids_of_their_own(
        self, client: Client, topic: str, bootstrap: str
    ) -> None:
        client.produce(topic, PLAIN, idempotent=True)
        client.produce(topic, PLAIN, idempotent=True)
        assert client.edges(topic) == (0, 2 * len(PLAIN))
        assert len({batch.producer_id for batch in stored_batches(bootstrap, topic)}) == 2

    def test_headers_keep_order_and_repeats(self, client: Client, topic: str) -> None:
        sent = [
            Sent(b"two of a name", b"k", (("trace", b"1"), ("trace", b"2"), ("other", b"3"))),
            Sent(b"an empty one", b"k", (("empty", b""),)),
            Sent(b"none", b"k"),
        ]
        client.produce(topic, sent)
        assert [record.content for record in client.consume(topic, len(sent))] == contents(sent)

    def test_null_and_empty_keys_and_values_differ(self, client: Client, topic: str) -> None:
        sent = [Sent(b"value", None), Sent(None, b"key"), Sent(b"", b"key"), Sent(b"value", b"")]
        if client.sends_both_null:
            sent.append(Sent(None, None))
        client.produce(topic, sent)
        assert [record.content for record in client.consume(topic, len(sent))] == contents(sent)

    def test_a_read_committed_consumer_sees_plain_records(self, client: Client, topic: str) -> None:
        client.produce(topic, PLAIN)
        records = client.consume(topic, len(PLAIN), committed_only=True)
        assert [record.content for record in records] == contents(PLAIN)

    def test_producing_creates_a_missing_topic(self, client: Client) -> None:
        name = f"compat-auto-{uuid4().hex[:12]}"
        client.produce(name, PLAIN)
        assert [record.content for record in client.consume(name, len(PLAIN))] == contents(PLAIN)
        assert client.topics()[name] == 1


class Timestamps:
    """The time of a record is the producer's or the broker's, as the topic says."""

    def test_create_time_is_the_producers(self, client: Client, topic: str) -> None:
        _require_timestamps(client)
        client.produce(topic, TIMED)
        records = client.consume(topic, len(TIMED))
        assert [record.timestamp_ms for record in records] == [sent.timestamp_ms for sent in TIMED]
        assert {record.timestamp_type for record in records} <= {"create", None}

    @pytest.mark.parametrize("codec", ["none", "gzip"])
    def test_log_append_time_is_the_brokers(self, client: Client, new_topic: NewTopic, codec: str) -> None:
        topic = new_topic({"message.timestamp.type": "LogAppendTime"})
        sent = TIMED if client.sets_timestamps else PLAIN
        acknowledged = client.produce(topic, sent, codec=codec)
        records = client.consume(topic, len(sent))
        assert {record.timestamp_type for record in records} <= {"append", None}
        assert all(record.timestamp_ms > LONG_AGO_MS + 1_000_000 for record in records)
        told = [each.timestamp_ms for each in acknowledged]
        assert told in ([record.timestamp_ms for record in records], [None] * len(sent))

    def test_a_time_leads_to_the_first_record_at_or_after_it(
        self, client: Client, writer: Client, topic: str
    ) -> None:
        writer.produce(topic, TIMED[:5], codec="gzip")
        writer.produce(topic, TIMED[5:])
        assert client.offset_for_time(topic, LONG_AGO_MS - 5) == 0
        assert client.offset_for_time(topic, LONG_AGO_MS + 3000) == 3
        assert client.offset_for_time(topic, LONG_AGO_MS + 3001) == 4
        assert client.offset_for_time(topic, LONG_AGO_MS + 4000) == 4, "the last of its batch"
        assert client.offset_for_time(topic, LONG_AGO_MS + 6999) == 7
        assert client.offset_for_time(topic, LONG_AGO_MS + 9000) == 9, "the last of all"
        assert client.offset_for_time(topic, LONG_AGO_MS + 9001) is None

    def test_reading_from_a_time_starts_there(self, client: Client, writer: Client, topic: str) -> None:
        writer.produce(topic, TIMED)
        offset = client.offset_for_time(topic, LONG_AGO_MS + 6500)
        assert offset is not None
        (record,) = client.consume(topic, 1, start=offset)
        assert record.value == TIMED[7].value


class Places:
    """A consumer starts where it asks to."""

    @pytest.mark.parametrize("codec", ["none", "lz4"])
    def test_an_offset_inside_a_batch_is_where_reading_starts(
        self, client: Client, writer: Client, topic: str, codec: str
    ) -> None:
        _require_codec(client, codec)
        writer.produce(topic, PLAIN, codec=codec)
        records = client.consume(topic, 7, start=13)
        assert [record.offset for record in records] == list(range(13, 20))
        assert [record.value for record in records] == [sent.value for sent in PLAIN[13:]]

    def test_earliest_and_end_are_the_edges_of_the_log(
        self, client: Client, writer: Client, topic: str
    ) -> None:
        assert client.edges(topic) == (0, 0)
        writer.produce(topic, PLAIN)
        assert client.edges(topic) == (0, len(PLAIN))
        assert client.consume(topic, 1, start="earliest")[0].offset == 0

    def test_latest_sees_only_what_comes_later(self, client: Client, writer: Client, topic: str) -> None:
        writer.produce(topic, PLAIN)
        record = client.consume_after(topic, lambda: writer.produce(topic, [Sent(b"later")]), start="latest")
        assert (record.offset, record.value) == (len(PLAIN), b"later")

    def test_a_waiting_consumer_gets_the_record_when_it_is_produced(
        self, client: Client, writer: Client, topic: str
    ) -> None:
        record = client.consume_after(topic, lambda: writer.produce(topic, [Sent(b"first")]), start=0)
        assert (record.offset, record.value) == (0, b"first")


class Sizes:
    """`max.message.bytes` bounds a batch as it is sent: exactly."""

    def test_a_batch_of_the_largest_size_is_taken(
        self, client: Client, new_topic: NewTopic, bootstrap: str
    ) -> None:
        topic = new_topic({"max.message.bytes": str(ONE_RECORD_BATCH_SIZE)})
        client.produce(topic, [Sent(b"v" * ONE_RECORD_VALUE_SIZE)])
        assert [batch.size for batch in stored_batches(bootstrap, topic)] == [ONE_RECORD_BATCH_SIZE]

    def test_one_byte_more_is_refused_and_leaves_nothing(self, client: Client, new_topic: NewTopic) -> None:
        topic = new_topic({"max.message.bytes": str(ONE_RECORD_BATCH_SIZE)})
        with pytest.raises(Refused) as refused:
            client.produce(topic, [Sent(b"v" * (ONE_RECORD_VALUE_SIZE + 1))])
        assert refused.value.code == MESSAGE_TOO_LARGE
        assert client.edges(topic) == (0, 0)

    def test_a_compressed_batch_counts_as_compressed(self, client: Client, new_topic: NewTopic) -> None:
        topic = new_topic({"max.message.bytes": str(ONE_RECORD_BATCH_SIZE)})
        large = Sent(b"v" * 20 * ONE_RECORD_VALUE_SIZE)
        client.produce(topic, [large], codec="gzip")
        assert client.consume(topic, 1)[0].value == large.value


class Topics:
    """Topics through the client's admin API."""

    def test_a_created_topic_is_listed_with_its_partitions(self, client: Admin, fresh_name: str) -> None:
        client.create_topic(fresh_name, 3, {})
        eventually(
            lambda: client.topics().get(fresh_name) == 3, "the new topic is not listed with 3 partitions"
        )

    def test_a_topic_cannot_be_created_twice(self, client: Admin, topic: str) -> None:
        assert _refusal(lambda: client.create_topic(topic, 1, {})) == TOPIC_ALREADY_EXISTS

    def test_an_invalid_name_is_refused(self, client: Admin) -> None:
        refusal = _refusal(lambda: client.create_topic("no spaces please", 1, {}))
        assert refusal == INVALID_TOPIC_EXCEPTION

    def test_a_deleted_topic_is_gone_and_can_come_back_empty(self, client: Admin, fresh_name: str) -> None:
        client.create_topic(fresh_name, 1, {})
        client.produce(fresh_name, PLAIN)
        client.delete_topic(fresh_name)
        eventually(lambda: fresh_name not in client.topics(), "the deleted topic is still listed")
        client.create_topic(fresh_name, 1, {})
        client.produce(fresh_name, [Sent(b"anew")])
        assert [(record.offset, record.value) for record in client.consume(fresh_name, 1)] == [(0, b"anew")]

    def test_deleting_an_unknown_topic_is_refused(self, client: Admin, fresh_name: str) -> None:
        assert _refusal(lambda: client.delete_topic(fresh_name)) == UNKNOWN_TOPIC_OR_PARTITION


def _refusal(act: Callable[[], object]) -> int:
    with pytest.raises(Refused) as refused:
        act()
    return refused.value.code


def _require_codec(client: Client, codec: str) -> None:
    if codec not in client.codecs:
        pytest.skip(f"{client.name} as installed has no {codec}")


def _require_timestamps(client: Client) -> None:
    if not client.sets_timestamps:
        pytest.skip(f"{client.name} cannot set a record's timestamp")
