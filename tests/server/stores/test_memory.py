"""The store of brokers in one process: what one changes the others hear of, from whichever thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

from tidelog.cluster.store import (
    Action,
    Changed,
    Check,
    Create,
    Delete,
    Done,
    Multi,
    Node,
    Operation,
    Outcome,
    ReadNodes,
    ReadTree,
    Refused,
    SessionEnded,
    Store,
    StoreEvent,
    StoreReply,
    StoreRequest,
    Tree,
    Unknown,
    Watch,
    Write,
)
from tidelog.server.stores.memory import MemoryStore, MemoryTree

THREADS = 4
ROUNDS = 50


class Client:
    """A store and its notices; what it receives on the way to an answer is kept."""

    def __init__(self, tree: MemoryTree) -> None:
        self.told = threading.Semaphore(0)
        self.store = MemoryStore(tree, self.told.release)
        self.ticket = 0
        self.heard: list[StoreEvent] = []

    def send(self, action: Action) -> int:
        self.ticket += 1
        self.store.submit(StoreRequest(self.ticket, action))
        return self.ticket

    def ask(self, action: Action) -> Outcome:
        ticket = self.send(action)
        self.heard += self.store.receive()
        reply = self.heard.pop()
        assert isinstance(reply, StoreReply) and reply.ticket == ticket
        return reply.outcome

    def change(self, *operations: Operation) -> Outcome:
        return self.ask(Multi(operations))

    def wait_for(self, event: StoreEvent) -> None:
        while event not in self.heard:
            assert self.told.acquire(timeout=30)
            self.heard += self.store.receive()
        self.heard.remove(event)

    def count_notices(self) -> int:
        count = 0
        while self.told.acquire(blocking=False):
            count += 1
        return count


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree()


@pytest.fixture
def first(tree: MemoryTree) -> Client:
    return Client(tree)


@pytest.fixture
def second(tree: MemoryTree) -> Client:
    return Client(tree)


def test_it_is_a_store_and_brokers_see_each_other_s_changes(first: Client, second: Client) -> None:
    store: Store = first.store
    store.submit(StoreRequest(7, Multi((Create("/a", b"1"),))))
    assert store.receive() == [StoreReply(7, Done())] and store.receive() == []
    assert second.ask(ReadTree("/")) == Tree({"/a": Node(b"1", 0)})
    assert second.change(Write("/a", b"2", 0)) == Done()
    assert first.ask(ReadNodes(("/a",))) == Tree({"/a": Node(b"2", 1)})
    assert first.change(Check("/a", 0)) == Refused(0, "/a is at version 1, not 0")


def test_a_watch_is_told_by_the_change_of_another_and_notified(first: Client, second: Client) -> None:
    first.store.submit(Watch("/w"))
    assert (first.count_notices(), second.count_notices()) == (0, 0)
    second.change(Create("/elsewhere", b""))
    assert (first.count_notices(), second.count_notices()) == (0, 1)
    second.change(Create("/w/1", b""), Create("/w/2", b""))
    assert (first.count_notices(), second.count_notices()) == (1, 1)
    assert first.store.receive() == [Changed("/w")]
    second.change(Delete("/w/1"))
    assert first.count_notices() == 0


def test_who_has_not_received_yet_is_not_notified_again(first: Client) -> None:
    for _ in range(2):
        tickets = [first.send(ReadTree("/")), first.send(ReadTree("/"))]
        assert first.count_notices() == 1
        assert first.store.receive() == [StoreReply(ticket, Tree({})) for ticket in tickets]


def test_a_watch_comes_before_the_answer_that_shows_the_change(first: Client, second: Client) -> None:
    first.store.submit(Watch("/w"))
    first.send(Multi((Create("/w", b""),)))
    assert first.store.receive() == [Changed("/w"), StoreReply(1, Done())]
    first.store.submit(Watch("/w"))
    second.change(Write("/w", b"2"))
    first.send(ReadTree("/"))
    assert first.store.receive() == [Changed("/w"), StoreReply(2, Tree({"/w": Node(b"2", 1)}))]


def test_a_closed_store_takes_its_ephemeral_nodes_with_it_and_is_silent(
    first: Client, second: Client
) -> None:
    first.change(Create("/b/1", b"", is_ephemeral=True))
    second.store.submit(Watch("/b"))
    first.store.submit(Watch("/b"))
    first.count_notices()
    first.store.close()
    assert second.store.receive() == [Changed("/b")]
    assert second.ask(ReadTree("/")) == Tree({})
    first.send(Multi((Create("/late", b""),)))
    first.store.notify()
    assert (first.store.receive(), first.count_notices()) == ([], 0)
    first.store.close()
    assert second.ask(ReadTree("/")) == Tree({})


def test_an_expired_session_is_told_and_the_next_request_begins_a_new_one(
    first: Client, second: Client
) -> None:
    first.change(Create("/b/1", b"old", is_ephemeral=True))
    first.store.submit(Watch("/b"))
    second.store.submit(Watch("/b"))
    first.count_notices()
    first.store.expire()
    assert (first.count_notices(), second.count_notices()) == (1, 1)
    assert (first.store.receive(), second.store.receive()) == ([SessionEnded()], [Changed("/b")])
    assert first.change(Create("/b/1", b"new", is_ephemeral=True)) == Done()
    assert first.heard == [], "watches go with the session"
    first.store.expire()
    assert second.ask(ReadTree("/")) == Tree({})


def test_what_is_asked_before_the_end_is_heard_of_comes_to_nothing(first: Client) -> None:
    first.change(Create("/a", b""))
    first.store.submit(Watch("/a"))
    first.store.expire()
    first.store.expire()
    first.store.submit(Watch("/a"))
    ticket = first.send(Multi((Write("/a", b""),)))
    assert first.store.receive() == [
        StoreReply(ticket, Unknown("the session has ended")),
        SessionEnded(),
    ]
    assert first.ask(ReadTree("/a")) == Tree({"/a": Node(b"", 0)})
    assert first.change(Write("/a", b"")) == Done()
    assert first.heard == []


def test_a_store_that_was_never_asked_has_no_session_to_lose(first: Client) -> None:
    first.store.expire()
    assert (first.store.receive(), first.count_notices()) == ([], 0)


def test_a_notice_may_use_the_store_itself(tree: MemoryTree, first: Client) -> None:
    heard: list[StoreEvent] = []
    stores: list[MemoryStore] = []

    def on_notice() -> None:
        heard.extend(stores[0].receive())
        if len(heard) == 1:
            stores[0].submit(StoreRequest(1, ReadTree("/")))
            stores[0].close()

    stores.append(MemoryStore(tree, on_notice))
    stores[0].submit(Watch("/a"))
    changing = threading.Thread(target=first.change, args=(Create("/a", b""),), daemon=True)
    changing.start()
    changing.join(30)
    assert not changing.is_alive(), "a deadlock"
    assert heard == [Changed("/a"), StoreReply(1, Tree({"/a": Node(b"", 0)}))]


def test_the_history_is_not_kept_for_a_store_that_is_idle(
    tree: MemoryTree, first: Client, second: Client
) -> None:
    second.ask(ReadTree("/"))
    for number in range(100):
        first.change(Create(f"/{number}", b""))
    assert len(tree._history) == 0


def in_threads(body: Callable[[int], None]) -> None:
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            body(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures and not any(thread.is_alive() for thread in threads)


def test_threads_that_count_together_lose_no_count(tree: MemoryTree) -> None:
    Client(tree).change(Create("/count", json.dumps(0).encode()))

    def count(number: int) -> None:
        client, counted = Client(tree), 0
        while counted < ROUNDS:
            outcome = client.ask(ReadTree("/count"))
            assert isinstance(outcome, Tree)
            node = outcome.nodes["/count"]
            more = json.dumps(json.loads(node.data) + 1).encode()
            note = Create("/notes/", str(number).encode(), is_sequential=True)
            counted += client.change(note, Write("/count", more, node.version)) == Done()

    in_threads(count)
    last = Client(tree).ask(ReadTree("/"))
    assert isinstance(last, Tree)
    assert last.nodes["/count"] == Node(str(THREADS * ROUNDS).encode(), THREADS * ROUNDS)
    assert len(last.nodes) == THREADS * ROUNDS + 1


def test_threads_that_wait_for_each_other_s_changes_all_get_on(tree: MemoryTree) -> None:
    """Each passes a token to the next, which finds out by its watch."""

    def pass_on(number: int) -> None:
        client = clients[number]
        for turn in range(ROUNDS):
            client.wait_for(Changed(f"/token/{number}"))
            client.store.submit(Watch(f"/token/{number}"))
            if (number, turn) != (THREADS - 1, ROUNDS - 1):
                client.change(Write(f"/token/{(number + 1) % THREADS}", b""))

    clients = [Client(tree) for _ in range(THREADS)]
    for number, client in enumerate(clients):
        client.change(Create(f"/token/{number}", b""))
        client.store.submit(Watch(f"/token/{number}"))
    Client(tree).change(Write("/token/0", b""))
    in_threads(pass_on)
    tokens = Client(tree).ask(ReadTree("/token"))
    assert isinstance(tokens, Tree)
    assert [node.version for node in tokens.nodes.values()] == [ROUNDS] * THREADS
