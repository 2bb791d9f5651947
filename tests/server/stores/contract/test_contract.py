"""What the broker may expect of every store: versions, all or nothing, watches, order.

A store that brokers share (`SHARED`) has more than one client, numbers nodes and lets ephemeral ones go with
their session. The embedded one has a single client, which is why it has neither watches nor numbers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.stores.contract.client import Client
from tidelog.base.config import BrokerSettings
from tidelog.cluster.paths import BROKERS, CHANGES, TOPICS
from tidelog.cluster.store import (
    Changed,
    Check,
    Create,
    Delete,
    Done,
    Multi,
    Node,
    Operation,
    ReadNodes,
    ReadTree,
    Refused,
    Store,
    StoreReply,
    Tree,
    Write,
)
from tidelog.server.stores.connect import connect
from tidelog.server.stores.embedded import EmbeddedStore
from tidelog.server.stores.memory import MemoryStore, MemoryTree

SHARED = ("memory", "zookeeper")
NOTICES = 60
THREADS = 3
ROUNDS = 15
A, B, NONE = (f"{TOPICS}/{name}" for name in ("a", "b", "none"))
ELSEWHERE = f"{BROKERS}/1"
NOTICE = Create(f"{CHANGES}/", b"", is_sequential=True)

AnyClient = Client[Store]
Join = Callable[[], AnyClient]


def opener(kind: str, request: pytest.FixtureRequest) -> Callable[[Callable[[], object]], Store]:
    """What opens a store; the stores that it opens share one tree."""
    if kind == "memory":
        tree = MemoryTree()
        return lambda notify: MemoryStore(tree, notify)
    if kind == "embedded":
        folder: Path = request.getfixturevalue("tmp_path")
        return lambda notify: EmbeddedStore(str(folder / "store"), notify)
    address = request.getfixturevalue("zookeeper").connect + request.getfixturevalue("new_folder")()
    settings = BrokerSettings({"zookeeper.connect": address})
    return lambda notify: asyncio.run(connect(settings, notify))


@pytest.fixture(params=("embedded", *SHARED))
def join(request: pytest.FixtureRequest) -> Iterator[Join]:
    """Makes clients of one store."""
    open_store = opener(request.param, request)
    clients: list[AnyClient] = []

    def make() -> AnyClient:
        clients.append(Client(open_store))
        return clients[-1]

    yield make
    for client in clients:
        client.store.close()


@pytest.fixture
def client(join: Join) -> AnyClient:
    return join()


@pytest.fixture
def other(join: Join) -> AnyClient:
    return join()


shared = pytest.mark.parametrize("join", SHARED, indirect=True)


def test_nodes_are_created_written_and_deleted_with_versions(client: AnyClient) -> None:
    assert client.change(Create(A, b"1"), Create(f"{A}/0", b"2")) == Done()
    assert client.tree() == {A: Node(b"1", 0), f"{A}/0": Node(b"2", 0)}
    assert client.change(Write(A, b"3", 0), Write(A, b"4", 1), Delete(f"{A}/0", 0)) == Done()
    assert client.change(Write(A, b"5")) == Done()
    assert client.tree() == {A: Node(b"5", 3)}
    assert client.change(Delete(A)) == Done()
    assert client.change(Create(A, b"new")) == Done()
    assert client.tree() == {A: Node(b"new", 0)}


def test_a_tree_is_the_path_and_what_is_below_it_but_not_its_namesakes(client: AnyClient) -> None:
    made = [A, f"{A}/0", f"{A}/0/x", f"{A}/1", f"{A}1", f"{A}_1", B]
    client.change(*(Create(path, path.encode()) for path in made), Create(f"{BROKERS}/1", b""))
    assert sorted(client.tree(A)) == [A, f"{A}/0", f"{A}/0/x", f"{A}/1"]
    assert client.tree(TOPICS) == {path: Node(path.encode(), 0) for path in made}
    assert sorted(client.tree("/")) == sorted([*made, f"{BROKERS}/1"])
    assert client.tree(NONE) == {} and client.tree(CHANGES) == {}


def test_of_the_nodes_asked_for_those_that_exist_are_read(client: AnyClient) -> None:
    client.change(Create(A, b"1"), Create(B, b"2"), Create(f"{B}/0", b"3"), Write(B, b"4"))
    for is_synced in (False, True):
        assert client.ask(ReadNodes((NONE, B, f"{NONE}/0", A), is_synced)) == Tree(
            {A: Node(b"1", 0), B: Node(b"4", 1)}
        )
        assert client.ask(ReadNodes((NONE,), is_synced)) == Tree({})
        assert client.ask(ReadNodes((), is_synced)) == Tree({})


@pytest.mark.parametrize(
    "operation",
    [
        Create(A, b""),
        Write(A, b"", 7),
        Write(NONE, b""),
        Delete(A, 0),
        Delete(NONE),
        Check(A, 3),
        Check(NONE, 0),
    ],
    ids=lambda operation: f"{type(operation).__name__}-{operation.path.rpartition('/')[2]}",
)
def test_a_request_that_meets_what_it_must_not_changes_nothing(
    client: AnyClient, operation: Operation
) -> None:
    """Versions count up, so that the one before is another too."""
    client.change(Create(A, b"old"), Write(A, b"old"))
    around = (Create(B, b""), Write(A, b"new", 1), Delete(B))
    for place in (0, 2, 3):
        outcome = client.change(*around[:place], at_version(operation, place), *around[place:])
        assert isinstance(outcome, Refused), outcome
        assert outcome.place == place and operation.path in outcome.reason
        assert client.tree() == {A: Node(b"old", 1)}


def at_version(operation: Operation, place: int) -> Operation:
    """A deletion must not be of the version that the write before it makes."""
    return operation._replace(version=5) if operation == Delete(A, 0) and place else operation


def test_operations_of_one_request_see_those_before_them(client: AnyClient) -> None:
    assert client.change(Create(A, b"1"), Write(A, b"2", 0), Check(A, 1), Delete(A, 1)) == Done()
    assert client.change(Create(A, b"1"), Delete(A), Create(A, b"2"), Check(A, 0)) == Done()
    twice = client.change(Create(B, b""), Create(B, b""))
    assert isinstance(twice, Refused) and twice.place == 1
    gone = client.change(Delete(A), Check(A))
    assert isinstance(gone, Refused) and gone.place == 1
    assert client.tree() == {A: Node(b"2", 0)}


def test_a_check_that_holds_lets_the_rest_happen_and_changes_nothing_itself(client: AnyClient) -> None:
    client.change(Create(A, b"1"), Create(B, b""))
    assert client.change(Check(A, 0), Check(B), Write(B, b"x", 0)) == Done()
    assert client.change(Check(A, 0)) == Done()
    assert client.tree() == {A: Node(b"1", 0), B: Node(b"x", 1)}


def test_replies_come_in_the_order_of_the_requests_and_each_sees_those_before_it(client: AnyClient) -> None:
    for number in range(20):
        client.send(Multi((Create(f"{TOPICS}/{number}", b""),)))
        client.send(ReadTree("/"))
        client.send(Multi((Create(f"{TOPICS}/{number}", b""),)))
    replies = client.wait_for_replies(60)
    assert [reply.ticket for reply in replies] == list(range(1, 61))
    for number in range(20):
        made, read, again = (reply.outcome for reply in replies[3 * number : 3 * number + 3])
        assert made == Done() and isinstance(again, Refused)
        assert isinstance(read, Tree) and len(read.nodes) == number + 1
    assert client.store.receive() == []


@shared
def test_a_synced_reading_sees_what_another_was_told_is_done(client: AnyClient, other: AnyClient) -> None:
    client.change(Create(A, b"0"))
    for version in range(1, 11):
        assert other.change(Write(A, str(version).encode(), version - 1)) == Done()
        assert client.tree() == {A: Node(str(version).encode(), version)}
        client, other = other, client


@shared
def test_sequential_nodes_have_ten_digits_that_rise_and_never_come_again(
    client: AnyClient, other: AnyClient
) -> None:
    given: list[int] = []
    for changer in (client, other, client, other):
        assert changer.change(NOTICE, Create(f"{TOPICS}/{len(given)}", b""), NOTICE) == Done()
        made = list(client.tree(CHANGES))
        assert all(path.startswith(f"{CHANGES}/") and path[-10:].isdigit() for path in made)
        numbers = sorted(int(path[-10:]) for path in made)
        assert len(numbers) == 2 and numbers[0] > max(given, default=-1)
        given += numbers
        assert client.change(*(Delete(path) for path in made)) == Done()
    refused = client.change(NOTICE, Check(NONE))
    assert isinstance(refused, Refused) and refused.place == 1
    assert client.tree(CHANGES) == {}


@shared
def test_ephemeral_nodes_go_with_the_store_that_made_them_and_others_are_told(
    client: AnyClient, join: Join
) -> None:
    leaving = join()
    mine = Create(f"{BROKERS}/1", b"", is_ephemeral=True)
    assert client.change(mine, Create(A, b"")) == Done()
    assert leaving.change(Create(f"{BROKERS}/2", b"", is_ephemeral=True), Create(B, b"")) == Done()
    client.watch(BROKERS)
    assert sorted(client.tree()) == [f"{BROKERS}/1", f"{BROKERS}/2", A, B]
    leaving.store.close()
    client.wait_for(Changed(BROKERS))
    assert sorted(client.tree()) == [f"{BROKERS}/1", A, B]
    assert client.change(Create(f"{BROKERS}/2", b"")) == Done()


@shared
@pytest.mark.parametrize("is_own", [False, True], ids=["of another", "own"])
@pytest.mark.parametrize(
    ("path", "operation"),
    [
        (TOPICS, Create(B, b"")),
        (TOPICS, Delete(A)),
        (A, Write(A, b"")),
        (A, Delete(A)),
        (B, Create(B, b"")),
    ],
    ids=["made below", "deleted below", "written", "deleted", "made"],
)
def test_a_watch_reports_a_change_once(
    client: AnyClient, other: AnyClient, path: str, operation: Operation, is_own: bool
) -> None:
    client.change(Create(A, b""))
    client.watch(path)
    client.tree()
    changer = client if is_own else other
    assert changer.change(Create(ELSEWHERE, b""), Write(ELSEWHERE, b"")) == Done()
    client.tree()
    assert client.heard == [], "that was elsewhere"
    assert changer.change(operation) == Done()
    client.wait_for(Changed(path))
    again = Create(operation.path, b"") if isinstance(operation, Delete) else Write(operation.path, b"")
    assert changer.change(again, Create(f"{TOPICS}/more", b""), Create(f"{CHANGES}/more", b"")) == Done()
    client.watch(CHANGES)
    client.tree()
    assert changer.change(Delete(f"{CHANGES}/more")) == Done()
    client.wait_for(Changed(CHANGES))
    assert client.heard == [], "one watch, one report"


@shared
@pytest.mark.parametrize("is_own", [False, True], ids=["of another", "own"])
def test_a_change_is_reported_before_anything_of_it_can_be_read(
    client: AnyClient, other: AnyClient, is_own: bool
) -> None:
    changer = client if is_own else other
    client.change(Create(A, b""))
    for version in range(1, NOTICES + 1):
        client.watch(A)
        client.tree()
        client.heard.clear()
        changed = changer.send(Multi((Write(A, b""),)))
        if is_own:
            client.wait_until(lambda: len(client.heard) == 2)
            assert client.heard == [Changed(A), StoreReply(changed, Done())]
        else:
            assert changer.outcome(changed) == Done()
            assert client.ask(ReadNodes((A,), is_synced=True)) == Tree({A: Node(b"", version)})
            assert client.heard == [Changed(A)]


@shared
def test_who_watches_then_reads_then_watches_again_misses_nothing(
    client: AnyClient, other: AnyClient
) -> None:
    def write() -> None:
        for _ in range(NOTICES):
            other.change(NOTICE)

    writing = threading.Thread(target=write, daemon=True)
    client.watch(CHANGES)
    assert client.tree(CHANGES, is_synced=False) == {}
    writing.start()
    seen: set[str] = set()
    while len(seen) < NOTICES:
        client.wait_for(Changed(CHANGES))
        client.watch(CHANGES)
        now = set(client.tree(CHANGES, is_synced=False))
        assert now >= seen, "nobody sees the past again"
        seen = now
    writing.join()


def in_threads(body: Callable[[int], None]) -> None:
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            body(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures and not any(thread.is_alive() for thread in threads)


@shared
def test_clients_that_count_together_lose_no_count(join: Join) -> None:
    clients = [join() for _ in range(THREADS)]
    clients[0].change(Create(A, b"0"))

    def count(number: int) -> None:
        client, counted = clients[number], 0
        while counted < ROUNDS:
            node = client.tree(A, is_synced=False)[A]
            more = str(int(node.data) + 1).encode()
            counted += client.change(NOTICE, Write(A, more, node.version)) == Done()

    in_threads(count)
    nodes = clients[0].tree()
    assert nodes.pop(A) == Node(str(THREADS * ROUNDS).encode(), THREADS * ROUNDS)
    assert len(nodes) == THREADS * ROUNDS


@shared
def test_clients_that_wait_for_each_other_s_changes_all_get_on(join: Join) -> None:
    """Each passes a token to the next, which finds out by its watch."""
    clients = [join() for _ in range(THREADS)]
    tokens = [f"{TOPICS}/{number}" for number in range(THREADS)]

    def pass_on(number: int) -> None:
        client = clients[number]
        for turn in range(ROUNDS):
            client.wait_for(Changed(tokens[number]))
            client.watch(tokens[number])
            client.tree()
            if (number, turn) != (THREADS - 1, ROUNDS - 1):
                client.change(Write(tokens[(number + 1) % THREADS], b""))

    for token, client in zip(tokens, clients, strict=True):
        client.change(Create(token, b""))
        client.watch(token)
        client.tree()
    clients[-1].change(Write(tokens[0], b""))
    in_threads(pass_on)
    assert [node.version for node in clients[0].tree().values()] == [ROUNDS] * THREADS
