"""The tree of `store` in memory, shared by the sessions of one process.

Changes are committed one after the other; a *point* is the number of commits. Every session has seen the
commits up to some point, and reads the tree as of that point. By default it advances to the newest first; it
may also advance to any point in between, like the client of a lagging store replica. So the tree keeps what
each commit replaced, until every session has seen the commit.

| action                      | the session has then seen                       |
|-----------------------------|-------------------------------------------------|
| a multi, applied or refused | the newest                                      |
| a synced reading            | the newest                                      |
| another reading, `see`      | the point asked for, or the newest              |

**Invariant:** a session never goes back, and watches fire before anything of the commit can be read:
`take_changes` comes before the outcome that `perform` returned.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.cluster.store import (
    ANY_VERSION,
    Action,
    Changed,
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
    Tree,
    Write,
)


class _Held(NamedTuple):
    node: Node
    owner: Session | None  # of an ephemeral node


_Replaced = dict[str, _Held | None]  # the nodes that a commit replaced, by path


class SharedTree:
    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._last_numbers: dict[str, int] = {}  # of sequential nodes, by folder
        self._sessions: list[Session] = []
        self._history: list[_Replaced] = []
        self._forgotten_count = 0  # commits older than the history

    @property
    def newest(self) -> int:
        return self._forgotten_count + len(self._history)

    @property
    def oldest(self) -> int:
        """The oldest point that can be read."""
        return self._forgotten_count

    def open_session(self, point: int | None = None) -> Session:
        """Open a session that has seen nothing: its first view may be an old one, if the history has it."""
        assert point is None or self.oldest <= point <= self.newest
        session = Session(self, self.newest if point is None else point)
        self._sessions.append(session)
        return session

    def end_session(self, session: Session) -> None:
        """Remove the session's ephemeral nodes, all at once."""
        self._sessions.remove(session)
        own = [path for path, held in self._held.items() if held.owner is session]
        self._commit(dict.fromkeys(own))
        self.forget_history()

    def change(self, owner: Session | None, operations: Iterable[Operation]) -> Done | Refused:
        """Apply all operations or none; ephemeral nodes belong to `owner`."""
        draft = _Draft(self._held, self._last_numbers)
        for place, operation in enumerate(operations):
            objection = draft.apply(operation, owner)
            if objection:
                return Refused(place, objection)
        self._last_numbers.update(draft.last_numbers)
        self._commit(draft.touched)
        return Done()

    def _commit(self, touched: dict[str, _Held | None]) -> None:
        if not touched:
            return
        self._history.append({path: self._held.get(path) for path in touched})
        for path, held in touched.items():
            if held is None:
                self._held.pop(path, None)
            else:
                self._held[path] = held

    def read(self, action: ReadTree | ReadNodes, point: int) -> Tree:
        """The nodes as of that point, in the order of their paths."""
        since: _Replaced = {}
        for replaced in reversed(self._history[point - self._forgotten_count :]):
            since.update(replaced)
        if isinstance(action, ReadNodes):
            paths: Iterable[str] = set(action.paths)
        else:
            prefix = action.path.rstrip("/") + "/"
            known = {*self._held, *since} if since else self._held
            paths = [path for path in known if path == action.path or path.startswith(prefix)]
        nodes: dict[str, Node] = {}
        for path in sorted(paths):
            held = since[path] if path in since else self._held.get(path)
            if held is not None:
                nodes[path] = held.node
        return Tree(nodes)

    def touched_between(self, start: int, end: int) -> Iterable[str]:
        """The paths that the commits between two points touched."""
        for replaced in self._history[start - self._forgotten_count : end - self._forgotten_count]:
            yield from replaced

    def forget_history(self) -> None:
        """Drop the history that every session has seen."""
        count = min([session.seen for session in self._sessions], default=self.newest) - self._forgotten_count
        del self._history[:count]
        self._forgotten_count += count


class Session:
    """One broker's view of the tree; not usable after `end_session`."""

    def __init__(self, tree: SharedTree, seen: int) -> None:
        self._tree = tree
        self._watched: set[str] = set()
        self._changed: dict[str, None] = {}
        self.seen = seen

    def perform(self, action: Action, point: int | None = None) -> Outcome:
        """Perform the action now. A reading that is not synced may be as old as `point`."""
        if isinstance(action, Multi):
            outcome = self._tree.change(self, action.operations)
            self.see()
            return outcome
        self.see(None if action.is_synced else point)
        return self._tree.read(action, self.seen)

    def watch(self, path: str) -> None:
        """Watch for the next change that this session has not seen yet."""
        self._watched.add(path)

    def see(self, point: int | None = None) -> None:
        """Advance to that point, or to the newest, and fire the watches on the way."""
        point = self._tree.newest if point is None else point
        assert self.seen <= point <= self._tree.newest, "nobody sees the past again, or the future"
        if self._watched:
            for path in self._tree.touched_between(self.seen, point):
                self._fire(path)
                self._fire(path.rpartition("/")[0] or "/")
        self.seen = point
        self._tree.forget_history()

    def _fire(self, path: str) -> None:
        if path in self._watched:
            self._watched.remove(path)
            self._changed[path] = None

    def take_changes(self) -> list[Changed]:
        """The changes reported by watches, for all commits that the session has seen."""
        changed, self._changed = self._changed, {}
        return [Changed(path) for path in changed]


class _Draft:
    """The changes of a multi, while none of its operations is refused."""

    def __init__(self, held: dict[str, _Held], last_numbers: dict[str, int]) -> None:
        self._held = held
        self._numbers_before = last_numbers
        self.touched: dict[str, _Held | None] = {}
        self.last_numbers: dict[str, int] = {}

    def apply(self, operation: Operation, owner: Session | None) -> str:
        """Why the operation is refused; empty if it was applied."""
        path = operation.path
        if isinstance(operation, Create):
            path = self._numbered(path) if operation.is_sequential else path
            if self._at(path) is not None:
                return f"{path} exists"
            self.touched[path] = _Held(Node(operation.data, 0), owner if operation.is_ephemeral else None)
            return ""
        known = self._at(path)
        if known is None:
            return f"{path} does not exist"
        version = known.node.version
        if operation.version not in (ANY_VERSION, version):
            return f"{path} is at version {version}, not {operation.version}"
        if isinstance(operation, Write):
            self.touched[path] = _Held(Node(operation.data, version + 1), known.owner)
        elif isinstance(operation, Delete):
            self.touched[path] = None
        return ""

    def _at(self, path: str) -> _Held | None:
        return self.touched[path] if path in self.touched else self._held.get(path)

    def _numbered(self, path: str) -> str:
        folder = path.rpartition("/")[0]
        number = self.last_numbers.get(folder, self._numbers_before.get(folder, -1)) + 1
        self.last_numbers[folder] = number
        return f"{path}{number:010d}"
