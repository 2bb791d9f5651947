"""Hostile clients against a real broker: each loses its connection, nobody else notices, the log is whole."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import pytest

from tests.server.wire_client import WireClient, fetch_values, produce_values
from tests.wire.harness import API_VERSIONS, FETCH, METADATA, PRODUCE, batch_of
from tests.wire.requests import metadata_values
from tidelog.base.config import BrokerSettings, TopicSettings
from tidelog.base.files import DiskDirectory
from tidelog.base.limits import FRAME_GROWTH_SIZE
from tidelog.log.recovery import open_log
from tidelog.testing.process import BrokerProcess

_SIZE = Struct(">i")
MEGABYTE = 2**20
UNREAD_GROWTH_MAX = 64 * MEGABYTE
TURNS = 400


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all of them: what one client did must not show in the next test."""
    with BrokerProcess(tmp_path_factory.mktemp("hostile")) as process:
        with WireClient(process.port) as friend:
            friend.create_topic("t")
            friend.create_topic("large")
            for _ in range(20):
                friend.produce("large", batch_of(value=bytes(900_000)))
        yield process
        assert process.is_running
        assert process.stop() == 0
        assert "Traceback" not in process.stderr()
        assert_logs_are_whole(Path(process.properties["log.dirs"]))


def assert_logs_are_whole(directory: Path) -> None:
    folders = [folder for folder in directory.iterdir() if folder.is_dir()]
    assert folders
    for folder in folders:
        log, report = open_log(DiskDirectory(str(folder)), TopicSettings(BrokerSettings({}), {}), 0)
        assert (report.cut_bytes, report.problems) == (0, [])
        log.close(clean=False)


@pytest.fixture
def friend(broker: BrokerProcess) -> Iterator[WireClient]:
    """A client that is connected all the while, and served before and after."""
    with WireClient(broker.port) as client:
        before = client.produce("t")
        yield client
        after = client.produce("t")
        assert after > before
        assert client.fetch("t", after).high_watermark == after + 1


@pytest.mark.parametrize("seed", range(8))
def test_garbage_closes_the_connection(broker: BrokerProcess, friend: WireClient, seed: int) -> None:
    with WireClient(broker.port) as client:
        client.socket.sendall(b"\x00\x00\x00\x40" + random.Random(seed).randbytes(5_000))
        assert client.is_closed_by_peer()


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 1, 7, 104_857_601, 2**31 - 1])
def test_a_size_outside_the_limits_closes_the_connection(
    broker: BrokerProcess, friend: WireClient, size: int
) -> None:
    with WireClient(broker.port) as client:
        client.greet()
        client.socket.sendall(_SIZE.pack(size))
        assert client.is_closed_by_peer()


def test_http_and_tls_are_turned_away(broker: BrokerProcess, friend: WireClient) -> None:
    for hello in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    ):
        with WireClient(broker.port) as client:
            client.socket.sendall(hello)
            assert client.is_closed_by_peer()


@pytest.mark.parametrize("key", [-1, 7, 999])
def test_an_unknown_api_closes_the_connection_after_what_came_before(
    broker: BrokerProcess, friend: WireClient, key: int
) -> None:
    with WireClient(broker.port) as client:
        good = client.framed(API_VERSIONS, 3, client_software_name="x", client_software_version="1")
        bad = Struct(">hhih").pack(key, 0, 9, -1)
        client.socket.sendall(good + _SIZE.pack(len(bad)) + bad + good)
        assert client.read_frame()[4:8] == good[8:12]
        assert client.is_closed_by_peer()


def test_frames_that_are_broken_off_leave_nothing_behind(broker: BrokerProcess, friend: WireClient) -> None:
    for size in (4, 5, 11, 30, 5_000):
        with WireClient(broker.port) as client:
            client.socket.sendall((_SIZE.pack(100_000_000) + bytes(5_000))[:size])
    friend.greet()


def test_a_client_that_sends_byte_by_byte_is_served(broker: BrokerProcess, friend: WireClient) -> None:
    with WireClient(broker.port) as client:
        for _ in range(3):
            frame = client.framed(METADATA, 12, **metadata_values(12, ["t"]))
            for byte in frame:
                client.socket.sendall(bytes([byte]))
                if byte == frame[-1]:
                    friend.greet()
            assert client.read_frame()[4:8] == frame[8:12]


def test_a_request_in_many_packets_is_put_together(broker: BrokerProcess, friend: WireClient) -> None:
    with WireClient(broker.port) as client:
        value = random.Random(5).randbytes(300_000)
        frame = client.framed(PRODUCE, 9, **produce_values("t", batch_of(value=value)))
        for start in range(0, len(frame), 1_000):
            client.socket.sendall(frame[start : start + 1_000])
        assert client.read_frame()[4:8] == frame[8:12]
        friend.greet()


def test_thousands_of_pipelined_requests_are_answered_in_order(
    broker: BrokerProcess, friend: WireClient
) -> None:
    count = 6_000
    with WireClient(broker.port) as client:
        stream = bytearray()
        for number in range(count):
            if number % 1_000 == 0:  # waits, and everything behind it with it
                stream += client.framed(FETCH, 12, **fetch_values("t", 0, max_wait_ms=100, min_bytes=2**30))
            elif number % 2:
                stream += client.framed(
                    API_VERSIONS, 3, client_software_name="x", client_software_version="1"
                )
            else:
                stream += client.framed(METADATA, 12, **metadata_values(12, ["t"]))
        sender = threading.Thread(target=client.socket.sendall, args=(stream,), daemon=True)
        sender.start()
        answered = [int.from_bytes(client.read_frame()[4:8], "big") for _ in range(count)]
        sender.join()
        assert answered == list(range(1, count + 1))


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1_024
    raise AssertionError("no VmRSS")


def stuff(client: WireClient, friend: WireClient, stream: bytes) -> None:
    """Send as much as is taken while the broker has many turns, in which it serves others too."""
    client.socket.setblocking(False)
    sent = 0
    for _ in range(TURNS):
        try:
            sent += client.socket.send(memoryview(stream)[sent:]) if sent < len(stream) else 0
        except BlockingIOError:
            pass
        friend.greet()
    assert sent > 0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="VmRSS is Linux's")
@pytest.mark.parametrize("kind", ["fetch", "echo"])
def test_a_client_that_reads_nothing_costs_little_memory(
    broker: BrokerProcess, friend: WireClient, kind: str
) -> None:
    before = resident_bytes(broker.pid)
    with WireClient(broker.port) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        asked = {
            "fetch": (FETCH, fetch_values("large", 0)),
            "echo": (PRODUCE, produce_values("x" * 30_000, batch_of())),
        }
        api_key, values = asked[kind]
        stream = b"".join(client.framed(api_key, 9 if kind == "echo" else 12, **values) for _ in range(4_000))
        stuff(client, friend, stream)
        assert resident_bytes(broker.pid) - before < UNREAD_GROWTH_MAX
        friend.produce("t")
    friend.greet()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="VmRSS is Linux's")
@pytest.mark.parametrize("sent_size", [1_000, FRAME_GROWTH_SIZE + 1_000])
def test_announced_sizes_take_no_memory(broker: BrokerProcess, friend: WireClient, sent_size: int) -> None:
    """A hundred times 100 MB are announced; each costs what has come, or the first buffer of a frame."""
    before = resident_bytes(broker.pid)
    clients = [WireClient(broker.port) for _ in range(100)]
    for client in clients:
        client.socket.sendall(_SIZE.pack(100_000_000) + bytes(sent_size))
    friend.greet()
    friend.produce("t")
    grown = resident_bytes(broker.pid) - before
    assert grown < len(clients) * max(FRAME_GROWTH_SIZE, sent_size) + UNREAD_GROWTH_MAX
    for client in clients:
        client.socket.close()


def test_many_connections_that_say_nothing_do_not_stop_the_others(
    broker: BrokerProcess, friend: WireClient
) -> None:
    clients = [WireClient(broker.port) for _ in range(300)]
    friend.produce("t")
    clients[-1].greet()
    for client in clients:
        client.socket.close()
