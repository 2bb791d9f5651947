"""The store of brokers in one process: what one changes the others hear of, from whichever thread."""

from __future__ import annotations

import threading

import pytest

from tests.server.stores.contract.client import Client
from tidelog.cluster.store import (
    Changed,
    Create,
    Delete,
    Done,
    Multi,
    Node,
    ReadTree,
    SessionEnded,
    StoreEvent,
    StoreReply,
    StoreRequest,
    Tree,
    Unknown,
    Watch,
    Write,
)
from tidelog.server.stores.memory import MemoryStore, MemoryTree

MemoryClient = Client[MemoryStore]


def client_of(tree: MemoryTree) -> MemoryClient:
    return Client(lambda notify: MemoryStore(tree, notify))


def count_notices(client: MemoryClient) -> int:
    count = 0
    while client.told.acquire(blocking=False):
        count += 1
    return count


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree()


@pytest.fixture
def first(tree: MemoryTree) -> MemoryClient:
    return client_of(tree)


@pytest.fixture
def second(tree: MemoryTree) -> MemoryClient:
    return client_of(tree)


def test_a_watch_is_told_by_the_change_of_another_and_notified(
    first: MemoryClient, second: MemoryClient
) -> None:
    first.watch("/w")
    assert (count_notices(first), count_notices(second)) == (0, 0)
    second.change(Create("/elsewhere", b""))
    assert (count_notices(first), count_notices(second)) == (0, 1)
    second.change(Create("/w/1", b""), Create("/w/2", b""))
    assert (count_notices(first), count_notices(second)) == (1, 1)
    assert first.store.receive() == [Changed("/w")]
    second.change(Delete("/w/1"))
    assert count_notices(first) == 0


def test_who_has_not_received_yet_is_not_notified_again(first: MemoryClient) -> None:
    for _ in range(2):
        tickets = [first.send(ReadTree("/")), first.send(ReadTree("/"))]
        assert count_notices(first) == 1
        assert first.store.receive() == [StoreReply(ticket, Tree({})) for ticket in tickets]


def test_a_closed_store_takes_its_ephemeral_nodes_with_it_and_is_silent(
    first: MemoryClient, second: MemoryClient
) -> None:
    first.change(Create("/b/1", b"", is_ephemeral=True))
    second.watch("/b")
    first.watch("/b")
    count_notices(first)
    first.store.close()
    assert second.store.receive() == [Changed("/b")]
    assert second.ask(ReadTree("/")) == Tree({})
    first.send(Multi((Create("/late", b""),)))
    first.store.notify()
    assert (first.store.receive(), count_notices(first)) == ([], 0)
    first.store.close()
    assert second.ask(ReadTree("/")) == Tree({})


def test_an_expired_session_is_told_and_the_next_request_begins_a_new_one(
    first: MemoryClient, second: MemoryClient
) -> None:
    first.change(Create("/b/1", b"old", is_ephemeral=True))
    first.watch("/b")
    second.watch("/b")
    count_notices(first)
    first.store.expire()
    assert (count_notices(first), count_notices(second)) == (1, 1)
    assert (first.store.receive(), second.store.receive()) == ([SessionEnded()], [Changed("/b")])
    assert first.change(Create("/b/1", b"new", is_ephemeral=True)) == Done()
    assert first.heard == [], "watches go with the session"
    first.store.expire()
    assert second.ask(ReadTree("/")) == Tree({})


def test_what_is_asked_before_the_end_is_heard_of_comes_to_nothing(first: MemoryClient) -> None:
    first.change(Create("/a", b""))
    first.watch("/a")
    first.store.expire()
    first.store.expire()
    first.watch("/a")
    ticket = first.send(Multi((Write("/a", b""),)))
    assert first.store.receive() == [
        StoreReply(ticket, Unknown("the session has ended")),
        SessionEnded(),
    ]
    assert first.ask(ReadTree("/a")) == Tree({"/a": Node(b"", 0)})
    assert first.change(Write("/a", b"")) == Done()
    assert first.heard == []


def test_a_store_that_was_never_asked_has_no_session_to_lose(first: MemoryClient) -> None:
    first.store.expire()
    assert (first.store.receive(), count_notices(first)) == ([], 0)


def test_a_notice_may_use_the_store_itself(tree: MemoryTree, first: MemoryClient) -> None:
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
    tree: MemoryTree, first: MemoryClient, second: MemoryClient
) -> None:
    second.ask(ReadTree("/"))
    for number in range(100):
        first.change(Create(f"/{number}", b""))
    assert len(tree._history) == 0
