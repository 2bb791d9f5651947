"""ZooKeeper's store when things go wrong: a server that is killed, a session that expires, no permission.

A session is ended as ZooKeeper's own tests do it: somebody else takes it up by its number and password, and
closes it, while its owner is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from tests.chaos.ports import unused_port
from tests.server.stores.contract.client import Client
from tests.server.stores.relay import Relay
from tidelog.base.config import BrokerSettings
from tidelog.base.limits import STORE_MULTI_SIZE_MAX
from tidelog.base.setting import InvalidSetting
from tidelog.cli.zookeeper_process import ZooKeeperProcess
from tidelog.cluster.paths import BROKERS, CHANGES, CONTROLLER, FOLDERS, TOPICS
from tidelog.cluster.store import (
    Changed,
    Create,
    Done,
    Multi,
    Node,
    ReadNodes,
    ReadTree,
    Refused,
    SessionEnded,
    StoreEvent,
    StoreReply,
    Tree,
    Unknown,
    Write,
)
from tidelog.server.locks import StartFailed
from tidelog.server.stores.connect import RETRIES, connect
from tidelog.server.stores.zookeeper import ZooKeeperStore
from tidelog.testing.process import BrokerDidNotStart, BrokerProcess

LOOK_SECONDS = 0.02
READINGS = 200
A, B, C = (f"{TOPICS}/{name}" for name in "abc")
MINE = f"{BROKERS}/1"
LATE = f"{BROKERS}/2"

ZooKeeperClient = Client[ZooKeeperStore]


class CutOff:
    """A client whose way to ZooKeeper can be cut, and whose session others can end."""

    def __init__(self, zookeeper: ZooKeeperProcess, folder: str) -> None:
        self._server = zookeeper.connect
        self.relay = Relay(zookeeper.port)
        self._kazoo = KazooClient(self.relay.connect + folder, timeout=20, connection_retry=RETRIES)
        self.client: ZooKeeperClient = Client(lambda notify: ZooKeeperStore(self._kazoo, notify))

    def expire(self) -> None:
        session = self._kazoo.client_id
        self.relay.cut()
        wait_until(lambda: not self.client.store.is_connected, self.client)
        thief = KazooClient(self._server, timeout=20, client_id=session)
        thief.start()
        thief.stop()
        thief.close()

    def count_listeners(self) -> int:
        """What kazoo has to call when something is changed, or the connection breaks."""
        watched = (self._kazoo._data_watchers, self._kazoo._child_watchers)
        return sum(len(listeners) for kind in watched for listeners in kind.values())

    def close(self) -> None:
        self.client.store.close()
        self.relay.__exit__(None, None, None)


def wait_until(is_so: Callable[[], bool], client: ZooKeeperClient) -> None:
    """For what is not notified itself; what is to be received can be received later."""
    while not is_so():
        client.told.acquire(timeout=LOOK_SECONDS)


def join(address: str, **more: str) -> ZooKeeperClient:
    settings = BrokerSettings(
        {"zookeeper.connect": address} | {name.replace("_", "."): more[name] for name in more}
    )
    return Client(lambda notify: asyncio.run(connect(settings, notify)))


@pytest.fixture
def folder(new_folder: Callable[[], str]) -> str:
    return new_folder()


@pytest.fixture
def other(zookeeper: ZooKeeperProcess, folder: str) -> Iterator[ZooKeeperClient]:
    client = join(zookeeper.connect + folder)
    yield client
    client.store.close()


@pytest.fixture
def cut_off(zookeeper: ZooKeeperProcess, folder: str) -> Iterator[CutOff]:
    with closing(CutOff(zookeeper, folder)) as made:
        yield made


def kinds(events: list[StoreEvent]) -> list[str]:
    return [type(event.outcome if isinstance(event, StoreReply) else event).__name__ for event in events]


def test_what_is_under_way_when_zookeeper_is_killed_is_told_once_and_when_it_is_back(
    zookeeper: ZooKeeperProcess, other: ZooKeeperClient
) -> None:
    store = other.store
    assert other.change(Create(MINE, b"", is_ephemeral=True)) == Done()
    for path in (CHANGES, BROKERS):
        other.watch(path)
    other.tree()
    paths = [f"{TOPICS}/{number}" for number in range(50)]
    for path in paths:
        other.send(Multi((Create(path, b""),)))
    other.wait_for_replies(1)
    zookeeper.pause()
    late = other.send(Multi((Create(A, b""),)))
    zookeeper.kill()
    wait_until(lambda: not store.is_connected, other)
    read = other.send(ReadTree("/", is_synced=True))
    told_while_down = hear_until_back(other, zookeeper)
    assert not {"Unknown", "Changed", "SessionEnded"} & set(kinds(told_while_down))
    outcome = other.outcome(read)
    for path in (CHANGES, BROKERS):
        other.wait_for(Changed(path))
    assert isinstance(outcome, Tree) and MINE in outcome.nodes, "the session has lived on"
    assert [reply.ticket for reply in other.replies()] == list(range(late - len(paths), late + 1))
    assert len(other.heard) == len(paths) + 1, "nothing is told twice"
    assert set(kinds(other.heard)) <= {"Done", "Unknown"}
    outcomes = zip((*paths, A), other.replies(), strict=True)
    done = {path for path, reply in outcomes if reply.outcome == Done()}
    assert done <= set(outcome.nodes)
    assert other.tree() == outcome.nodes, "what was unknown is decided"


def hear_until_back(client: ZooKeeperClient, zookeeper: ZooKeeperProcess) -> list[StoreEvent]:
    """Start it again. What was told before the client was connected again."""
    known = len(client.heard)
    client.heard += client.store.receive()
    zookeeper.spawn()
    while True:
        received = client.store.receive()
        if client.store.is_connected:
            told, client.heard = client.heard[known:], client.heard + received
            return told
        client.heard += received
        client.told.acquire(timeout=LOOK_SECONDS)


def test_who_was_cut_off_and_comes_back_in_time_keeps_its_session_and_is_told_to_look(
    cut_off: CutOff, other: ZooKeeperClient
) -> None:
    client = cut_off.client
    assert client.change(Create(MINE, b"", is_ephemeral=True)) == Done()
    client.watch(CHANGES)
    client.watch(CONTROLLER)
    client.tree()
    cut_off.relay.cut()
    wait_until(lambda: not client.store.is_connected, client)
    assert other.change(Create(A, b"meanwhile")) == Done()
    cut_off.relay.restore()
    client.wait_for(Changed(CHANGES))
    client.wait_for(Changed(CONTROLLER))
    assert client.tree() == {MINE: Node(b"", 0), A: Node(b"meanwhile", 0)}
    client.watch(CHANGES)
    client.tree()
    assert other.change(Create(f"{CHANGES}/", b"", is_sequential=True)) == Done()
    client.wait_for(Changed(CHANGES))
    assert client.heard == []


def test_what_changed_while_a_client_was_cut_off_is_reported_before_it_can_be_read(
    cut_off: CutOff, other: ZooKeeperClient
) -> None:
    client = cut_off.client
    assert client.change(Create(A, b"old")) == Done()
    client.watch(A)
    client.tree()
    for _ in range(READINGS):
        client.send(ReadNodes((A,)))
    client.wait_for_replies(1)
    cut_off.relay.cut()
    assert other.change(Write(A, b"new")) == Done()
    cut_off.relay.restore()
    client.wait_for_replies(READINGS)
    client.wait_until(lambda: Changed(A) in client.heard)
    shown = [
        place
        for place, event in enumerate(client.heard)
        if isinstance(event, StoreReply) and event.outcome == Tree({A: Node(b"new", 1)})
    ]
    assert shown and client.heard.count(Changed(A)) == 1
    assert client.heard.index(Changed(A)) < shown[0]


def test_who_watches_again_and_again_leaves_nothing_behind(cut_off: CutOff) -> None:
    client = cut_off.client
    for _ in range(10):
        client.watch(CHANGES)
        client.change(Create(f"{CHANGES}/", b"", is_sequential=True))
        client.wait_for(Changed(CHANGES))
    assert cut_off.count_listeners() <= 2


def test_the_end_of_an_idle_session_is_told_once_and_the_next_request_begins_a_new_one(
    cut_off: CutOff, other: ZooKeeperClient
) -> None:
    client = cut_off.client
    assert client.change(Create(MINE, b"old", is_ephemeral=True), Create(A, b"")) == Done()
    other.watch(BROKERS)
    client.watch(CHANGES)
    client.watch(BROKERS)
    assert sorted(other.tree()) == sorted(client.tree()) == [MINE, A]
    cut_off.expire()
    other.wait_for(Changed(BROKERS))
    cut_off.relay.restore()
    client.wait_for(SessionEnded())
    assert other.tree() == {A: Node(b"", 0)}
    assert client.change(Create(MINE, b"new", is_ephemeral=True)) == Done()
    assert other.change(Create(f"{CHANGES}/", b"", is_sequential=True)) == Done()
    assert client.tree()[MINE] == Node(b"new", 0)
    assert SessionEnded() not in client.heard, "it is told once"
    client.watch(CHANGES)
    client.tree()
    assert other.change(Create(f"{CHANGES}/", b"", is_sequential=True)) == Done()
    client.wait_for(Changed(CHANGES))
    assert client.heard == [], "watches go with their session, and new ones report"


def test_what_was_asked_in_a_session_that_ends_comes_to_nothing_and_is_not_done_in_the_next(
    cut_off: CutOff, other: ZooKeeperClient
) -> None:
    client = cut_off.client
    assert client.change(Create(MINE, b"", is_ephemeral=True), Create(A, b"")) == Done()
    cut_off.expire()
    client.send(Multi((Create(LATE, b"", is_ephemeral=True),)))
    client.send(Multi((Write(A, b"late"),)))
    client.send(ReadTree("/"))
    client.watch(A)
    cut_off.relay.restore()
    client.wait_for(SessionEnded())
    assert kinds(client.heard) == ["Unknown"] * 3
    assert [reply.ticket for reply in client.replies()] == [2, 3, 4]
    assert other.tree() == {A: Node(b"", 0)}


def test_what_is_asked_before_the_end_of_the_session_is_heard_of_comes_to_nothing(
    cut_off: CutOff, other: ZooKeeperClient
) -> None:
    client = cut_off.client
    assert client.change(Create(A, b"")) == Done()
    while client.told.acquire(blocking=False):
        pass
    cut_off.expire()
    cut_off.relay.restore()
    assert client.told.acquire(timeout=30)
    client.watch(A)
    client.send(Multi((Write(A, b""),)))
    client.send(ReadTree("/"))
    assert kinds(client.store.receive()) == ["Unknown", "Unknown", "SessionEnded"]
    assert client.tree() == {A: Node(b"", 0)}
    assert client.change(Write(A, b"")) == Done()
    assert client.heard == [] and other.tree() == {A: Node(b"", 1)}


def test_a_store_is_closed_while_zookeeper_cannot_be_reached(cut_off: CutOff) -> None:
    client = cut_off.client
    assert client.change(Create(A, b"")) == Done()
    cut_off.relay.cut()
    wait_until(lambda: not client.store.is_connected, client)
    client.send(ReadTree("/"))
    client.watch(CHANGES)
    client.store.close()
    assert client.store.receive() == []


def test_more_than_zookeeper_takes_at_once_is_refused_and_says_so(other: ZooKeeperClient) -> None:
    half = STORE_MULTI_SIZE_MAX // 2
    outcome = other.change(Create(A, b"a" * half), Create(B, b"b" * half))
    assert isinstance(outcome, Refused) and "ZooKeeper's limit for one request" in outcome.reason
    assert other.tree() == {}
    assert other.change(Create(A, b"a" * half), Create(B, b"b" * (half - 1_000))) == Done()
    assert sorted(other.tree()) == [A, B]


def test_with_nobody_there_the_start_fails_and_names_the_setting() -> None:
    address = f"127.0.0.1:{unused_port()}"
    with pytest.raises(StartFailed, match=f"zookeeper.connect={address}: no ZooKeeper server answered"):
        join(address, zookeeper_connection_timeout_ms="200")


def test_permissions_need_a_name_that_has_them() -> None:
    with pytest.raises(InvalidSetting, match=r"zookeeper\.set\.acl=true needs zookeeper\.username"):
        join("127.0.0.1:1", zookeeper_set_acl="true")


def enter(address: str, passwords: list[tuple[str, str]]) -> ZooKeeperClient:
    """As a broker would that did not ask whether it may."""
    kazoo = KazooClient(address, auth_data=passwords, connection_retry=RETRIES)
    return Client(lambda notify: ZooKeeperStore(kazoo, notify))


def test_what_was_made_with_permissions_nobody_else_can_read_or_change(
    zookeeper: ZooKeeperProcess, folder: str
) -> None:
    address = zookeeper.connect + folder
    name = {"zookeeper_username": "broker", "zookeeper_set_acl": "true"}
    owner = join(address, zookeeper_password="secret", **name)
    assert owner.change(Create(A, b"1")) == Done()
    for passwords in ([], [("digest", "broker:wrong")]):
        stranger = enter(address, passwords)
        for action in (Multi((Write(A, b"2"),)), Multi((Create(B, b""),)), ReadTree(TOPICS)):
            outcome = stranger.ask(action)
            assert isinstance(outcome, Refused | Unknown) and "NoAuthError" in outcome.reason
        stranger.store.close()
    friend = join(address, zookeeper_password="secret", **name)
    assert friend.tree() == {A: Node(b"1", 0)}
    assert friend.change(Write(A, b"2", 0)) == Done()
    owner.store.close()
    friend.store.close()


STRANGERS = [
    (
        {},
        r"denies access \(no zookeeper.username is set\), .*; set zookeeper.username and",
    ),
    (
        {"zookeeper_username": "broker", "zookeeper_password": "wrong"},
        "denies access to zookeeper.username=broker, .*; set",
    ),
    (
        {"zookeeper_username": "other", "zookeeper_password": "secret"},
        "denies access to zookeeper.username=other, .*; set",
    ),
]


@pytest.mark.parametrize("permissions", ["of its owner alone", "for all to read"])
@pytest.mark.parametrize(("who", "line"), STRANGERS, ids=range(len(STRANGERS)))
def test_a_start_under_a_wrong_name_or_password_ends_and_names_the_settings(
    zookeeper: ZooKeeperProcess, folder: str, who: dict[str, str], line: str, permissions: str
) -> None:
    address = zookeeper.connect + folder
    name = {"zookeeper_username": "broker", "zookeeper_set_acl": "true"}
    owner = join(address, zookeeper_password="secret", **name)
    owner.store.close()
    if permissions == "for all to read":
        let_all_read(address)
    with pytest.raises(StartFailed, match=f"zookeeper.connect={address}: .* {line}"):
        join(address, **who)
    join(address, zookeeper_password="secret", **name).store.close()


def let_all_read(address: str) -> None:
    kazoo = KazooClient(address, auth_data=[("digest", "broker:secret")])
    kazoo.start()
    for path in ("/", *FOLDERS):
        owner = make_digest_acl("broker", "secret", all=True)
        kazoo.set_acls(path, [owner, make_acl("world", "anyone", read=True)])
    kazoo.stop()
    kazoo.close()


def test_what_tries_permissions_leaves_nothing(other: ZooKeeperClient) -> None:
    assert other.tree() == {}
    assert other.store.is_allowed()
    assert other.tree() == {}


def test_a_broker_with_a_wrong_password_says_so_and_exits_2(
    zookeeper: ZooKeeperProcess, folder: str, tmp_path: Path
) -> None:
    address = zookeeper.connect + folder
    name = {"zookeeper_username": "broker", "zookeeper_set_acl": "true"}
    join(address, zookeeper_password="secret", **name).store.close()
    properties = {
        "zookeeper.connect": address,
        "zookeeper.username": "broker",
        "zookeeper.password": "swordfish",
        "zookeeper.set.acl": "true",
    }
    with pytest.raises(
        BrokerDidNotStart, match=r"(?s)exit code 2: .*denies access to zookeeper\.username=broker"
    ) as ended:
        BrokerProcess(tmp_path, properties).start()
    assert "swordfish" not in str(ended.value)
