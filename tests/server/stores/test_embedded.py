"""The store of a single broker: all or nothing, durable before it is answered, ephemeral nodes gone."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.stores.contract.client import Client
from tidelog.base.limits import STORE_ROWS_TOGETHER_MAX
from tidelog.cluster.store import (
    Action,
    Check,
    Create,
    Delete,
    Done,
    Multi,
    Node,
    Operation,
    ReadTree,
    Refused,
    StoreRequest,
    Tree,
    Unknown,
    Write,
)
from tidelog.server.stores import embedded
from tidelog.server.stores.embedded import EmbeddedStore

EmbeddedClient = Client[EmbeddedStore]


def client_of(path: Path) -> EmbeddedClient:
    return Client(lambda notify: EmbeddedStore(str(path), notify))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[EmbeddedClient]:
    client = client_of(tmp_path / "store")
    yield client
    client.store.close()


def test_what_was_answered_is_there_after_a_restart_and_ephemeral_nodes_are_not(tmp_path: Path) -> None:
    first = client_of(tmp_path / "store")
    first.change(Create("/a", b"1"), Create("/b", b"2", is_ephemeral=True))
    assert sorted(first.tree()) == ["/a", "/b"]
    first.store.close()
    second = client_of(tmp_path / "store")
    assert second.tree() == {"/a": Node(b"1", 0)}
    second.store.close()


def test_a_store_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    client = client_of(tmp_path / "no" / "such" / "folder")
    outcome = client.ask(ReadTree("/"))
    assert isinstance(outcome, Unknown) and "folder" in outcome.reason
    client.store.close()


def test_a_failure_in_mid_request_changes_nothing_and_does_not_stop_the_next(
    client: EmbeddedClient, monkeypatch: pytest.MonkeyPatch
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


def test_a_request_that_nobody_foresaw_is_answered_and_does_not_stop_the_next(client: EmbeddedClient) -> None:
    assert isinstance(client.change(Create("/\ud800", b"")), Unknown)
    assert client.change(Create("/a", b"")) == Done()


def test_only_its_owner_may_read_the_store(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        client = client_of(tmp_path / "store")
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
    client = client_of(path)
    client.tree()
    assert path.stat().st_mode & 0o777 == 0o600
    client.store.close()


def test_what_was_deleted_is_not_in_the_file(tmp_path: Path) -> None:
    for operation in (Create("/a", b"a secret" * 1_000), Delete("/a")):
        client = client_of(tmp_path / "store")
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


def test_more_nodes_than_one_statement_takes_are_made_and_deleted(client: EmbeddedClient) -> None:
    paths = [f"/{number}" for number in range(2 * STORE_ROWS_TOGETHER_MAX + 7)]
    assert client.change(*(Create(path, b"x") for path in paths)) == Done()
    assert len(client.tree()) == len(paths)
    late = client.change(*(Create(f"/new{path[1:]}", b"") for path in paths), Create(paths[0], b""))
    assert late == Refused(len(paths), f"{paths[0]} exists")
    assert client.change(*(Delete(path) for path in paths)) == Done()
    assert client.tree() == {}
