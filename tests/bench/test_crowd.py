"""The crowds of the load case do what they are said to do, and leave when they are told to."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from bench.load.crowd import SLOW_FETCHES, crowd

COUNT = 5


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        yield server


def accepted(listening: socket.socket, count: int = COUNT) -> list[socket.socket]:
    arrived = []
    for _ in range(count):
        connection, _ = listening.accept()
        connection.settimeout(30)
        arrived.append(connection)
    return arrived


def all_that_comes(connection: socket.socket) -> bytes:
    received = bytearray()
    while piece := connection.recv(1 << 16):
        received += piece
    connection.close()
    return bytes(received)


def test_idle_ones_say_nothing_and_go_when_the_block_ends(listening: socket.socket) -> None:
    with crowd("idle", listening.getsockname(), COUNT, "t"):
        arrived = accepted(listening)
    assert [all_that_comes(connection) for connection in arrived] == [b""] * COUNT


def test_half_open_ones_send_half_a_request(listening: socket.socket) -> None:
    with crowd("half-open", listening.getsockname(), COUNT, "t"):
        arrived = accepted(listening)
    for received in map(all_that_comes, arrived):
        (size,) = struct.unpack_from(">i", received)
        assert len(received) == (size + 4) // 2


def test_slow_readers_ask_for_much(listening: socket.socket) -> None:
    with crowd("slow", listening.getsockname(), COUNT, "t"):
        arrived = accepted(listening)
    for received in map(all_that_comes, arrived):
        (size,) = struct.unpack_from(">i", received)
        assert len(received) == SLOW_FETCHES * (size + 4)


def test_a_dripping_client_sends_one_byte_at_a_time(listening: socket.socket) -> None:
    with crowd("dripping", listening.getsockname(), 1, "t"):
        (connection,) = accepted(listening, 1)
        assert [len(connection.recv(100)) for _ in range(2)] == [1, 1]
    connection.close()


def test_busy_ones_take_turns_in_sending(listening: socket.socket) -> None:
    with crowd("busy", listening.getsockname(), COUNT, "t"):
        arrived = accepted(listening)
        frames = [connection.recv(1 << 16) for connection in arrived]
    assert len({*frames}) == 1 and frames[0]
    for connection in arrived:
        connection.close()


def test_a_storm_connects_and_is_gone(listening: socket.socket) -> None:
    with crowd("storm", listening.getsockname(), 100, "t"):
        for connection in accepted(listening, 20):
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
            connection.close()


def test_a_crowd_that_cannot_come_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(ChildProcessError, match="did not come"), crowd("idle", address, 1, "t"):
        pass
