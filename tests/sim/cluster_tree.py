"""The store's tree with an eye on it: every commit is told to whoever judges, with what was there before.

**Invariant:** a commit is told when it is made, before any broker can hear of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tidelog.cluster.image import Image
from tidelog.cluster.paths import CONTROLLER, TOPICS
from tidelog.cluster.restored import decide_restored
from tidelog.cluster.store import Done, Operation, ReadTree, Refused
from tidelog.cluster.tree import Session, SharedTree


class Backup(NamedTuple):
    """The store as it was once, without what was ephemeral."""

    held: dict[str, Any]
    last_numbers: dict[str, int]


class Commit:
    """What one multi, or the end of a session, did."""

    def __init__(self, committed: Committed, before: dict[str, bytes | None], is_of_controller: bool) -> None:
        self._committed = committed
        self.before = before
        self.paths = sorted(before)
        self.is_of_controller = is_of_controller
        now = {path: committed.at(path) for path in self.paths}
        self.written = {path: data for path, data in now.items() if data is not None}

    def at(self, path: str) -> bytes | None:
        """What is there after it."""
        return self._committed.at(path)


class Committed(SharedTree):
    def __init__(self) -> None:
        super().__init__()
        self.observers: list[Callable[[Commit], None]] = []
        self.node_of: Callable[[Session | None], int | None] = lambda session: None
        self._session: Session | None = None
        self._controller: int | None = None  # who became controller last; it may be it no more
        self._data: dict[str, bytes] = {}

    def at(self, path: str) -> bytes | None:
        return self._data.get(path)

    @property
    def has_sessions(self) -> bool:
        return bool(self._sessions)

    def back_up(self) -> Backup:
        held = {path: each for path, each in self._held.items() if each.owner is None}
        return Backup(held, dict(self._last_numbers))

    def restore(self, backup: Backup) -> None:
        """While nobody is connected. Nobody is told: it is no commit."""
        assert not self._sessions
        self._held, self._last_numbers = dict(backup.held), dict(backup.last_numbers)
        self._data = {path: held.node.data for path, held in self._held.items()}
        self._forgotten_count, self._history = self.newest + 1, []

    def declare_restored(self) -> None:
        """An operator says that the store was restored."""
        image = Image()
        image.take((), self.read(ReadTree("/"), self.newest).nodes)
        observers, self.observers = self.observers, []
        for operations in decide_restored(image):
            outcome = self.change(None, operations)
            assert outcome == Done(), outcome
        self.observers = observers
        self.forget_history()

    def partitions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for path, data in list(self._data.items()):
            if path.startswith(TOPICS + "/") and path.count("/") == 3:
                yield path, json.loads(data)

    def topics(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        for path, data in list(self._data.items()):
            if path.startswith(TOPICS + "/") and path.count("/") == 2:
                yield bytes.fromhex(path.split("/")[2]), json.loads(data)

    def change(self, owner: Session | None, operations: Iterable[Operation]) -> Done | Refused:
        self._session = owner
        try:
            return super().change(owner, operations)
        finally:
            self._session = None

    def _commit(self, touched: dict[str, Any]) -> None:
        is_of_controller = self._session is not None and self.node_of(self._session) == self._controller
        super()._commit(touched)
        before = {path: self._data.get(path) for path in touched}
        for path in touched:
            held = self._held.get(path)
            if held is None:
                self._data.pop(path, None)
            else:
                self._data[path] = held.node.data
        if touched.get(CONTROLLER) is not None:
            self._controller = json.loads(self._data[CONTROLLER])["id"]
        if touched:
            commit = Commit(self, before, is_of_controller)
            for observe in self.observers:
                observe(commit)
