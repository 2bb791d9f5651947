"""The store of a single broker: one SQLite file, used from a thread of its own.

Requests that wait together are made durable together, each within a savepoint of its own: a hundred new
topics cost one fsync.

**Invariant:** a request is applied whole or not at all, and is durable before it is answered. The file holds
credentials: nobody but its owner may read it, and what is deleted is overwritten.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress

from tidelog.base.limits import STORE_REQUESTS_TOGETHER_MAX, STORE_ROWS_TOGETHER_MAX
from tidelog.cluster.store import (
    ANY_VERSION,
    Action,
    Check,
    Create,
    Delete,
    Done,
    Node,
    Operation,
    Outcome,
    ReadNodes,
    ReadTree,
    Refused,
    StoreEvent,
    StoreReply,
    StoreRequest,
    Tree,
    Unknown,
    Watch,
    Write,
)

STORE_FILE = "tidelog-store.sqlite"  # in the first log directory
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
        self._replies: queue.SimpleQueue[StoreReply] = queue.SimpleQueue()
        self._is_closed = False  # as the thread knows it
        self._thread = threading.Thread(target=self._run, name="tidelog-store", daemon=True)
        self._thread.start()

    @property
    def is_connected(self) -> bool:
        return True

    def submit(self, request: StoreRequest | Watch) -> None:
        """Nobody else writes to this store, so that there is nothing to watch: what changes is known to the
        one who changed it."""
        if isinstance(request, StoreRequest):
            self._requests.put(request)

    def receive(self) -> list[StoreEvent]:
        received: list[StoreEvent] = []
        while not self._replies.empty():
            received.append(self._replies.get())
        return received

    def close(self) -> None:
        self._requests.put(None)
        self._thread.join()

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        while requests := self._next_requests():
            try:
                connection = connection or _open(self._path)
                outcomes = _perform_all(connection, requests)
            except Exception as error:  # whatever it is: without this thread every later change would hang
                outcomes = [Unknown(f"{self._path}: {error}")] * len(requests)
            for request, outcome in zip(requests, outcomes, strict=True):
                self._replies.put(StoreReply(request.ticket, outcome))
            self._notify()
        if connection is not None:
            connection.close()

    def _next_requests(self) -> list[StoreRequest]:
        """Those that wait, in their order; none when the store is closed."""
        requests: list[StoreRequest] = []
        while not self._is_closed and len(requests) < STORE_REQUESTS_TOGETHER_MAX:
            if requests and self._requests.empty():
                break
            request = self._requests.get()
            if request is None:
                self._is_closed = True
            else:
                requests.append(request)
        return requests


def _open(path: str) -> sqlite3.Connection:
    _make_private(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA secure_delete=ON")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(_SCHEMA)
    connection.execute("DELETE FROM nodes WHERE is_ephemeral = 1")
    return connection


def _make_private(path: str) -> None:
    """Before anything is in it: SQLite gives the files it makes beside this one the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(FileNotFoundError, PermissionError):  # some file systems know no modes
            os.chmod(name, 0o600)


def _perform_all(connection: sqlite3.Connection, requests: list[StoreRequest]) -> list[Outcome]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        outcomes = [_perform(connection, request.action) for request in requests]
        connection.execute("COMMIT")
        return outcomes
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _perform(connection: sqlite3.Connection, action: Action) -> Outcome:
    if isinstance(action, ReadTree):
        return _read_tree(connection, action.path)
    if isinstance(action, ReadNodes):
        return _read_nodes(connection, action.paths)
    connection.execute("SAVEPOINT request")
    outcome: Outcome = Done()
    if not _apply_at_once(connection, action.operations):
        connection.execute("ROLLBACK TO request")
        outcome = _apply_in_order(connection, action.operations)
        if isinstance(outcome, Refused):
            connection.execute("ROLLBACK TO request")
    connection.execute("RELEASE request")
    return outcome


def _apply_at_once(connection: sqlite3.Connection, operations: tuple[Operation, ...]) -> bool:
    """Creations, or deletions, in few statements. For each one this thread waits for the loop's, so that
    thousands take seconds on a busy broker. False if it is not so simple."""
    for start in range(0, len(operations), STORE_ROWS_TOGETHER_MAX):
        portion = operations[start : start + STORE_ROWS_TOGETHER_MAX]
        if all(isinstance(operation, Create) for operation in portion):
            if not _create_at_once(connection, portion):
                return False
        elif all(isinstance(each, Delete) and each.version == ANY_VERSION for each in portion):
            paths = [operation.path for operation in portion]
            marks = ",".join("?" * len(paths))
            if connection.execute(f"DELETE FROM nodes WHERE path IN ({marks})", paths).rowcount != len(paths):
                return False
        else:
            return False
    return True


def _create_at_once(connection: sqlite3.Connection, creations: tuple[Operation, ...]) -> bool:
    values: list[object] = []
    for operation in creations:
        assert isinstance(operation, Create)
        values += (operation.path, operation.data, int(operation.is_ephemeral))
    try:
        connection.execute("INSERT INTO nodes VALUES " + ",".join(["(?, ?, 0, ?)"] * len(creations)), values)
        return True
    except sqlite3.IntegrityError:
        return False


def _apply_in_order(connection: sqlite3.Connection, operations: tuple[Operation, ...]) -> Outcome:
    for place, operation in enumerate(operations):
        try:
            _apply(connection, operation)
        except _Refusal as refusal:
            return Refused(place, str(refusal))
    return Done()


def _read_tree(connection: sqlite3.Connection, path: str) -> Tree:
    prefix = path.rstrip("/") + "/"
    rows = connection.execute(
        "SELECT path, data, version FROM nodes WHERE path = ? OR substr(path, 1, ?) = ?",
        (path, len(prefix), prefix),
    )
    return Tree({found: Node(data, version) for found, data, version in rows})


def _read_nodes(connection: sqlite3.Connection, paths: tuple[str, ...]) -> Tree:
    nodes: dict[str, Node] = {}
    for path in paths:
        row = connection.execute("SELECT data, version FROM nodes WHERE path = ?", (path,)).fetchone()
        if row is not None:
            nodes[path] = Node(*row)
    return Tree(nodes)


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
