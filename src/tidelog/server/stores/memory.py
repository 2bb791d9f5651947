"""The store of brokers that live in one process: a tree in memory, gone with the process.

Each broker has a `MemoryStore` of its own and a thread of its own; all have the same `MemoryTree`. A request
is carried out in the thread that submits it, and what others watch of it is put among their events there.

**Invariant:** the tree is touched under its lock only; nobody is notified under it, nor after `close`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tidelog.cluster.store import SessionEnded, StoreEvent, StoreReply, StoreRequest, Unknown, Watch
from tidelog.cluster.tree import Session, SharedTree


class MemoryTree(SharedTree):
    """What the stores have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.stores: list[MemoryStore] = []


class MemoryStore:
    """`notify` is called whenever there is something to `receive`: from the thread that caused it, so
    that it must not wait for another one."""

    def __init__(self, tree: MemoryTree, notify: Callable[[], object]) -> None:
        self._tree = tree
        self._notify = notify
        self._notifying = threading.RLock()  # notify may lead to close
        self._is_closed = False
        self._session: Session | None = None  # until the first request, and after the last one has ended
        self._events: list[StoreEvent] = []
        self._has_ended = False  # the session, which the broker has not been told yet
        self._is_notified = False  # and has not received since
        with tree.lock:
            tree.stores.append(self)

    @property
    def is_connected(self) -> bool:
        return True

    def submit(self, request: StoreRequest | Watch) -> None:
        with self._tree.lock:
            if self not in self._tree.stores:
                return
            if self._has_ended:
                self._refuse(request)
            else:
                self._carry_out(request)
            woken = self._spread()
        _notify_all(woken)

    def receive(self) -> list[StoreEvent]:
        with self._tree.lock:
            self._is_notified = False
            received, self._events = self._events, []
            if self._has_ended:
                self._has_ended = False
                received.append(SessionEnded())
            return received

    def close(self) -> None:
        """The session ends at once: to the others this broker is gone."""
        with self._tree.lock:
            if self in self._tree.stores:
                self._tree.stores.remove(self)
            self._end_session()
            woken = self._spread()
        with self._notifying:
            self._is_closed = True
        _notify_all(woken)

    def expire(self) -> None:
        """As if the store had not heard of this broker for too long."""
        with self._tree.lock:
            self._has_ended = self._has_ended or self._session is not None
            self._end_session()
            woken = self._spread()
        _notify_all(woken)

    def notify(self) -> None:
        with self._notifying:
            if not self._is_closed:
                self._notify()

    def _refuse(self, request: StoreRequest | Watch) -> None:
        """The caller has not heard yet that the session is over: its last requests come to nothing."""
        if isinstance(request, StoreRequest):
            self._events.append(StoreReply(request.ticket, Unknown("the session has ended")))

    def _carry_out(self, request: StoreRequest | Watch) -> None:
        self._session = self._session or self._tree.open_session()
        if isinstance(request, Watch):
            self._session.watch(request.path)
            return
        outcome = self._session.perform(request.action)
        self._events += self._session.take_changes()
        self._events.append(StoreReply(request.ticket, outcome))

    def _end_session(self) -> None:
        if self._session is not None:
            self._tree.end_session(self._session)
            self._session = None

    def _spread(self) -> list[MemoryStore]:
        """Let everybody see what has changed. Who has something to receive and does not know it."""
        woken = []
        for store in self._tree.stores:
            if store._session is not None:
                store._session.see()
                store._events += store._session.take_changes()
            if (store._events or store._has_ended) and not store._is_notified:
                store._is_notified = True
                woken.append(store)
        return woken


def _notify_all(stores: list[MemoryStore]) -> None:
    for store in stores:
        store.notify()
