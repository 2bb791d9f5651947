"""The store of a single broker: one SQLite file, used from a thread of its own.

**Invariant:** a request is one SQLite transaction; it is durable before it is answered.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable

from tidelog.cluster.store import (
    ANY_VERSION,
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

_SCHEMA = """
CREATE TABLE IF NOT EXISTS nodes (
    path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL, is_ephemeral INTEGER NOT NULL
) WITHOUT ROWID
"""


class _Refusal(Exception):
    pass


class EmbeddedStore:
    """`notify` is called from the store's thread whenever there is something to `receive`."""

    def __init__(self, path: str, notify: Callable[[], object]) -> None:
        self._path = path
        self._notify = notify
        self._requests: queue.SimpleQueue[StoreRequest | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[StoreReply | str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tidelog-store", daemon=True)
        self._thread.start()

    def submit(self, request: StoreRequest) -> None:
        self._requests.put(request)

    def watch(self, path: str) -> None:
        """Nobody else writes to this store: what changes is known to the one who changed it."""

    def receive(self) -> list[StoreReply | str]:
        received: list[StoreReply | str] = []
        while not self._replies.empty():
            received.append(self._replies.get())
        return received

    def close(self) -> None:
        self._requests.put(None)
        self._thread.join()

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        while (request := self._requests.get()) is not None:
            try:
                connection = connection or _open(self._path)
                outcome = _perform(connection, request)
            except sqlite3.Error as error:
                outcome = Unknown(f"{self._path}: {error}")
            self._replies.put(StoreReply(request.ticket, outcome))
            self._notify()
        if connection is not None:
            connection.close()


def _open(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(_SCHEMA)
    connection.execute("DELETE FROM nodes WHERE is_ephemeral = 1")
    return connection


def _perform(connection: sqlite3.Connection, request: StoreRequest) -> Outcome:
    action = request.action
    if isinstance(action, ReadTree):
        return _read_tree(connection, action.path)
    assert isinstance(action, Multi)
    connection.execute("BEGIN IMMEDIATE")
    try:
        for place, operation in enumerate(action.operations):
            try:
                _apply(connection, operation)
            except _Refusal as refusal:
                return Refused(place, str(refusal))
        connection.execute("COMMIT")
        return Done()
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _read_tree(connection: sqlite3.Connection, path: str) -> Tree:
    prefix = path.rstrip("/") + "/"
    rows = connection.execute(
        "SELECT path, data, version FROM nodes WHERE path = ? OR substr(path, 1, ?) = ?",
        (path, len(prefix), prefix),
    )
    return Tree({found: Node(data, version) for found, data, version in rows})


def _apply(connection: sqlite3.Connection, operation: Operation) -> None:
    row = connection.execute("SELECT version FROM nodes WHERE path = ?", (operation.path,)).fetchone()
    if isinstance(operation, Create):
        if row is not None:
            raise _Refusal(f"{operation.path} exists")
        connection.execute(
            "INSERT INTO nodes VALUES (?, ?, 0, ?)",
            (operation.path, operation.data, int(operation.is_ephemeral)),
        )
        return
    if row is None:
        raise _Refusal(f"{operation.path} does not exist")
    if operation.version not in (ANY_VERSION, row[0]):
        raise _Refusal(f"{operation.path} is at version {row[0]}, not {operation.version}")
    if isinstance(operation, Write):
        connection.execute(
            "UPDATE nodes SET data = ?, version = version + 1 WHERE path = ?",
            (operation.data, operation.path),
        )
    elif isinstance(operation, Delete):
        connection.execute("DELETE FROM nodes WHERE path = ?", (operation.path,))
    else:
        assert isinstance(operation, Check)
