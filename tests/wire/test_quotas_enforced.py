"""Clients that are over their quotas: what they are answered, and for how long they are muted."""

from __future__ import annotations

from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode

from tests.wire.harness import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    METADATA,
    PRODUCE,
    Harness,
    batch_of,
    frame_head,
    new_client,
    other_connection,
    parts,
    request_frame,
    seconds,
)
from tests.wire.requests import fetch_values, metadata_values, produce, produce_values
from tests.wire.test_handlers_quotas import alter
from tidelog.base.limits import QUOTA_NAME_LENGTH_MAX
from tidelog.broker import quotas
from tidelog.protocol.envelope import seal
from tidelog.protocol.errors import MalformedRequest

TESTER = {"client-id": "tester"}  # the client id of the harness
ANONYMOUS = {"user": "ANONYMOUS"}
CREATE_PARTITIONS = 37
NONE = timedelta(0)
PRODUCE_VERSION, FETCH_VERSION = 12, 12


@pytest.fixture
def limited(harness: Harness) -> Harness:
    harness.create_topic("t")
    return harness


def throttle_of_produce(harness: Harness, size: int, acks: int = 1) -> int:
    values = produce_values(harness, PRODUCE_VERSION, {"t": [(0, batch_of(value=b"v" * size))]}, acks)
    answer = harness.ask(PRODUCE, PRODUCE_VERSION, **values)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return milliseconds(answer.throttle_time)


def milliseconds(throttle_time: timedelta) -> int:
    return round(throttle_time.total_seconds() * 1_000)


def test_a_producer_over_its_quota_is_appended_first_and_muted_then(limited: Harness) -> None:
    alter(limited, 1, (TESTER, {"producer_byte_rate": 1_000.0}))
    told_ms = throttle_of_produce(limited, 20_000)
    assert 10_000 < told_ms < 10_200
    assert limited.partition("t").log.end_offset == 1
    assert limited.client.muted_until_ms == limited.broker.clock.uptime_ms + told_ms
    limited.advance(told_ms)
    assert limited.client.throttle_time_ms == 0
    assert 30_000 < throttle_of_produce(limited, 20_000) < 30_200


def test_a_producer_at_ten_times_its_quota_gets_about_that_and_others_wait_for_nothing(
    limited: Harness,
) -> None:
    """For 34 seconds, counted from the second one on: two bursts of ten seconds' worth, and little between
    them. `bench`, case `quotas`, has the same beside Kafka."""
    quota, size, other = 100_000, 10_000, new_client()
    alter(limited, 1, (TESTER, {"producer_byte_rate": float(quota)}))
    values = produce_values(limited, PRODUCE_VERSION, {"t": [(0, batch_of(value=b"v" * size))]}, 1)
    frame = request_frame(PRODUCE, PRODUCE_VERSION, 1, **values)
    begun_ms = limited.broker.clock.uptime_ms
    through = 0
    while (elapsed_ms := limited.broker.clock.uptime_ms - begun_ms) < 34_000:
        limited.send_frame(frame)
        limited.answers()
        through += len(frame) if elapsed_ms >= 1_000 else 0
        limited.advance(max(limited.client.throttle_time_ms, 1_000 * len(frame) // (10 * quota)))
        limited.client, other = other, limited.client
        limited.send(METADATA, 12, **metadata_values(12, []))
        assert limited.answer(METADATA, 12).throttle_time == NONE
        limited.client, other = other, limited.client
    assert 0.7 <= through / 33 / quota <= 1.35


def test_what_is_sent_without_wanting_an_answer_is_throttled_too(limited: Harness) -> None:
    alter(limited, 1, (TESTER, {"producer_byte_rate": 1_000.0}))
    values = produce_values(limited, PRODUCE_VERSION, {"t": [(0, batch_of(value=b"v" * 20_000))]}, acks=0)
    limited.send(PRODUCE, PRODUCE_VERSION, **values)
    assert limited.answers() == []
    assert limited.client.throttle_time_ms > 10_000


def test_an_answer_that_waited_tells_what_is_left_of_the_time(limited: Harness) -> None:
    limited.create_topic("flushed", flush_messages="1")
    alter(limited, 1, (TESTER, {"producer_byte_rate": 1_000.0}))
    limited.holds_flushes = True
    values = produce_values(
        limited, PRODUCE_VERSION, {"flushed": [(0, batch_of(value=b"v" * 20_000))]}, acks=1
    )
    limited.send(PRODUCE, PRODUCE_VERSION, **values)
    muted_until_ms = limited.client.muted_until_ms
    limited.advance(3_000)
    limited.release_flushes()
    told = limited.answer(PRODUCE, PRODUCE_VERSION).throttle_time
    assert told == timedelta(milliseconds=muted_until_ms - limited.broker.clock.uptime_ms)


def filled(harness: Harness, count: int = 30) -> None:
    for _ in range(count):
        assert produce(harness, PRODUCE_VERSION, "t", batch_of(value=b"v" * 1_000)).error_code == 0


def test_a_fetch_over_its_quota_has_no_topics_and_loses_nothing(limited: Harness) -> None:
    filled(limited)
    alter(limited, 1, (TESTER, {"consumer_byte_rate": 1_000.0}))
    first = limited.ask(FETCH, FETCH_VERSION, **fetch_values(limited, FETCH_VERSION, {"t": [(0, 0)]}))
    assert first.throttle_time == NONE
    size = len(first.responses[0].partitions[0].records)
    assert 8_000 < size <= 10_000  # what all windows but one may have
    second = limited.ask(FETCH, FETCH_VERSION, **fetch_values(limited, FETCH_VERSION, {"t": [(0, 9)]}))
    assert (second.responses, second.session_id, second.error_code) == ((), 0, ErrorCode.none)
    assert second.throttle_time > NONE
    limited.advance(round(second.throttle_time.total_seconds() * 1_000))
    limited.advance(11_000)
    third = limited.ask(FETCH, FETCH_VERSION, **fetch_values(limited, FETCH_VERSION, {"t": [(0, 9)]}))
    assert third.throttle_time == NONE
    assert len(third.responses[0].partitions[0].records) == size


def test_a_session_over_its_quota_goes_on(limited: Harness) -> None:
    filled(limited)
    alter(limited, 1, (TESTER, {"consumer_byte_rate": 1_000.0}))

    def ask(
        session_id: int, epoch: int, topics: dict[str, list[tuple[int, int]]]
    ) -> tuple[int, list[int], int, bool]:
        values = fetch_values(limited, FETCH_VERSION, topics, session_id=session_id, session_epoch=epoch)
        answer = limited.ask(FETCH, FETCH_VERSION, **values)
        limited.advance(round(answer.throttle_time.total_seconds() * 1_000))
        sizes = [len(each.partitions[0].records or b"") for each in answer.responses]
        return answer.session_id, sizes, answer.error_code, answer.throttle_time > NONE

    session_id, sizes, *_ = ask(0, 0, {"t": [(0, 0)]})
    assert session_id
    assert ask(session_id, 1, {"t": [(0, 9)]}) == (session_id, [], ErrorCode.none, True)
    limited.advance(11_000)
    assert ask(session_id, 2, {}) == (session_id, sizes, ErrorCode.none, False)


def test_a_session_that_would_begin_over_its_quota_does_not(limited: Harness) -> None:
    filled(limited)
    alter(limited, 1, (TESTER, {"consumer_byte_rate": 1_000.0}))
    limited.ask(FETCH, FETCH_VERSION, **fetch_values(limited, FETCH_VERSION, {"t": [(0, 0)]}))
    values = fetch_values(limited, FETCH_VERSION, {"t": [(0, 9)]}, session_epoch=0)
    answer = limited.ask(FETCH, FETCH_VERSION, **values)
    assert (answer.session_id, answer.responses) == (0, ())
    assert len(limited.broker.sessions) == 0


def test_a_fetch_that_waited_is_over_its_quota_when_it_is_answered(limited: Harness) -> None:
    filled(limited)
    alter(limited, 1, (TESTER, {"consumer_byte_rate": 1_000.0}))
    waiting = fetch_values(limited, FETCH_VERSION, {"t": [(0, 30)]}, max_wait_ms=60_000)
    limited.send(FETCH, FETCH_VERSION, **waiting)
    with other_connection(limited):
        limited.send(FETCH, FETCH_VERSION, **fetch_values(limited, FETCH_VERSION, {"t": [(0, 0)]}))
        assert limited.answers()
        produce(limited, PRODUCE_VERSION, "t", batch_of(value=b"v" * 3_000))
    limited.send(METADATA, 12, **metadata_values(12, []))  # nothing is said out of turn
    fetched, _ = limited.answers()
    assert len(fetched) < 100  # no records


def test_a_batch_that_no_window_has_room_for_passes_once(limited: Harness) -> None:
    produce(limited, PRODUCE_VERSION, "t", batch_of(value=b"v" * 50_000))
    produce(limited, PRODUCE_VERSION, "t", batch_of(value=b"v" * 50_000))
    alter(limited, 1, (TESTER, {"consumer_byte_rate": 1_000.0}))
    first, second = (
        limited.ask(FETCH, FETCH_VERSION, **fetch_values(limited, FETCH_VERSION, {"t": [(0, offset)]}))
        for offset in (0, 1)
    )
    assert len(first.responses[0].partitions[0].records) > 50_000
    assert second.responses == () and second.throttle_time > timedelta(seconds=30)


def test_time_of_requests_is_counted_and_throttled_by_a_window_at_most(limited: Harness) -> None:
    alter(limited, 1, (TESTER, {"request_percentage": 1.0}))

    def ask(took_ms: int) -> timedelta:
        answer = limited.ask(METADATA, 12, **metadata_values(12, []))
        limited.broker.quotas.end(took_ms * 1_000_000)
        throttle: timedelta = answer.throttle_time
        limited.advance(round(throttle.total_seconds() * 1_000))
        return throttle

    assert ask(100) == NONE  # all that ten seconds of one percent have
    assert ask(1) == NONE
    assert NONE < ask(50) < timedelta(seconds=1)
    assert ask(0) == timedelta(seconds=1)


def test_other_clients_are_not_concerned(limited: Harness) -> None:
    alter(limited, 1, ({"client-id": "somebody"}, {"producer_byte_rate": 1.0, "request_percentage": 0.001}))
    assert throttle_of_produce(limited, 50_000) == 0
    limited.broker.quotas.end(10**10)
    assert throttle_of_produce(limited, 50_000) == 0


def test_a_change_counts_at_once_and_what_was_used_still_does(limited: Harness) -> None:
    alter(limited, 1, (TESTER, {"producer_byte_rate": 1_000_000.0}))
    assert throttle_of_produce(limited, 50_000) == 0
    alter(limited, 1, (TESTER, {"producer_byte_rate": 1_000.0}))
    assert throttle_of_produce(limited, 10) > 40_000
    alter(limited, 1, (TESTER, {"producer_byte_rate": None}))
    limited.advance(60_000)
    assert throttle_of_produce(limited, 50_000) == 0
    assert not limited.broker.quotas.is_on


def test_all_connections_of_a_user_share_its_quota(limited: Harness) -> None:
    alter(limited, 1, (ANONYMOUS, {"producer_byte_rate": 10_000.0}))
    assert throttle_of_produce(limited, 60_000) == 0
    with other_connection(limited):
        assert throttle_of_produce(limited, 60_000) > 0
    limited.client = new_client()
    limited.client.principal = "User:ann"
    assert throttle_of_produce(limited, 60_000) == 0


def test_a_connection_that_gets_another_principal_gets_that_one_s_quota(limited: Harness) -> None:
    alter(limited, 1, (ANONYMOUS, {"producer_byte_rate": 1_000.0}))
    assert throttle_of_produce(limited, 20_000) > 0
    limited.client.principal = "User:ann"
    limited.advance(60_000)
    assert throttle_of_produce(limited, 20_000) == 0


# Topics.


def create(harness: Harness, version: int, *names: str, partitions: int = 1, dry: bool = False) -> list[int]:
    part = parts(CREATE_TOPICS, version)
    topics = tuple(
        part.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
        )
        for name in names
    )
    answer = harness.ask(CREATE_TOPICS, version, topics=topics, timeout=seconds(1), validate_only=dry)
    return [topic.error_code for topic in sorted(answer.topics, key=lambda each: each.name)]


OVER = ErrorCode.throttling_quota_exceeded


def test_topics_beyond_the_quota_are_refused_where_clients_know_the_error(limited: Harness) -> None:
    alter(limited, 1, (TESTER, {"controller_mutation_rate": 1.0}))
    assert create(limited, 7, "a", "b", "c", partitions=6) == [0, 0, OVER]  # a burst of 11
    assert limited.client.throttle_time_ms == 1_000
    assert create(limited, 5, "d") == [0]  # an older client waits instead
    assert limited.client.throttle_time_ms == 2_000
    limited.advance(2_000)
    assert create(limited, 7, "e", dry=True) == [0]
    assert create(limited, 7, "e", "f") == [0, OVER]


def test_partitions_that_are_deleted_or_added_count_as_well(limited: Harness) -> None:
    assert create(limited, 7, "a", "b", "c", partitions=12) == [0, 0, 0]
    alter(limited, 1, (TESTER, {"controller_mutation_rate": 1.0}))
    part = parts(DELETE_TOPICS, 6)
    topics = tuple(part.DeleteTopicState(name=name, topic_id=None) for name in ("a", "b"))
    answer = limited.ask(DELETE_TOPICS, 6, topics=topics, timeout=seconds(1))
    assert [row.error_code for row in sorted(answer.responses, key=lambda each: each.name)] == [0, OVER]
    assert answer.throttle_time == timedelta(seconds=1)
    limited.advance(1_000)
    growth = parts(CREATE_PARTITIONS, 3)
    wanted = tuple(growth.CreatePartitionsTopic(name=name, count=14, assignments=None) for name in ("b", "c"))
    answer = limited.ask(CREATE_PARTITIONS, 3, topics=wanted, timeout=seconds(1), validate_only=False)
    assert [row.error_code for row in answer.results] == [0, OVER]
    assert len(limited.broker.image.topics["c"].partitions) == 12


# Between brokers.


def test_a_request_in_an_envelope_counts_for_the_asker_and_mutes_no_broker(limited: Harness) -> None:
    alter(limited, 1, ({"user": "ann"}, {"controller_mutation_rate": 1.0}))
    limited.client.listener = limited.broker.replicas.listener
    part = parts(CREATE_TOPICS, 7)

    def ask(name: str, principal: str | None) -> tuple[int, int]:
        topic = part.CreatableTopic(
            name=name, num_partitions=20, replication_factor=1, assignments=(), configs=()
        )
        values = {"topics": (topic,), "timeout": seconds(1), "validate_only": False}
        inner = request_frame(CREATE_TOPICS, 7, 5, **values)
        frame = bytearray(seal(inner, principal, "10.0.0.1"))
        limited._correlation_id = 9
        frame[4:8] = (9).to_bytes(4, "big")
        limited.send_frame(frame)
        answer = limited.answer(CREATE_TOPICS, 7)
        return answer.topics[0].error_code, round(answer.throttle_time.total_seconds() * 1_000)

    assert ask("a", "User:ann") == (0, 0)
    assert ask("b", "User:ann") == (OVER, 9_000)
    assert ask("c", "User:bob") == (0, 0)
    assert ask("d", None) == (0, 0)
    assert limited.client.muted_until_ms == 0


@pytest.mark.parametrize(
    "inner",
    [
        b"",
        b"\0\3",
        b"\0\3\0\x0c\0\0\0\1\x7f\xff",
        frame_head(999, 0, 1),
        frame_head(METADATA, 99, 1),
        seal(frame_head(METADATA, 12, 1)),
    ],
)
def test_an_envelope_with_no_request_in_it_closes_the_connection(limited: Harness, inner: bytes) -> None:
    limited.client.listener = limited.broker.replicas.listener
    with pytest.raises(MalformedRequest):
        limited.send_frame(seal(inner, "User:ann", "10.0.0.1"))


def test_an_envelope_is_for_the_listener_between_brokers(limited: Harness) -> None:
    limited.client.listener = "CLIENTS"
    with pytest.raises(MalformedRequest, match="API 58"):
        limited.send_frame(seal(frame_head(METADATA, 12, 1)))


def test_followers_and_markers_are_not_counted(limited: Harness) -> None:
    filled(limited)
    alter(limited, 1, (ANONYMOUS, {"consumer_byte_rate": 1.0, "request_percentage": 0.001}))
    limited.client.listener = limited.broker.replicas.listener
    for _ in range(3):
        values = fetch_values(limited, FETCH_VERSION, {"t": [(0, 0)]})
        answer = limited.ask(FETCH, FETCH_VERSION, **values | {"replica_id": 2})
        limited.broker.quotas.end(10**9)
        assert answer.throttle_time == NONE
        assert limited.client.muted_until_ms == 0


# Names that somebody makes up.


def test_client_ids_that_somebody_makes_up_share_when_there_are_too_many(
    limited: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "QUOTA_USES_MAX", 20)
    alter(limited, 1, ({"client-id": None}, {"producer_byte_rate": 10_000.0}))
    throttled = 0
    values = produce_values(limited, PRODUCE_VERSION, {"t": [(0, batch_of(value=b"v" * 30_000))]}, 1)
    for number in range(100):
        limited.client = new_client()
        frame = request_frame(PRODUCE, PRODUCE_VERSION, 1, **values)
        body = frame[len(frame_head(PRODUCE, PRODUCE_VERSION, 1)) :]
        limited.send_frame(frame_head(PRODUCE, PRODUCE_VERSION, 1, b"made up %d" % number) + body)
        throttled += limited.client.throttle_time_ms > 0
        limited.answers()
    assert throttled > 70
    assert len([*limited.broker.quotas.uses]) <= 21


def test_room_is_made_of_those_who_have_used_nothing_lately(
    limited: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "QUOTA_USES_MAX", 20)
    alter(limited, 1, ({"client-id": None}, {"producer_byte_rate": 10_000.0}))
    for number in range(60):
        client = new_client()
        frame = frame_head(METADATA, 12, 1, b"made up %d" % number)
        limited.broker.quotas.begin(client, memoryview(bytearray(frame)))
        limited.advance(1_000)
        assert client.uses is not None and client.uses.produce is not None
        assert client.uses.produce.owner.client_id, number
    assert len([*limited.broker.quotas.uses]) <= 20


def test_a_client_id_of_any_length_has_a_quota(limited: Harness) -> None:
    alter(limited, 1, ({"client-id": None}, {"producer_byte_rate": 10_000.0}))
    client = new_client()
    for name in (b"", b"\xff\xfe", b"x" * 30_000):
        frame = memoryview(bytearray(frame_head(PRODUCE, PRODUCE_VERSION, 1, name)))
        limited.broker.quotas.begin(client, frame)
        assert client.uses is not None and client.uses.produce is not None
        assert len(client.uses.produce.owner.client_id) <= QUOTA_NAME_LENGTH_MAX
        assert len(client.uses.head) <= 512
