"""The probe over real sockets: friends, strangers, and those who only want to be in the way."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.server.wire_client import PATIENCE_S, WireClient, fetch_values
from tests.wire.harness import FETCH
from tidelog.base.limits import PROBE_CONNECTIONS_MAX, PROBE_HEAD_SIZE_MAX
from tidelog.server.serve import Server
from tidelog.server.watch import probe as probe_module
from tidelog.server.watch import scrape
from tidelog.server.watch.probe import BadHead, Head, parse_head
from tidelog.testing import Broker

LOOPBACK = {"probe_listener": "127.0.0.1:0"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(**LOOPBACK) as broker:
        yield broker


def ask(broker: Broker, path: str, method: str = "GET") -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection(broker.probe_address, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer, answer.read().decode()
    finally:
        connection.close()


@contextmanager
def raw(broker: Broker) -> Iterator[socket.socket]:
    host, port = broker.probe_address.split(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as sock:
        yield sock


def read_to_end(sock: socket.socket) -> bytes:
    data = b""
    try:
        while piece := sock.recv(1 << 16):
            data += piece
    except ConnectionError:
        pass
    return data


def samples(broker: Broker) -> dict[str, float]:
    answer, text = ask(broker, "/metrics")
    assert (answer.status, answer.headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    assert "version=0.0.4" in answer.headers["Content-Type"]
    families = text_string_to_metric_families(text)
    return {
        sample.name + "".join(f" {key}={sample.labels[key]}" for key in sorted(sample.labels)): sample.value
        for family in families
        for sample in family.samples
    }


# What dashboards made for Kafka ask for, from the JMX exporter's usual rules.
KNOWN_NAMES = [
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_messagesin_total topic=tides",
    "kafka_server_brokertopicmetrics_bytesin_total topic=tides",
    "kafka_server_brokertopicmetrics_bytesout_total topic=tides",
    "kafka_network_requestmetrics_requests_total request=Produce version=9",
    "kafka_network_requestmetrics_totaltimems quantile=0.99 request=Produce",
    "kafka_network_requestmetrics_totaltimems quantile=0.99 request=FetchConsumer",
    "kafka_server_delayedoperationpurgatory_purgatorysize delayedOperation=Fetch",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_log_log_size partition=0 topic=tides",
    "kafka_log_log_logstartoffset partition=0 topic=tides",
    "kafka_log_log_logendoffset partition=0 topic=tides",
    "process_cpu_seconds_total",
]


def test_a_busy_broker_shows_in_its_metrics() -> None:
    with Broker(**LOOPBACK) as broker, WireClient(broker.port) as client:
        client.create_topic("tides", flush_messages="1")
        client.produce("tides")
        client.fetch("tides", 0)
        client.send(FETCH, 12, **fetch_values("tides", 1, max_wait_ms=60_000))
        purgatory = "kafka_server_delayedoperationpurgatory_purgatorysize delayedOperation=Fetch"
        told = samples(broker)
        while not (told[purgatory] and told["tidelog_loop_lag_seconds_count"]):
            told = samples(broker)
        assert [name for name in KNOWN_NAMES if name not in told] == []
        assert told["kafka_server_brokertopicmetrics_messagesin_total topic=tides"] == 1
        connections = "kafka_server_socketservermetrics_connection_count"
        assert told[f"{connections} listener=PLAINTEXT networkProcessor=0"] == 1
        assert told["tidelog_fsync_seconds_count"] >= 1
        assert told["tidelog_store_seconds_count"] >= 3
        assert told["tidelog_request_seconds_count request=Produce"] == 1
        assert told["tidelog_request_seconds_count request=Fetch"] == 1, "the other one waits"


def test_a_client_that_sends_nonsense_is_counted() -> None:
    with Broker(**LOOPBACK, max_connections=1) as broker:
        with WireClient(broker.port) as client:
            client.greet()
            with WireClient(broker.port) as second:
                assert second.is_closed_by_peer()
            client.socket.sendall(b"\xff" * 8)
            assert client.is_closed_by_peer()
        told = samples(broker)
    assert told["tidelog_connections_broken_total"] == 1
    assert told["tidelog_connections_refused_total"] == 1


def test_a_broker_that_serves_is_healthy(broker: Broker) -> None:
    answer, text = ask(broker, "/health")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    told = json.loads(text)
    assert (told["status"], told["broker_id"], told["offline_directories"]) == ("ok", 1, [])
    assert len(told["cluster_id"]) == 22 and told["uptime_seconds"] >= 0


def test_health_follows_the_life_of_a_broker(tmp_path: Path) -> None:
    def health(server: Server) -> tuple[int, str, list[str]]:
        connection = http.client.HTTPConnection("127.0.0.1", server.probe_port, timeout=PATIENCE_S)
        connection.request("GET", "/health")
        answer = connection.getresponse()
        told = json.loads(answer.read())
        connection.close()
        return answer.status, told["status"], told["offline_directories"]

    async def live() -> None:
        properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": f"{tmp_path}/a,{tmp_path}/b"}
        server = Server(properties | {"probe.listener": "127.0.0.1:0"})
        await server.start()
        broker = server.broker
        assert await asyncio.to_thread(health, server) == (200, "ok", [])
        broker.standing.is_serving = False
        assert await asyncio.to_thread(health, server) == (503, "starting", [])
        broker.standing.is_serving = True
        first, second = broker.disks.directories
        broker.disks.fail(first, OSError(5, "Input/output error"))
        assert await asyncio.to_thread(health, server) == (200, "ok", [first.path])
        broker.disks.fail(second, OSError(5, "Input/output error"))
        assert await asyncio.to_thread(health, server) == (503, "failed", [first.path, second.path])
        await server.abort()
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(health, server)

    asyncio.run(live())


def test_without_the_setting_there_is_no_probe() -> None:
    with Broker() as broker, pytest.raises(AssertionError, match=r"probe\.listener"):
        broker.probe_address  # noqa: B018


def test_only_get_and_head_are_served(broker: Broker) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer, _ = ask(broker, "/metrics", method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    for path in ("/metrics", "/health"):
        answer, text = ask(broker, path, "HEAD")
        assert (answer.status, text) == (200, "")
    for path in ("/", "/metrics/", "/health/x", "/../etc/passwd"):
        assert ask(broker, path)[0].status == 404
    assert ask(broker, "/health?verbose=1")[0].status == 200


def test_a_connection_serves_many_requests(broker: Broker) -> None:
    connection = http.client.HTTPConnection(broker.probe_address, timeout=PATIENCE_S)
    connection.connect()
    first = connection.sock
    for path in ("/metrics", "/health", "/nowhere", "/metrics"):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert connection.sock is first
    connection.close()


def test_pipelined_requests_are_answered_in_order(broker: Broker) -> None:
    with raw(broker) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\n\r\nGET /nowhere HTTP/1.1\r\nConnection: close\r\n\r\n")
        answers = read_to_end(sock)
    assert re.findall(rb"HTTP/1\.1 (\d+) ", answers) == [b"200", b"404"]


def test_an_old_client_gets_the_text_as_it_is_and_a_closed_connection(broker: Broker) -> None:
    with raw(broker) as sock:
        sock.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        head, _, body = read_to_end(sock).partition(b"\r\n\r\n")
    assert b"chunked" not in head and b"Connection: close" in head
    assert {family.name for family in text_string_to_metric_families(body.decode())}


HOSTILE = [
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET /health\r\n\r\n",
    b"GET /health HTTP/2.0\r\n\r\n",
    b"GET  /health HTTP/1.1\r\n\r\n",
    b"GET http://example.com/ HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET /health HTTP/1.1\r\n: no name\r\n\r\n",
    b"GET /health HTTP/1.1\r\n folded: x\r\n\r\n",
    b"GET /health HTTP/1.1\r\nA b: x\r\n\r\n",
    b"GET /health HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    b"GET /health HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\n",
    b"GET /health HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /hea\x00lth HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    b"\xff" * 100 + b"\r\n\r\n",
]


@pytest.mark.parametrize("sent", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_not_a_request_is_refused_and_the_connection_closed(broker: Broker, sent: bytes) -> None:
    with raw(broker) as sock:
        sock.sendall(sent)
        answer = read_to_end(sock)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n"), answer
    assert len(re.findall(rb"HTTP/1\.1 \d", answer)) == 1
    assert ask(broker, "/health")[0].status == 200


def test_endless_headers_are_cut_off(broker: Broker) -> None:
    with raw(broker) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nX: " + b"x" * PROBE_HEAD_SIZE_MAX)
        assert read_to_end(sock).startswith(b"HTTP/1.1 431 ")


@given(st.binary(max_size=200))
def test_no_head_is_taken_that_is_not_one(data: bytes) -> None:
    try:
        head = parse_head(data + b"\r\n\r\n")
    except BadHead:
        return
    assert isinstance(head, Head) and head.path.startswith("/") and head.method.isalpha()


def test_silent_connections_make_room_for_a_health_check(broker: Broker) -> None:
    host, port = broker.probe_address.split(":")
    silent = [
        socket.create_connection((host, int(port)), PATIENCE_S) for _ in range(3 * PROBE_CONNECTIONS_MAX)
    ]
    for sock in silent:
        try:
            sock.sendall(b"GET /hea")
        except ConnectionError:
            pass
    assert ask(broker, "/health")[0].status == 200
    for sock in silent[: 2 * PROBE_CONNECTIONS_MAX]:
        assert read_to_end(sock) == b""
    for sock in silent:
        sock.close()


def test_whoever_does_not_finish_its_request_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "PROBE_IDLE_SECONDS_MAX", 0.05)
    with Broker(**LOOPBACK) as broker, raw(broker) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\n")
        assert read_to_end(sock) == b""


def test_whoever_does_not_take_its_answer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "PROBE_ANSWER_SECONDS_MAX", 0.2)
    monkeypatch.setattr(probe_module, "expose", lambda *_: itertools.repeat("x" * 100_000))
    with Broker(**LOOPBACK) as broker, WireClient(broker.port) as client:
        with raw(broker) as sock, pytest.raises(ConnectionError):
            while True:  # nothing is read, so that at last nothing can be sent either
                sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        client.greet()


def test_the_loop_has_its_turn_between_two_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is timed: the loop's turns during a scrape are counted."""
    monkeypatch.setattr(scrape, "SERIES_PER_PIECE", 5)
    turns = 0

    async def live() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
        server = Server(properties | {"probe.listener": "127.0.0.1:0"})
        await server.start()
        with WireClient(server.port) as client:
            await asyncio.to_thread(client.create_topic, "tides", 60)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.probe_port)
        is_over = False

        def turn() -> None:
            nonlocal turns
            turns += 1
            if not is_over:
                loop.call_soon(turn)

        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        turn()
        text = await reader.read()
        is_over = True
        writer.close()
        await server.stop()
        return turns, text.count(b"\n")

    turn_count, line_count = asyncio.run(live())
    assert line_count > 6 * 60
    assert turn_count >= 6 * 60 / 5


def test_a_failing_scrape_is_told_and_harms_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    def failing(*_: Any) -> Iterator[str]:
        yield "x 1\n"
        raise ZeroDivisionError

    monkeypatch.setattr(probe_module, "expose", failing)

    async def live() -> bytes:
        properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
        server = Server(properties | {"probe.listener": "127.0.0.1:0"}, lines.append)
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.probe_port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        try:
            got = await reader.read()
        except ConnectionError:
            got = b""
        writer.close()
        await server.stop()
        return got

    assert not asyncio.run(live()).endswith(b"0\r\n\r\n")
    assert any("probe failed" in line and "ZeroDivisionError" in line for line in lines)
