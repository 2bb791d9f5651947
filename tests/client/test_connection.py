"""One connection: versions, answers in order, and everything that is no answer."""

from __future__ import annotations

import socket
import threading
import tracemalloc
from collections.abc import Callable

import pytest

from tests.client.scripted import Asked, ScriptedBroker
from tidelog.client.connection import Connection
from tidelog.client.errors import ClientError, ConnectionLost, MalformedAnswer, UnsupportedByBroker
from tidelog.client.exchange import FETCH, LIST_OFFSETS, METADATA
from tidelog.client.metadata import MetadataExchange
from tidelog.protocol.apis import Api
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import encode_response, response_type, response_types


def connect(broker: ScriptedBroker, timeout_seconds: float = 20.0) -> Connection:
    """The time-out is for what follows: a busy machine may take its time to say hello."""
    connection = Connection("127.0.0.1", broker.port, {})
    connection.request_timeout_seconds = timeout_seconds
    return connection


def test_the_newest_version_that_both_speak_is_used() -> None:
    with ScriptedBroker() as broker:
        broker.versions |= {1: (4, 99), 2: (3, 7)}
        connection = connect(broker)
        assert connection.version_of(FETCH) == FETCH.newest_version
        assert connection.version_of(LIST_OFFSETS) == 7
        connection.close()


@pytest.mark.parametrize("versions", [(0, 3), (14, 20)])
def test_a_broker_without_a_common_version_is_refused_by_name(versions: tuple[int, int]) -> None:
    with ScriptedBroker() as broker:
        broker.versions[3] = versions
        connection = connect(broker)
        with pytest.raises(
            UnsupportedByBroker, match=f"{connection.address} supports Metadata {versions[0]}–"
        ):
            connection.version_of(METADATA)
        connection.close()


def test_an_older_broker_is_asked_again_in_the_version_it_names() -> None:
    def tell(asked: Asked) -> bytes:
        types = response_types(18, 0)
        row = types.ApiVersion(api_key=18, min_version=0, max_version=2)
        if asked.version > 2:
            old = response_type(18, 0)(error_code=ErrorCode.unsupported_version, api_keys=(row,))
            return encode_response(18, 0, asked.correlation, old)
        row = asked.make("ApiVersion", api_key=3, min_version=0, max_version=5)
        return asked.respond(error_code=0, api_keys=(row,))

    with ScriptedBroker(api_versions=tell) as broker:
        connection = connect(broker)
        assert [asked.version for asked in broker.asked] == [4, 2]
        assert connection.version_of(METADATA) == 5
        connection.close()


def test_answers_are_kept_for_those_who_ask_later_and_dropped_for_those_who_never_do() -> None:
    with ScriptedBroker() as broker:
        connection = connect(broker)
        first, second, third, fourth = (connection.send(MetadataExchange([name])) for name in "abcd")
        connection.forget(second)
        assert connection.receive(third).topics[0].name == "c"
        assert connection.receive(first).topics[0].name == "a"
        connection.forget(fourth)
        assert connection.call(MetadataExchange(["e"])).topics[0].name == "e"
        assert connection.under_way_count == 0
        connection.close()


def frame(size: int, rest: bytes = b"") -> bytes:
    return size.to_bytes(4, "big", signed=True) + rest


WRONG_SIZES = [frame(-1), frame(-(2**31)), frame(0), frame(3, b"abc"), frame(2**31 - 1)]


@pytest.mark.parametrize("reply", WRONG_SIZES, ids=repr)
def test_a_frame_of_an_impossible_size_is_refused(reply: bytes) -> None:
    with ScriptedBroker(metadata=lambda asked: reply) as broker:
        connection = connect(broker)
        with pytest.raises(MalformedAnswer, match=f"{connection.address} answered Metadata with"):
            connection.call(MetadataExchange(None))
        assert not connection.is_open


@pytest.mark.parametrize(
    ("reply", "hint"),
    [(b"HTTP/1.1 400 Bad Request\r\n", "web server"), (b"\x15\x03\x03\x00\x02\x02\x46", "security.protocol")],
)
def test_a_port_that_is_no_broker_s_is_told_for_what_it_is(reply: bytes, hint: str) -> None:
    with (
        ScriptedBroker(api_versions=lambda asked: reply) as broker,
        pytest.raises(MalformedAnswer, match=hint),
    ):
        connect(broker)


def half(asked: Asked, cut: Callable[[bytes], bytes]) -> bytes:
    return cut(asked.respond(brokers=(), cluster_id=None, controller_id=1, topics=()))


@pytest.mark.parametrize("kept", [0, 2, 4, 9])
def test_half_an_answer_is_a_lost_connection_that_names_broker_and_api(kept: int) -> None:
    with ScriptedBroker() as broker:

        def tell(asked: Asked) -> bytes | None:
            if kept:
                broker._sockets[-1].sendall(half(asked, lambda whole: whole[:kept]))
            return None

        broker.answer("metadata", tell)
        connection = connect(broker)
        with pytest.raises(ConnectionLost, match=f"{connection.address} closed .* Metadata"):
            connection.call(MetadataExchange(None))
        with pytest.raises(ConnectionLost, match="the connection is closed"):
            connection.send(MetadataExchange(None))


@pytest.mark.parametrize("kept", [0, 6])
def test_silence_ends_when_its_time_is_over(kept: int) -> None:
    with ScriptedBroker(metadata=lambda asked: half(asked, lambda whole: whole[:kept])) as broker:
        connection = connect(broker, 0.05)
        with pytest.raises(ConnectionLost, match=f"{connection.address} did not answer Metadata in time"):
            connection.call(MetadataExchange(None))
        assert not connection.is_open


WRONG_BODIES: list[Callable[[bytes], bytes]] = [
    lambda whole: whole[:4] + b"\x7f\0\0\0" + whole[8:],
    lambda whole: frame(len(whole) - 5, whole[4:-1]),
    lambda whole: frame(len(whole) - 4, whole[4:12] + b"\xff" * (len(whole) - 12)),
    lambda whole: frame(5, whole[4:9]),
]


@pytest.mark.parametrize("cut", WRONG_BODIES)
def test_an_answer_that_does_not_decode_closes_the_connection(cut: Callable[[bytes], bytes]) -> None:
    with ScriptedBroker(metadata=lambda asked: half(asked, cut)) as broker:
        connection = connect(broker)
        with pytest.raises(
            MalformedAnswer, match=f"{connection.address} sent a malformed answer to Metadata"
        ):
            connection.call(MetadataExchange(None))
        assert not connection.is_open


def test_memory_grows_with_what_arrived_and_not_with_what_was_announced() -> None:
    with ScriptedBroker(metadata=lambda asked: frame(900_000_000, bytes(100_000))) as broker:
        connection = connect(broker, 0.1)
        tracemalloc.start()
        with pytest.raises(ConnectionLost):
            connection.call(MetadataExchange(None))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
        tracemalloc.stop()


def test_an_answer_larger_than_the_first_buffer_comes_whole() -> None:
    filler = "x" * 30_000

    def tell(asked: Asked) -> bytes:
        row = asked.make(
            "MetadataResponseTopic",
            error_code=3,
            name=filler,
            topic_id=None,
            is_internal=False,
            partitions=(),
        )
        return asked.respond(brokers=(), cluster_id=None, controller_id=1, topics=(row,) * 2_000)

    with ScriptedBroker(metadata=tell) as broker:
        connection = connect(broker)
        topics = connection.call(MetadataExchange(None)).topics
        assert len(topics) == 2_000 and all(topic.name == filler for topic in topics)
        connection.close()


def test_a_broker_that_must_first_be_rid_of_an_answer_is_rid_of_it_while_we_send() -> None:
    filler = "x" * 30_000

    def tell(asked: Asked) -> bytes:
        names = [topic.name for topic in asked.decode().topics]
        row = asked.make(
            "MetadataResponseTopic",
            error_code=3,
            name=f"{len(names)}{filler}",
            topic_id=None,
            is_internal=False,
            partitions=(),
        )
        return asked.respond(brokers=(), cluster_id=None, controller_id=1, topics=(row,) * 1_000)

    with ScriptedBroker(metadata=tell) as broker:
        connection = connect(broker)
        small = connection.send(MetadataExchange(["a"]))
        large = connection.send(MetadataExchange([filler + str(number) for number in range(1_000)]))
        for correlation, count in ((small, 1), (large, 1_000)):
            topics = connection.receive(correlation).topics
            assert len(topics) == 1_000 and topics[0].name == f"{count}{filler}"
        connection.close()


def test_a_broker_that_takes_nothing_is_given_up_in_time() -> None:
    release = threading.Event()

    def hold(asked: Asked) -> None:
        release.wait(20)

    with ScriptedBroker(metadata=hold) as broker:
        connection = connect(broker, 0.2)
        connection.send(MetadataExchange(["a"]))
        with pytest.raises(ConnectionLost, match=f"{connection.address} did not read Metadata in time"):
            connection.send(MetadataExchange(["x" * 30_000] * 1_000))
        release.set()


def test_an_interrupt_in_the_middle_of_an_answer_leaves_no_half_of_it_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ScriptedBroker() as broker:
        connection = connect(broker)
        read_into = Connection._read_into

        def interrupted(self: Connection, view: memoryview, deadline: float, api: Api) -> int:
            if len(view) > 4:
                raise KeyboardInterrupt
            return read_into(self, view, deadline, api)

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Connection, "_read_into", interrupted)
            connection.call(MetadataExchange(None))
        with pytest.raises(ConnectionLost):
            connection.call(MetadataExchange(None))


def test_a_port_where_nobody_listens_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectionLost, match=f"cannot connect to 127.0.0.1:{port}"):
        Connection("127.0.0.1", port, {})


def test_a_broker_that_hangs_up_on_the_greeting_is_a_lost_connection() -> None:
    with (
        ScriptedBroker(api_versions=lambda asked: None) as broker,
        pytest.raises(ClientError, match="ApiVersions"),
    ):
        connect(broker)
