"""Ranges of offsets, from real brokers and from a scripted one: complete, in order, and over in time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.conftest import MakeTopic
from tests.client.scripted import TOPIC, TOPIC_ID, Asked, ScriptedBroker
from tests.client.test_cluster import tell_offsets
from tests.client.told_log import ToldLog, end_of, make_log, tell
from tests.client.written import records_of, values_in, write
from tests.compat.client import eventually
from tidelog.client.cluster import LATEST, Cluster, TopicPartition
from tidelog.client.errors import (
    DamagedBatch,
    MalformedAnswer,
    OffsetOutOfRange,
    ReadTimedOut,
    Refused,
    TopicGone,
)
from tidelog.client.reader import RangeReader, RawBatches
from tidelog.protocol.batch import read_header
from tidelog.protocol.fetch import FetchedPartition, encode_fetch
from tidelog.protocol.records import build_batch

PLACE = TopicPartition(TOPIC, 0)
COUNT = 500


def reader(
    cluster: Cluster,
    place: TopicPartition,
    start: int,
    end: int,
    *,
    committed_only: bool = False,
    fetch_bytes: int = 2_000,
    timeout_ms: int = 20_000,
) -> RangeReader:
    topic_id = cluster.describe([place.topic])[place.topic].id
    return RangeReader(
        cluster,
        place,
        topic_id,
        start,
        end,
        committed_only=committed_only,
        fetch_bytes=fetch_bytes,
        timeout_ms=timeout_ms,
    )


def numbered(start: int, end: int) -> list[tuple[int, bytes]]:
    return [(number, b"value %d" % number) for number in range(start, end)]


@pytest.fixture
def filled(bootstrap: str, new_topic: MakeTopic) -> TopicPartition:
    place = TopicPartition(new_topic(), 0)
    write(bootstrap, place, [value for _, value in numbered(0, COUNT)])
    return place


@pytest.mark.parametrize(
    ("start", "end"), [(0, COUNT), (0, 1), (3, 4), (123, 457), (COUNT - 1, COUNT), (5, 5)]
)
@pytest.mark.parametrize("committed_only", [False, True])
def test_a_range_is_read_whole_and_in_order(
    cluster: Cluster, filled: TopicPartition, start: int, end: int, committed_only: bool
) -> None:
    pieces = list(reader(cluster, filled, start, end, committed_only=committed_only))
    assert values_in(pieces, start, end) == numbered(start, end)
    assert all(read_header(piece.data, piece.start).base_offset < end for piece in pieces)
    if end - start > 100:
        assert len(pieces) > 3
        assert pieces[-1].next_offset >= end


def test_a_topic_whose_id_is_not_known_is_read_by_name(cluster: Cluster, filled: TopicPartition) -> None:
    pieces = RangeReader(cluster, filled, bytes(16), 10, 90, committed_only=False)
    assert values_in(pieces, 10, 90) == numbered(10, 90)


def test_a_batch_larger_than_a_piece_comes_whole(
    bootstrap: str, cluster: Cluster, new_topic: MakeTopic
) -> None:
    place = TopicPartition(new_topic(), 0)
    values = [b"a" * 700_000, b"b" * 10, b"c" * 800_000]
    write(bootstrap, place, values, batch_num_messages=1)
    pieces = list(reader(cluster, place, 0, 3, fetch_bytes=1_000))
    assert values_in(pieces, 0, 3) == list(enumerate(values))


def test_pieces_that_are_kept_stay_as_they_were(
    bootstrap: str, cluster: Cluster, new_topic: MakeTopic
) -> None:
    place = TopicPartition(new_topic(), 0)
    values = [b"%06d" % number * 20_000 for number in range(40)]
    write(bootstrap, place, values, batch_num_messages=1)
    pieces = list(reader(cluster, place, 0, len(values), fetch_bytes=300_000))
    assert len(pieces) > 10
    assert values_in(pieces, 0, len(values)) == list(enumerate(values))


def test_readers_of_one_broker_may_take_turns_and_be_left_half_way(
    cluster: Cluster, filled: TopicPartition
) -> None:
    first = iter(reader(cluster, filled, 0, COUNT))
    left = iter(reader(cluster, filled, 50, COUNT))
    second = iter(reader(cluster, filled, 100, COUNT))
    pieces: list[list[RawBatches]] = [[], []]
    next(left)
    while (one := next(first, None)) is not None:
        pieces[0].append(one)
        pieces[1] += filter(None, [next(second, None)])
        assert cluster.list_offsets({filled: LATEST})[filled].offset == COUNT
    assert isinstance(left, Iterator)
    left.close()  # type: ignore[attr-defined]  # a generator, as the task of a `limit` leaves it
    assert values_in(pieces[0], 0, COUNT) == numbered(0, COUNT)
    assert values_in(pieces[1], 100, COUNT) == numbered(100, COUNT)
    assert cluster.list_offsets({filled: LATEST})[filled].offset == COUNT
    assert cluster.leader(filled).under_way_count == 0 and not cluster.leader(filled)._answers


def test_offsets_that_were_deleted_are_out_of_range(
    admin: AdminClient, cluster: Cluster, filled: TopicPartition
) -> None:
    below = ConfluentPartition(filled.topic, 0, 200)
    admin.delete_records([below])[below].result()
    with pytest.raises(OffsetOutOfRange, match=f"{filled}: .*offset 100.*200 to {COUNT}") as problem:
        list(reader(cluster, filled, 100, COUNT))
    assert (problem.value.offset, problem.value.log_start_offset, problem.value.log_end_offset) == (
        100,
        200,
        COUNT,
    )
    with pytest.raises(OffsetOutOfRange) as problem:
        list(reader(cluster, filled, COUNT + 1, COUNT + 9))
    assert problem.value.log_end_offset == COUNT
    assert values_in(reader(cluster, filled, 200, COUNT), 200, COUNT) == numbered(200, COUNT)


def test_a_range_beyond_the_log_s_end_times_out_with_its_place(
    cluster: Cluster, filled: TopicPartition
) -> None:
    with pytest.raises(ReadTimedOut, match=f"{filled}: .* offset {COUNT} .*the high watermark is {COUNT}"):
        list(reader(cluster, filled, 490, COUNT + 1, timeout_ms=300))


def test_a_deleted_topic_is_gone_and_one_that_was_made_again_too(
    admin: AdminClient, cluster: Cluster, filled: TopicPartition, new_topic: MakeTopic
) -> None:
    topic_id = cluster.describe([filled.topic])[filled.topic].id
    admin.delete_topics([filled.topic])[filled.topic].result()
    eventually(lambda: not cluster.describe([filled.topic]), "the topic is still there")
    again = RangeReader(cluster, filled, topic_id, 0, COUNT, committed_only=False)
    with pytest.raises(TopicGone, match=f"{filled}"):
        list(again)
    new_topic(name=filled.topic)
    with pytest.raises(TopicGone, match=f"{filled}: .*created again"):
        list(again)


@pytest.mark.java
def test_aborted_and_open_transactions_end_a_range_without_waiting(
    kafka: str, request: pytest.FixtureRequest
) -> None:
    with Cluster({"bootstrap.servers": kafka}) as cluster:
        producer = Producer({"bootstrap.servers": kafka, "transactional.id": request.node.name})
        place = TopicPartition("client-transactions", 0)
        producer.init_transactions(30)
        for is_kept in (True, False, True, False):
            producer.begin_transaction()
            for _ in range(10):
                producer.produce(place.topic, b"kept" if is_kept else b"dropped", partition=0)
            producer.flush(30)
            producer.commit_transaction(30) if is_kept else producer.abort_transaction(30)

        def stable_end() -> int:
            return cluster.list_offsets({place: LATEST}, committed_only=True)[place].offset

        eventually(lambda: stable_end() == 44, "the last marker was not written")
        pieces = list(reader(cluster, place, 0, 44, committed_only=True))
        assert pieces[-1].next_offset == 44
        assert {first for piece in pieces for _, first in piece.aborted or []} == {11, 33}
        assert len(values_in(pieces, 0, 44)) == 44
        producer.begin_transaction()
        producer.produce(place.topic, b"open", partition=0)
        producer.flush(30)
        assert stable_end() == 44
        assert cluster.list_offsets({place: LATEST})[place].offset == 45
        with pytest.raises(ReadTimedOut, match="the last stable offset is 44"):
            list(reader(cluster, place, 40, 45, committed_only=True, timeout_ms=200))
        assert values_in(reader(cluster, place, 44, 45), 44, 45) == [(44, b"open")]
        producer.abort_transaction(30)


SHAPES = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 1, 5, 40]), st.integers(1, 9), st.sampled_from([0, 1, 30, 400])),
    min_size=1,
    max_size=25,
)


@pytest.fixture(scope="module")
def told() -> Iterator[tuple[ScriptedBroker, Cluster]]:
    with ScriptedBroker() as broker:
        properties = {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": "1"}
        with Cluster(properties) as cluster:
            yield broker, cluster


def tell_policy(asked: Asked, policy: str) -> bytes:
    entry = asked.make(
        "DescribeConfigsResourceResult",
        name="cleanup.policy",
        value=policy,
        read_only=False,
        is_sensitive=False,
        synonyms=(),
        documentation=None,
    )
    result = asked.make(
        "DescribeConfigsResult",
        error_code=0,
        error_message=None,
        resource_type=2,
        resource_name=PLACE.topic,
        configs=(entry,),
    )
    return asked.respond(results=(result,))


@pytest.mark.parametrize("committed_only", [False, True])
def test_a_compacted_topic_that_ends_in_a_gap_is_over_when_a_second_answer_says_so(
    told: tuple[ScriptedBroker, Cluster], committed_only: bool
) -> None:
    broker, cluster = told
    log = ToldLog(make_log([(0, 5, 1)]), log_end=9)
    broker.answer("fetch", log.fetch)
    broker.answer("describe_configs", lambda asked: tell_policy(asked, "compact,delete"))
    pieces = list(reader(cluster, PLACE, 0, 9, committed_only=committed_only, timeout_ms=5_000))
    assert [record.offset for piece in pieces for record in records_of(piece)] == [0, 1, 2, 3, 4]
    assert len(log.requests) == 3


def test_a_gap_before_an_open_transaction_is_seen_by_what_comes_behind_it(
    told: tuple[ScriptedBroker, Cluster],
) -> None:
    broker, cluster = told
    log = ToldLog(make_log([(0, 5, 1), (4, 1, 1)]))
    log.last_stable_offset = 9
    broker.answer("fetch", log.fetch)
    broker.answer("describe_configs", lambda asked: tell_policy(asked, "delete"))
    pieces = list(reader(cluster, PLACE, 0, 9, committed_only=True, timeout_ms=5_000))
    assert [record.offset for piece in pieces for record in records_of(piece)] == [0, 1, 2, 3, 4]
    assert len(log.requests) == 3


@pytest.mark.parametrize("committed_only", [False, True])
@pytest.mark.parametrize(("policy", "empty_count"), [("delete", 1), ("delete", 2), ("compact", 1)])
def test_an_empty_answer_is_not_taken_for_the_end(
    told: tuple[ScriptedBroker, Cluster], policy: str, committed_only: bool, empty_count: int
) -> None:
    """As from a broker whose tiered storage is slow."""
    broker, cluster = told
    log = ToldLog(make_log([(0, 5, 1), (0, 5, 1)]))
    whole = list(log.batches)
    answers: list[int] = []

    def fetch(asked: Asked) -> bytes:
        answers.append(1)
        log.batches = [] if 1 < len(answers) <= 1 + empty_count else whole
        return log.fetch(asked)

    broker.answer("fetch", fetch)
    broker.answer("describe_configs", lambda asked: tell_policy(asked, policy))
    found = values_in(reader(cluster, PLACE, 0, 10, committed_only=committed_only, fetch_bytes=1), 0, 10)
    assert [offset for offset, _ in found] == list(range(10))


def test_empty_answers_for_what_the_log_has_time_out_with_their_place(
    told: tuple[ScriptedBroker, Cluster],
) -> None:
    broker, cluster = told
    broker.answer("fetch", ToldLog(make_log([(0, 5, 1)]), log_end=9).fetch)
    broker.answer("describe_configs", lambda asked: tell_policy(asked, "delete"))
    with pytest.raises(
        ReadTimedOut, match=r"told-0: no records at offset 5 .*although the log ends at 9 or later"
    ):
        list(reader(cluster, PLACE, 0, 9, timeout_ms=300))


def test_an_offset_that_is_out_of_range_for_a_moment_is_asked_for_again(
    told: tuple[ScriptedBroker, Cluster],
) -> None:
    broker, cluster = told
    log = ToldLog(make_log([(0, 5, 1)]))
    codes = [1]
    broker.answer(
        "fetch", lambda asked: tell(asked, row_of(error_code=codes.pop())) if codes else log.fetch(asked)
    )
    broker.answer("list_offsets", lambda asked: tell_offsets(asked, offset=3))
    with pytest.raises(OffsetOutOfRange):
        list(reader(cluster, PLACE, 0, 5))
    codes.append(1)
    assert values_in(reader(cluster, PLACE, 3, 5), 3, 5) == [(3, b"3."), (4, b"4.")]


@settings(max_examples=150, deadline=None)
@given(shape=SHAPES, tail=st.integers(0, 20), drawn=st.data())
def test_gaps_neither_lose_a_batch_nor_stop_a_range(
    told: tuple[ScriptedBroker, Cluster], shape: list[tuple[int, int, int]], tail: int, drawn: st.DataObject
) -> None:
    broker, cluster = told
    log = ToldLog(make_log(shape), log_end=end_of(make_log(shape)) + tail)
    broker.answer("fetch", log.fetch)
    broker.answer("describe_configs", lambda asked: tell_policy(asked, "compact"))
    start = drawn.draw(st.integers(0, log.high_watermark))
    end = drawn.draw(st.integers(start, log.high_watermark))
    size = drawn.draw(st.integers(1, 1_500))
    pieces = list(reader(cluster, PLACE, start, end, fetch_bytes=size, timeout_ms=5_000))
    headers = [read_header(batch) for batch in log.batches]
    wanted = [row for row in headers if start < end and row.last_offset >= start and row.base_offset < end]
    got = [record.offset for piece in pieces for record in records_of(piece)]
    assert got == [offset for row in wanted for offset in range(row.base_offset, row.last_offset + 1)]
    for piece, following in zip(pieces, [*pieces[1:], None], strict=False):
        last = records_of(piece)[-1].offset
        assert piece.next_offset == last + 1
        assert following is None or records_of(following)[0].offset > last


@pytest.mark.parametrize("version", range(4, 18))
def test_every_version_of_fetch_reads_the_same(version: int) -> None:
    log = ToldLog(make_log([(0, 3, 10), (4, 2, 500), (0, 5, 1)]))
    log.aborted = [(7, 3)]
    with ScriptedBroker(fetch=log.fetch) as broker:
        broker.versions[1] = (4, version)
        with Cluster({"bootstrap.servers": broker.bootstrap_servers}) as cluster:
            pieces = list(reader(cluster, PLACE, 0, 14, committed_only=True, fetch_bytes=300))
    assert [record.offset for piece in pieces for record in records_of(piece)] == [
        0,
        1,
        2,
        7,
        8,
        *range(9, 14),
    ]
    assert {asked.version for asked in broker.asked if asked.api_key == 1} == {version}
    assert all(piece.aborted == [(7, 3)] for piece in pieces)


def test_the_next_piece_is_asked_for_before_the_last_is_handed_out(
    told: tuple[ScriptedBroker, Cluster],
) -> None:
    broker, cluster = told
    log = ToldLog(make_log([(0, 1, 100)] * 20))
    second_came = threading.Event()

    def fetch(asked: Asked) -> bytes:
        if log.requests:
            second_came.set()
        return log.fetch(asked)

    broker.answer("fetch", fetch)
    pieces = iter(reader(cluster, PLACE, 0, 20, fetch_bytes=500))
    next(pieces)
    assert second_came.wait(10)
    assert len(list(pieces)) > 1


def test_the_last_request_asks_for_little_more_than_the_range_needs(
    told: tuple[ScriptedBroker, Cluster],
) -> None:
    broker, cluster = told
    log = ToldLog(make_log([(0, 10, 1_000)] * 100))
    broker.answer("fetch", log.fetch)
    list(reader(cluster, PLACE, 0, 250, fetch_bytes=200_000))
    sizes = [request.topics[0][1][0].max_bytes for request in log.requests]
    assert sizes[0] == 200_000 and sizes[-1] < 100_000


def row_of(**fields: object) -> FetchedPartition:
    return FetchedPartition(0, **({"high_watermark": 10, "last_stable_offset": 10} | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [3, 5, 6, 9, 56, 74, 75, 78, 100, 103])
def test_an_error_that_passes_is_tried_again(told: tuple[ScriptedBroker, Cluster], error: int) -> None:
    broker, cluster = told
    log = ToldLog(make_log([(0, 5, 1)]))
    codes = [error, error]
    broker.answer(
        "fetch", lambda asked: tell(asked, row_of(error_code=codes.pop())) if codes else log.fetch(asked)
    )
    assert len(values_in(reader(cluster, PLACE, 0, 5), 0, 5)) == 5
    assert codes == []


def test_an_error_that_does_not_pass_is_told_with_its_place(told: tuple[ScriptedBroker, Cluster]) -> None:
    broker, cluster = told
    broker.answer("fetch", lambda asked: tell(asked, row_of(error_code=2)))
    with pytest.raises(Refused, match=r"told-0: Fetch at offset 3: CORRUPT_MESSAGE \(2\)"):
        list(reader(cluster, PLACE, 3, 5))


def test_a_quota_s_empty_answer_is_waited_for(told: tuple[ScriptedBroker, Cluster]) -> None:
    broker, cluster = told
    log = ToldLog(make_log([(0, 5, 1)]))
    empty = [1, 1]

    def fetch(asked: Asked) -> bytes:
        if not empty:
            return log.fetch(asked)
        empty.pop()
        pieces = encode_fetch(asked.version, asked.correlation, 20, 0, 0, [])
        return b"".join(piece for piece in pieces if isinstance(piece, bytes | bytearray))

    broker.answer("fetch", fetch)
    assert len(values_in(reader(cluster, PLACE, 0, 5), 0, 5)) == 5


def test_a_partition_that_the_broker_leaves_out_is_noticed(told: tuple[ScriptedBroker, Cluster]) -> None:
    broker, cluster = told
    broker.answer("fetch", lambda asked: tell(asked, FetchedPartition(5)))
    with pytest.raises(MalformedAnswer, match="told-0"):
        list(reader(cluster, PLACE, 3, 5))


def damaged(position: int, content: bytes) -> bytes:
    batches = make_log([(0, 5, 1), (0, 5, 1)])
    batches[1][position : position + len(content)] = content
    return b"".join(batches)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (damaged(8, bytes(4)), "length 0"),
        (damaged(8, b"\xff\xff\xff\xff"), "length -1"),
        (damaged(16, b"\x01"), "message format 1"),
        (damaged(16, b"\x07"), "magic 7"),
        (damaged(23, b"\xff\xff\xff\xff"), r"5\+-1"),
        (damaged(0, bytes(8)), r"base offset 0\+4"),
        (damaged(0, b"\xff" * 8), r"base offset -1\+4"),
    ],
)
def test_a_header_that_cannot_be_is_told_with_its_place(
    told: tuple[ScriptedBroker, Cluster], records: bytes, reason: str
) -> None:
    broker, cluster = told
    broker.answer("fetch", lambda asked: tell(asked, row_of(records=records)))
    with pytest.raises(DamagedBatch, match=f"told-0: damaged at offset 5: .*{reason}"):
        list(reader(cluster, PLACE, 0, 10))


def test_a_broker_that_cuts_the_first_batch_is_asked_for_more_once(
    told: tuple[ScriptedBroker, Cluster],
) -> None:
    broker, cluster = told
    log = ToldLog([build_batch([(None, b"x" * 5_000, (), 1)])])

    def fetch(asked: Asked) -> bytes:
        log.fetch(asked)
        size = log.requests[-1].topics[0][1][0].max_bytes
        return tell(asked, row_of(records=bytes(log.batches[0])[: min(size, limit)]))

    broker.answer("fetch", fetch)
    limit = 10_000
    assert len(list(reader(cluster, PLACE, 0, 1, fetch_bytes=100))) == 1
    limit = 100
    with pytest.raises(DamagedBatch, match="told-0: the batch at offset 0"):
        list(reader(cluster, PLACE, 0, 1, fetch_bytes=100))


def test_a_topic_with_another_id_is_gone(told: tuple[ScriptedBroker, Cluster]) -> None:
    broker, cluster = told
    broker.answer("fetch", lambda asked: tell(asked, row_of(error_code=100)))
    assert broker.topic_id == TOPIC_ID
    with pytest.raises(TopicGone, match=r"told-0: .*created again"):
        list(RangeReader(cluster, PLACE, bytes(15) + b"x", 0, 5, committed_only=False))
