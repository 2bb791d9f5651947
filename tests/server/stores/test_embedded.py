"""The store of a single broker: all or nothing, durable before it is answered, ephemeral nodes gone."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.cluster.store import (
    Action,
    Check,
    Create,
    Delete,
    Done,
    Multi,
    Node,
    Operation,
    Outcome,
    ReadTree,
    Refused,
    StoreReply,
    StoreRequest,
    Tree,
    Unknown,
    Write,
)
from tidelog.server.stores import embedded
from tidelog.server.stores.embedded import EmbeddedStore


class Client:
    """A store and its notices; asks one thing and waits for the answer."""

    def __init__(self, path: Path) -> None:
        self._told = threading.Event()
        self.store = EmbeddedStore(str(path), self._told.set)
        self._ticket = 0

    def ask(self, action: Action) -> Outcome:
        self._ticket += 1
        self._told.clear()
        self.store.submit(StoreRequest(self._ticket, action))
        assert self._told.wait(30)
        (reply,) = self.store.receive()
        assert isinstance(reply, StoreReply) and reply.ticket == self._ticket
        return reply.outcome

    def change(self, *operations: Operation) -> Outcome:
        return self.ask(Multi(operations))

    def tree(self, path: str = "/") -> dict[str, Node]:
        outcome = self.ask(ReadTree(path))
        assert isinstance(outcome, Tree)
        return outcome.nodes


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path / "store")
    yield client
    client.store.close()


def test_nodes_are_created_written_and_deleted_with_versions(client: Client) -> None:
    assert client.change(Create("/a", b"1"), Create("/a/b", b"2")) == Done()
    assert client.change(Write("/a", b"3", 0), Write("/a", b"4", 1), Delete("/a/b")) == Done()
    assert client.tree() == {"/a": Node(b"4", 2)}


def test_a_tree_is_the_path_and_what_is_below_it_but_not_its_namesakes(client: Client) -> None:
    client.change(*(Create(path, b"") for path in ("/t", "/t/1", "/t/1/0", "/topics", "/t_1", "/u")))
    assert sorted(client.tree("/t")) == ["/t", "/t/1", "/t/1/0"]
    assert len(client.tree("/")) == 6


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (Create("/a", b""), "exists"),
        (Write("/a", b"", 7), "version 0"),
        (Write("/none", b""), "does not exist"),
        (Delete("/a", 1), "version 0"),
        (Delete("/none"), "does not exist"),
        (Check("/a", 3), "version 0"),
        (Check("/none", 0), "does not exist"),
    ],
)
def test_a_request_that_meets_what_it_must_not_changes_nothing(
    client: Client, operation: Operation, words: str
) -> None:
    client.change(Create("/a", b"old"))
    outcome = client.change(Create("/b", b""), operation)
    assert isinstance(outcome, Refused) and outcome.place == 1 and words in outcome.reason
    assert client.tree() == {"/a": Node(b"old", 0)}


def test_a_check_that_holds_lets_the_rest_happen(client: Client) -> None:
    client.change(Create("/a", b""))
    assert client.change(Check("/a", 0), Write("/a", b"x", 0)) == Done()


def test_what_was_answered_is_there_after_a_restart_and_ephemeral_nodes_are_not(tmp_path: Path) -> None:
    first = Client(tmp_path / "store")
    first.change(Create("/a", b"1"), Create("/b", b"2", is_ephemeral=True))
    assert sorted(first.tree()) == ["/a", "/b"]
    first.store.close()
    second = Client(tmp_path / "store")
    assert second.tree() == {"/a": Node(b"1", 0)}
    second.store.close()


def test_answers_come_in_the_order_of_the_requests(tmp_path: Path) -> None:
    done = threading.Semaphore(0)
    store = EmbeddedStore(str(tmp_path / "store"), done.release)
    for ticket in range(20):
        store.submit(StoreRequest(ticket, Multi((Create(f"/{ticket}", b""),))))
    replies: list[StoreReply] = []
    while len(replies) < 20:
        assert done.acquire(timeout=30)
        replies += [reply for reply in store.receive() if isinstance(reply, StoreReply)]
    assert [reply.ticket for reply in replies] == list(range(20))
    store.close()


def test_a_store_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    client = Client(tmp_path / "no" / "such" / "folder")
    outcome = client.ask(ReadTree("/"))
    assert isinstance(outcome, Unknown) and "folder" in outcome.reason
    client.store.close()


def test_a_failure_in_mid_request_changes_nothing_and_does_not_stop_the_next(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.change(Create("/a", b""))
    apply = embedded._apply

    def failing(connection: sqlite3.Connection, operation: Operation) -> None:
        if operation.path == "/bad":
            raise sqlite3.OperationalError("disk I/O error")
        apply(connection, operation)

    monkeypatch.setattr(embedded, "_apply", failing)
    assert isinstance(client.change(Create("/b", b""), Write("/bad", b"")), Unknown)
    assert client.change(Create("/c", b"")) == Done()
    assert sorted(client.tree()) == ["/a", "/c"]


def test_a_request_that_nobody_foresaw_is_answered_and_does_not_stop_the_next(client: Client) -> None:
    assert isinstance(client.change(Create("/\ud800", b"")), Unknown)
    assert client.change(Create("/a", b"")) == Done()


def test_only_its_owner_may_read_the_store(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        client = Client(tmp_path / "store")
        assert client.change(Create("/a", b"")) == Done()
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("store", "store-wal", "store-shm"), 0o600)
    client.store.close()


def test_a_store_that_others_could_read_is_theirs_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.touch(0o644)
    path.chmod(0o644)
    client = Client(path)
    client.tree()
    assert path.stat().st_mode & 0o777 == 0o600
    client.store.close()


def test_what_was_deleted_is_not_in_the_file(tmp_path: Path) -> None:
    for operation in (Create("/a", b"a secret" * 1_000), Delete("/a")):
        client = Client(tmp_path / "store")
        assert client.change(operation) == Done()
        client.store.close()
    assert b"secret" not in (tmp_path / "store").read_bytes()


def test_requests_that_are_made_durable_together_succeed_and_fail_apart(tmp_path: Path) -> None:
    connection = embedded._open(str(tmp_path / "store"))
    actions: list[Action] = [
        Multi((Create("/a", b"1"), Create("/b", b""))),
        Multi((Create("/c", b""), Create("/a", b"2"))),
        Multi((Write("/a", b"3", 0), Check("/b", 0))),
        Multi((Delete("/b"), Delete("/none"))),
        Multi((Delete("/b"),)),
        ReadTree("/"),
    ]
    requests = [StoreRequest(ticket, action) for ticket, action in enumerate(actions)]
    outcomes = embedded._perform_all(connection, requests)
    kinds = [Done, Refused, Done, Refused, Done, Tree]
    assert [type(outcome) for outcome in outcomes] == kinds
    assert outcomes[1] == Refused(1, "/a exists") and outcomes[3] == Refused(1, "/none does not exist")
    assert outcomes[5] == Tree({"/a": Node(b"3", 1)})
    connection.close()


def test_more_nodes_than_one_statement_takes_are_made_and_deleted(client: Client) -> None:
    paths = [f"/{number}" for number in range(2 * embedded.ROWS_TOGETHER_MAX + 7)]
    assert client.change(*(Create(path, b"x") for path in paths)) == Done()
    assert len(client.tree()) == len(paths)
    late = client.change(*(Create(f"/new{path[1:]}", b"") for path in paths), Create(paths[0], b""))
    assert late == Refused(len(paths), f"{paths[0]} exists")
    assert client.change(*(Delete(path) for path in paths)) == Done()
    assert client.tree() == {}
