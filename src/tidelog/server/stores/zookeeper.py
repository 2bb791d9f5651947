"""The store of a cluster: Apache ZooKeeper, by kazoo, from a thread of its own.

Requests are carried out one after the other, and the parts of a large reading at once.

| seen                                     | then                                                       |
|------------------------------------------|------------------------------------------------------------|
| no connection, or no answer in time      | `Unknown`, told when there is a connection again           |
| the session has expired                  | `Unknown` for all that waits, then `SessionEnded`          |
| a watch has fired                        | `Changed`                                                  |
| the connection broke while watches stood | `Changed` for each, told when there is a connection again  |

A tree is not read at one moment. But its notices are read first, so whatever is written while the rest is
read has a notice that is yet to be seen, and is read again.

**Invariant:** replies come in the order of the requests, and nothing is asked in a new session before the
broker has heard that the old one has ended.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import Callback, KazooState

from tidelog.base.limits import STORE_ANSWER_SECONDS_MAX, STORE_MULTI_SIZE_MAX, STORE_READS_TOGETHER
from tidelog.cluster.paths import FOLDERS, NAMES, ROOTS
from tidelog.cluster.store import (
    NOWHERE,
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
    Refused,
    SessionEnded,
    StoreEvent,
    StoreReply,
    StoreRequest,
    Tree,
    Unknown,
    Watch,
    Write,
)

LOOK_SECONDS = 0.1  # between two attempts; how late the thread sees that the store is closed
_CREATION_OVERHEAD = 100  # who may do what with it is a part of it
_OPERATION_OVERHEAD = 24  # its kind, lengths, a version
_TRIED = f"{NAMES}/~"  # which is the name of no topic
_CUT_OFF = (
    ConnectionClosedError,
    ConnectionLoss,
    KazooTimeoutError,
    OperationTimeoutError,
    SessionExpiredError,
)


class _Look(NamedTuple):
    """Something has happened to the session, or to its watches."""


_Item = StoreRequest | Watch | _Look


class ZooKeeperStore:
    """`notify` is called, from threads of this store, whenever there is something to `receive`."""

    def __init__(self, client: KazooClient, notify: Callable[[], object]) -> None:
        """`client` is not started yet, and belongs to the store from here on."""
        self._client = client
        self._notify = notify
        self._items: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._events: list[StoreEvent] = []
        self._watched: set[str] = set()
        self._is_closed = False
        self._broken: list[str] = []  # watched, until a broken connection took the watches along
        self._lost_count = 0  # sessions that have ended
        self._has_ended = False  # the session, which the broker has not been told yet
        self._is_prepared = False  # the folders are there
        self._listeners: dict[str, Callable[[Any], None]] = {}  # by path; kazoo keeps every one that is new
        client.add_listener(self._on_state)
        client.start_async()
        self._thread = threading.Thread(target=self._run, name="tidelog-zookeeper", daemon=True)
        self._thread.start()

    @property
    def is_connected(self) -> bool:
        return bool(self._client.connected)

    def is_allowed(self) -> bool:
        """Whether ZooKeeper lets this broker read and change what is there, or has not said. Asked before
        anything else; it may take a while."""
        trial = self._client.transaction()
        trial.create(_TRIED)
        trial.delete(_TRIED)
        try:
            self._prepare()
            self._get(FOLDERS)
            results = self._wait(trial.commit_async())
        except NoAuthError:
            return False
        except (KazooException, KazooTimeoutError):
            return True
        return not any(isinstance(result, NoAuthError) for result in results)

    def submit(self, request: StoreRequest | Watch) -> None:
        with self._lock:
            if not self._has_ended:
                self._items.put(request)
                return
            self._refuse(request)
        self._notify()

    def receive(self) -> list[StoreEvent]:
        with self._lock:
            received, self._events = self._events, []
            if self._has_ended:
                self._has_ended = False
                received.append(SessionEnded())
            return received

    def close(self) -> None:
        """End the session: to the others this broker is gone at once."""
        self._is_closed = True
        self._items.put(None)
        self._thread.join()
        self._client.stop()
        self._client.close()

    # Kazoo's threads.

    def _on_state(self, state: str) -> None:
        if state == KazooState.LOST:
            with self._sending:
                self._lost_count += 1
        self._items.put(_Look())

    def _on_watch(self, path: str, event: Any) -> None:
        if event.path is None:  # not a change: the connection is gone
            with self._lock:
                self._broken.append(path)
            self._items.put(_Look())
        else:
            self._tell_changed(path)

    # The store's own thread.

    def _run(self) -> None:
        while (item := self._items.get()) is not None and not self._is_closed:
            if isinstance(item, StoreRequest):
                outcome = self._carry_out(item.action)
                self._let_watches_pass()
                self._tell_broken()
                self._tell(StoreReply(item.ticket, outcome))
            elif isinstance(item, Watch):
                self._watch(item.path)
            elif self._broken and not self._lost_count:
                self._wait_for_connection()
                self._tell_broken()
            self._maybe_end_session()

    def _maybe_end_session(self) -> None:
        if not self._lost_count:
            return
        with self._lock:
            self._lost_count = 0
            self._watched.clear()
            self._broken.clear()
            self._has_ended = True
            while not self._items.empty():
                item = self._items.get()
                if item is None:
                    self._items.put(None)
                    break
                if isinstance(item, StoreRequest | Watch):
                    self._refuse(item)
        self._wait_for_connection()
        self._notify()

    def _refuse(self, request: StoreRequest | Watch) -> None:
        """The caller has not heard yet that the session is over: its last requests come to nothing."""
        if isinstance(request, StoreRequest):
            self._events.append(StoreReply(request.ticket, Unknown("the session has ended")))

    def _tell(self, event: StoreEvent) -> None:
        with self._lock:
            self._events.append(event)
        self._notify()

    def _tell_broken(self) -> None:
        """Before any answer of the new connection: it may show what these watches would have reported."""
        if self._lost_count:
            return
        with self._lock:
            broken, self._broken = self._broken, []
        for path in broken:
            self._tell_changed(path)

    def _tell_changed(self, path: str) -> None:
        with self._lock:
            if path not in self._watched:
                return
            self._watched.remove(path)
            self._events.append(Changed(path))
        self._notify()

    def _wait_for_connection(self) -> None:
        while not self._client.connected and not self._is_closed:
            time.sleep(LOOK_SECONDS)

    def _watch(self, path: str) -> None:
        with self._lock:
            self._watched.add(path)
        on_event = self._listeners.setdefault(path, partial(self._on_watch, path))
        self._wait_for_connection()
        try:
            self._prepare()
            self._wait(self._client.exists_async(path, watch=on_event))
            if path in FOLDERS:
                self._wait(self._client.get_children_async(path, watch=on_event))
        except Exception as problem:  # perhaps not watched: the caller must look, and ask again
            if not isinstance(problem, _CUT_OFF):
                time.sleep(LOOK_SECONDS)  # it will be the same again
            self._wait_for_connection()
            self._tell_changed(path)

    def _carry_out(self, action: Action) -> Outcome:
        self._wait_for_connection()
        try:
            self._prepare()
            outcome = self._commit(action) if isinstance(action, Multi) else self._read(action)
        except _CUT_OFF as problem:
            self._wait_for_connection()
            return Unknown(f"no response from ZooKeeper: {type(problem).__name__}")
        except Exception as problem:  # whatever it is, this thread must go on
            time.sleep(LOOK_SECONDS)  # a caller that asks again at once gets the same answer
            return Unknown(f"ZooKeeper refused the request: {type(problem).__name__}")
        if self._lost_count:  # who knows in which of the two sessions it was read
            return Unknown("the session has ended")
        return outcome

    def _let_watches_pass(self) -> None:
        """Kazoo reports watches from another thread than answers: those of before this answer come first."""
        passed = threading.Event()
        self._client.handler.dispatch_callback(Callback("tidelog", passed.set, ()))
        while not passed.wait(LOOK_SECONDS) and not self._is_closed:
            pass

    def _wait(self, answer: Any) -> Any:
        """For an answer of kazoo, but not much longer than the store is needed."""
        until = time.monotonic() + STORE_ANSWER_SECONDS_MAX
        while True:
            try:
                return answer.get(timeout=LOOK_SECONDS)
            except KazooTimeoutError:
                if self._is_closed or time.monotonic() >= until:
                    raise

    def _prepare(self) -> None:
        """Make the folders that everything else is in."""
        if self._is_prepared:
            return
        for path in ("/", *FOLDERS):
            self._wait(self._client.ensure_path_async(path))
        self._is_prepared = True

    # Changes.

    def _commit(self, action: Multi) -> Outcome:
        prefix = len(self._client.chroot)
        size = sum(prefix + _size_of(operation) for operation in action.operations)
        if size > STORE_MULTI_SIZE_MAX:
            return Refused(
                NOWHERE, f"{size} bytes exceed ZooKeeper's limit for one request; ask for less at a time"
            )
        transaction = self._client.transaction()
        for operation in action.operations:
            _add(transaction, operation)
        with self._sending:  # kazoo tells that a session has ended before it sends anything in the next
            if self._lost_count:
                raise SessionExpiredError
            answer = transaction.commit_async()
        results = self._wait(answer)
        for place, result in enumerate(results):
            if isinstance(result, NoAuthError):  # whatever is read and tried again, it will be the same
                raise NoAuthError(action.operations[place].path)
            if isinstance(result, Exception) and not isinstance(
                result, RolledBackError | RuntimeInconsistency
            ):
                return Refused(place, f"{action.operations[place].path}: {type(result).__name__}")
        return Done()

    # Readings.

    def _read(self, action: Any) -> Tree:
        if action.is_synced:
            self._wait(self._client.sync_async("/"))
        if isinstance(action, ReadNodes):
            return Tree({path: node for path, node, _ in self._get(action.paths)})
        nodes: dict[str, Node] = {}
        for root in ROOTS if action.path == "/" else (action.path,):
            paths: list[str] = [root]
            while paths:
                found = self._get(paths)
                nodes |= {path: node for path, node, _ in found if path not in FOLDERS}
                paths = self._children([path for path, _, child_count in found if child_count])
        return Tree(dict(sorted(nodes.items())))

    def _get(self, paths: Iterable[str]) -> list[tuple[str, Node, int]]:
        """Those that there are, each with the number of its children."""
        found = []
        for path, (data, stat) in self._each(paths, self._client.get_async):
            found.append((path, Node(data, stat.version), stat.numChildren))
        return found

    def _children(self, paths: Iterable[str]) -> list[str]:
        answers = self._each(paths, self._client.get_children_async)
        return [f"{path}/{name}" for path, names in answers for name in names]

    def _each(self, paths: Iterable[str], ask: Callable[[str], Any]) -> list[tuple[str, Any]]:
        wanted, answers = list(paths), []
        for start in range(0, len(wanted), STORE_READS_TOGETHER):
            asked = [(path, ask(path)) for path in wanted[start : start + STORE_READS_TOGETHER]]
            for path, answer in asked:
                try:
                    answers.append((path, self._wait(answer)))
                except NoNodeError:
                    continue
        return answers


def _size_of(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | Write) else b""
    overhead = _CREATION_OVERHEAD if isinstance(operation, Create) else _OPERATION_OVERHEAD
    return len(operation.path) + len(data) + overhead


def _add(transaction: Any, operation: Operation) -> None:
    if isinstance(operation, Create):
        # Kazoo drops a slash at the end, and the number would become a part of the folder's name.
        path = operation.path + "n" if operation.path.endswith("/") else operation.path
        transaction.create(
            path, operation.data, ephemeral=operation.is_ephemeral, sequence=operation.is_sequential
        )
    elif isinstance(operation, Write):
        transaction.set_data(operation.path, operation.data, operation.version)
    elif isinstance(operation, Delete):
        transaction.delete(operation.path, operation.version)
    elif isinstance(operation, Check):
        transaction.check(operation.path, operation.version)
