"""The store of a single broker in a test: the shared tree, asked at once and one request after the other."""

from __future__ import annotations

from tidelog.cluster.store import Action, Create, Delete, Multi, Node, Outcome, ReadTree, Tree
from tidelog.cluster.tree import SharedTree


class MemoryStore:
    """A tree that outlives the broker."""

    def __init__(self) -> None:
        self.tree = SharedTree()
        self._session = self.tree.open_session()

    def perform(self, action: Action) -> Outcome:
        return self._session.perform(action)

    def end_session(self) -> None:
        """As when the broker is gone: what was ephemeral goes."""
        self.tree.end_session(self._session)
        self._session = self.tree.open_session()

    @property
    def nodes(self) -> dict[str, Node]:
        tree = self._session.perform(ReadTree("/"))
        assert isinstance(tree, Tree)
        return tree.nodes

    def put(self, path: str, data: bytes) -> None:
        """Make a node anew, behind the broker's back."""
        if path in self.nodes:
            self._session.perform(Multi((Delete(path),)))
        self._session.perform(Multi((Create(path, data),)))

    def delete(self, path: str) -> None:
        self._session.perform(Multi((Delete(path),)))
