"""Sending: everything arrives once and in order, whatever the broker says meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.conftest import MakeTopic
from tests.client.scripted import TOPIC, Asked, ScriptedBroker
from tests.client.told_producers import ToldPartitions, tell_producer_id
from tests.client.written import values_in
from tidelog.client.cluster import LATEST, Cluster, TopicPartition
from tidelog.client.connection import Connection
from tidelog.client.errors import BadProperty, SendFailed
from tidelog.client.identity import ProducerIdentity
from tidelog.client.reader import RangeReader
from tidelog.client.sender import Sender
from tidelog.protocol.batch import read_header
from tidelog.protocol.compression import ZSTD
from tidelog.protocol.produce import encode_produce
from tidelog.protocol.records import build_batch

PLACE = TopicPartition(TOPIC, 0)


def batch_of(*values: bytes, codec: int = 0) -> bytearray:
    """As a caller makes it: no producer, and a checksum that is not valid."""
    batch = build_batch([(None, value, (), 1_000) for value in values], codec=codec)
    batch[17:21] = bytes(4)
    return batch


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def read_back(cluster: Cluster, place: TopicPartition) -> list[bytes | None]:
    end = cluster.list_offsets({place: LATEST})[place].offset
    topic_id = cluster.describe([place.topic])[place.topic].id
    pieces = RangeReader(cluster, place, topic_id, 0, end, committed_only=False)
    return [value for _, value in values_in(pieces, 0, end)]


SETTINGS: list[dict[str, str]] = [
    {},
    {"max.request.size": "1"},
    {"max.in.flight.requests.per.connection": "1"},
    {"acks": "1"},
    {"enable.idempotence": "false"},
]


@pytest.mark.parametrize("properties", SETTINGS, ids=str)
def test_what_is_sent_is_in_the_log_in_order(
    cluster: Cluster, new_topic: MakeTopic, properties: dict[str, str]
) -> None:
    places = [TopicPartition(new_topic(partitions=3), index) for index in range(3)]
    sender = Sender(cluster, properties=properties)
    for number in range(60):
        for place in places[: 1 + number % 3]:
            sender.send(place, batch_of(*numbered(number * 3, 3), codec=ZSTD if number % 2 else 0), 3)
    sender.flush()
    sent = [[number for number in range(60) if number % 3 >= index] for index in range(3)]
    for place, numbers in zip(places, sent, strict=True):
        assert read_back(cluster, place) == [value for number in numbers for value in numbered(number * 3, 3)]
        assert sender.ends()[place] == (0, 3 * len(numbers))
    sender.send(places[0], batch_of(b"later"), 1)
    sender.flush()
    assert sender.ends()[places[0]] == (0, 181)
    sender.close()


def test_without_acknowledgements_records_arrive_and_nothing_is_said_of_them(
    cluster: Cluster, new_topic: MakeTopic
) -> None:
    place = TopicPartition(new_topic(), 0)
    sender = Sender(cluster, properties={"acks": "0"})
    for number in range(10):
        sender.send(place, batch_of(b"%d" % number), 1)
    sender.flush()
    assert sender.ends() == {}
    assert read_back(cluster, place) == numbered(0, 10)


def test_a_topic_that_is_missing_is_made_where_the_broker_makes_topics(
    cluster: Cluster, new_topic: MakeTopic
) -> None:
    place = TopicPartition(f"{new_topic()}-auto", 0)
    sender = Sender(cluster, properties={})
    sender.send(place, batch_of(b"first"), 1)
    sender.flush()
    assert read_back(cluster, place) == [b"first"]


def test_a_partition_that_is_missing_fails_by_name(cluster: Cluster, new_topic: MakeTopic) -> None:
    name = new_topic()
    sender = Sender(cluster, properties={})
    sender.send(TopicPartition(name, 0), batch_of(b"x"), 1)
    with pytest.raises(SendFailed, match=f"{name}-5 does not exist"):
        sender.send(TopicPartition(name, 5), batch_of(b"x"), 1)
        sender.flush()


def test_a_batch_that_is_too_large_fails_with_what_to_do(cluster: Cluster, new_topic: MakeTopic) -> None:
    name = new_topic(settings={"max.message.bytes": "1000"})
    sender = Sender(cluster, properties={})
    sender.send(TopicPartition(name, 0), batch_of(b"x" * 2_000), 1)
    with pytest.raises(
        SendFailed, match=rf"{name}-0: Produce: MESSAGE_TOO_LARGE.*max\.message\.bytes"
    ) as first:
        sender.flush()
    with pytest.raises(SendFailed) as second:
        sender.send(TopicPartition(name, 0), batch_of(b"x"), 1)
    assert second.value is first.value


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"acks": "2"}, "acks=2"),
        ({"acks": "1", "enable.idempotence": "true"}, "acks=1.*needs acks=all"),
        ({"max.in.flight.requests.per.connection": "6"}, "allows 5"),
        ({"enable.idempotence": "maybe"}, "enable.idempotence='maybe'"),
        ({"delivery.timeout.ms": "-1"}, "delivery.timeout.ms=-1"),
        ({"max.request.size": "much"}, "max.request.size='much'"),
    ],
)
def test_properties_that_cannot_be_are_refused_by_name(properties: dict[str, str], named: str) -> None:
    with Cluster({"bootstrap.servers": "127.0.0.1:1"}) as cluster, pytest.raises(BadProperty, match=named):
        Sender(cluster, properties=properties)


@contextmanager
def talking(told: ToldPartitions, partitions: int = 1) -> Iterator[tuple[ScriptedBroker, Cluster]]:
    with ScriptedBroker(produce=told.produce, init_producer_id=tell_producer_id) as broker:
        broker.partition_count = partitions
        properties = {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": "1"}
        with Cluster(properties) as cluster:
            yield broker, cluster


FATES = st.sampled_from(["ok", "ok", "ok", "refuse", "append and refuse", "cut", "append and cut"])
QUICK = {"retry.backoff.ms": "1", "retry.backoff.max.ms": "2"}


@settings(max_examples=150, deadline=None)
@given(
    fates=st.lists(FATES, max_size=40),
    sends=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=40),
    size_max=st.sampled_from([1, 200, 100_000]),
    is_lazy=st.booleans(),
)
def test_nothing_is_lost_doubled_or_moved_whatever_fails(
    fates: list[str], sends: list[tuple[int, int]], size_max: int, is_lazy: bool
) -> None:
    told = ToldPartitions(lambda: (0, True))
    with talking(told, partitions=3) as (broker, cluster), pytest.MonkeyPatch.context() as patched:
        if is_lazy:  # answers are read when nothing more can be sent: as many requests under way as may be
            patched.setattr(Connection, "has_arrived", lambda connection: False)
        broker.answer("produce", lambda asked: suffer(told, asked, fates))
        sender = Sender(cluster, properties=QUICK | {"max.request.size": str(size_max)})
        expected: dict[int, list[bytes]] = {}
        for number, (index, count) in enumerate(sends):
            values = [b"%d.%d" % (number, part) for part in range(count)]
            expected.setdefault(index, []).extend(values)
            sender.send(TopicPartition(TOPIC, index), batch_of(*values), count)
        sender.flush()
        ends = sender.ends()
    assert {index: told.partitions[TOPIC, index].values for index in expected} == expected
    assert ends == {TopicPartition(TOPIC, index): (0, len(values)) for index, values in expected.items()}


def suffer(told: ToldPartitions, asked: Asked, fates: list[str]) -> bytes | None:
    """Answer one request by the next fates: one for its connection, one for each of its batches."""
    fate = fates.pop(0) if fates else "ok"
    if fate == "cut":
        return None
    told._fate = lambda: {"refuse": (6, False), "append and refuse": (7, True)}.get(
        fates.pop(0) if fates and fate == "refuse" else fate, (0, True)
    )
    reply = told.produce(asked)
    return None if fate == "append and cut" else reply


def test_five_requests_are_under_way_without_an_answer() -> None:
    told = ToldPartitions()
    held: list[bytes] = []
    with talking(told) as (broker, cluster):

        def hold(asked: Asked) -> bytes:
            """Say nothing until five requests have come; the first one alone is answered at once."""
            reply = told.produce(asked)
            if told.request_count == 1:
                return reply
            held.append(reply)
            if len(held) < 5:
                return b""
            answers = b"".join(held)
            held.clear()
            return answers

        broker.answer("produce", hold)
        sender = Sender(cluster, properties={})
        for number in range(11):
            sender.send(PLACE, batch_of(b"%d" % number), 1)
        sender.flush()
        assert broker.connection_count == 1
    assert told.partitions[TOPIC, 0].values == numbered(0, 11)
    assert told.request_count == 11


def test_batches_of_many_partitions_share_a_request() -> None:
    told = ToldPartitions()
    with talking(told, partitions=50) as (_, cluster):
        sender = Sender(cluster, properties={})
        for number in range(4):
            for index in range(50):
                sender.send(TopicPartition(TOPIC, index), batch_of(b"%d" % number), 1)
        sender.flush()
    assert told.batches_per_request == [50, 50, 50, 50]


def test_a_request_is_sent_as_soon_as_it_is_full() -> None:
    told = ToldPartitions()
    with talking(told, partitions=10) as (_, cluster):
        sender = Sender(cluster, properties={"max.request.size": "3000"})
        for index in range(10):
            sender.send(TopicPartition(TOPIC, index), batch_of(b"x" * 1_000), 1)
        assert sum(len(lane.waiting) for lane in sender._lanes.values()) <= 3
        sender.flush()
    assert max(told.batches_per_request) <= 3


def test_a_sequence_that_is_out_of_order_is_raised_when_nothing_came_before_it() -> None:
    told = ToldPartitions(lambda: (45, False))
    with talking(told) as (_, cluster):
        sender = Sender(cluster, properties=QUICK)
        sender.send(PLACE, batch_of(b"x"), 1)
        with pytest.raises(
            SendFailed, match=r"told-0: Produce: OUT_OF_ORDER_SEQUENCE_NUMBER.*may be missing"
        ):
            sender.flush()
    assert told.request_count == 1


def test_a_duplicate_counts_as_done() -> None:
    told = ToldPartitions(lambda: (46, False))
    with talking(told) as (_, cluster):
        sender = Sender(cluster, properties=QUICK)
        sender.send(PLACE, batch_of(b"x"), 1)
        sender.flush()
        assert sender.ends() == {}


def test_what_never_passes_fails_when_the_delivery_s_time_is_over() -> None:
    told = ToldPartitions(lambda: (19, False))
    with talking(told) as (_, cluster):
        sender = Sender(cluster, properties=QUICK | {"delivery.timeout.ms": "1000"})
        sender.send(PLACE, batch_of(b"x"), 1)
        with pytest.raises(SendFailed, match=r"told-0: .*delivery\.timeout\.ms=1000.*NOT_ENOUGH_REPLICAS"):
            sender.flush()
    assert told.request_count >= 2


def test_time_that_is_over_while_the_leader_is_looked_for_is_told_with_what_went_before() -> None:
    told = ToldPartitions(lambda: (19, False))
    with talking(told) as (broker, cluster):
        sender = Sender(cluster, properties=QUICK | {"delivery.timeout.ms": "2000"})
        sender.send(PLACE, batch_of(b"x"), 1)
        broker.answer("metadata", lambda _: None)
        with pytest.raises(
            SendFailed, match=r"delivery\.timeout\.ms=2000.*_REPLICAS \(19\), then .*Metadata"
        ):
            sender.flush()


def test_a_broker_that_leaves_a_partition_out_is_noticed() -> None:
    told = ToldPartitions()
    with talking(told) as (broker, cluster):

        def leave_out(asked: Asked) -> bytes:
            return bytes(encode_produce(asked.version, asked.correlation, [], 0, ()))

        broker.answer("produce", leave_out)
        sender = Sender(cluster, properties=QUICK)
        sender.send(PLACE, batch_of(b"x"), 1)
        with pytest.raises(SendFailed, match=r"told-0: .* missing in the answer"):
            sender.flush()


def test_no_producer_id_is_given_to_whoever_may_not_have_one() -> None:
    with talking(ToldPartitions()) as (broker, cluster):
        broker.answer(
            "init_producer_id", lambda asked: asked.respond(error_code=31, producer_id=-1, producer_epoch=-1)
        )
        with pytest.raises(SendFailed, match=r"CLUSTER_AUTHORIZATION_FAILED.*enable.idempotence=false"):
            Sender(cluster, properties=QUICK).send(PLACE, batch_of(b"x"), 1)


def test_sequences_go_on_from_zero_after_the_last() -> None:
    identity = ProducerIdentity(9, 3)
    identity.next_sequences[PLACE] = 2**31 - 2
    sequences = []
    for count in (1, 3, 1):
        batch = batch_of(*[b"x"] * count)
        identity.stamp(PLACE, batch, count)
        header = read_header(batch)
        sequences.append(header.base_sequence)
        assert (header.producer_id, header.producer_epoch) == (9, 3)
    assert sequences == [2**31 - 2, 2**31 - 1, 2]
