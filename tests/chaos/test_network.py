"""The network of the chaos tests: what is held is held, one way or both, and comes when it is healed."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from tests.chaos.network import Network
from tests.chaos.ports import owner

THERE, BACK = ("near", "far"), ("far", "near")
SOON_S = 0.2
LONG_S = 20.0


@dataclass
class Ends:
    network: Network
    way: int
    server: socket.socket
    near: socket.socket
    far: socket.socket


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Two ends of a connection through the network."""
    with socket.create_server(("127.0.0.1", 0)) as server, Network(lambda near, way: "near") as network:
        server.settimeout(LONG_S)
        way = network.open("far", server.getsockname()[1])
        with closing(connect(way)) as near, closing(server.accept()[0]) as far:
            far.settimeout(LONG_S)
            yield Ends(network, way, server, near, far)


def connect(way: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", way), LONG_S)


def is_silent(end: socket.socket) -> bool:
    end.settimeout(SOON_S)
    try:
        end.recv(100)
    except TimeoutError:
        return True
    finally:
        end.settimeout(LONG_S)
    return False


def test_bytes_pass_both_ways_in_order(ends: Ends) -> None:
    sent = os.urandom(1 << 18)
    ends.near.sendall(sent)
    assert take(ends.far, len(sent)) == sent
    ends.far.sendall(b"back")
    assert take(ends.near, 4) == b"back"


def take(end: socket.socket, size: int) -> bytes:
    taken = b""
    while len(taken) < size and (piece := end.recv(size - len(taken))):
        taken += piece
    return taken


@pytest.mark.parametrize("held", [THERE, BACK])
def test_one_way_is_held_and_the_other_passes(ends: Ends, held: tuple[str, str]) -> None:
    speaker, listener = (ends.near, ends.far) if held == THERE else (ends.far, ends.near)
    ends.network.hold(held)
    speaker.sendall(b"late")
    listener.sendall(b"now")
    assert take(speaker, 3) == b"now"
    assert is_silent(listener)
    ends.network.heal()
    assert take(listener, 4) == b"late"


def test_what_was_held_comes_though_its_sender_has_gone(ends: Ends) -> None:
    ends.network.hold(THERE, BACK)
    ends.near.sendall(b"last words")
    ends.near.close()
    assert is_silent(ends.far)
    ends.network.heal()
    assert take(ends.far, 100) == b"last words"


@pytest.mark.parametrize("held", [THERE, BACK])
def test_nobody_new_gets_through_while_a_way_is_held(ends: Ends, held: tuple[str, str]) -> None:
    ends.network.hold(held)
    ends.server.settimeout(SOON_S)
    with closing(connect(ends.way)) as late:
        late.sendall(b"hello")
        with pytest.raises(TimeoutError):
            ends.server.accept()
        ends.server.settimeout(LONG_S)
        ends.network.heal()
        with closing(ends.server.accept()[0]) as far:
            far.settimeout(LONG_S)
            assert take(far, 5) == b"hello"


def has_ended(end: socket.socket) -> bool:
    try:
        return end.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_dropped_connection_ends_at_both_ends(ends: Ends) -> None:
    ends.network.drop([BACK])
    assert has_ended(ends.near) and has_ended(ends.far)


def test_who_finds_nobody_is_turned_away(ends: Ends) -> None:
    ends.server.close()
    with closing(connect(ends.way)) as late:
        assert has_ended(late)


def test_a_connection_is_known_by_its_process(ends: Ends) -> None:
    near, far = ends.near.getsockname()[1], ends.near.getpeername()[1]
    assert owner(near, far, {"init": 1, "me": os.getpid()}) == "me"
    assert owner(near, far, {"init": 1}) is None
    assert owner(near, near, {"me": os.getpid()}) is None
