"""The tree in memory: all or nothing, versions, numbers, ephemeral nodes, watches, old readings.

First each promise by an example, then all of them at random against a model that keeps a copy of the whole
tree for every commit.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from tidelog.cluster.store import (
    ANY_VERSION,
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
    ReadTree,
    Refused,
    Tree,
    Write,
)
from tidelog.cluster.tree import Session, SharedTree


@pytest.fixture
def tree() -> SharedTree:
    return SharedTree()


@pytest.fixture
def session(tree: SharedTree) -> Session:
    return tree.open_session()


def change(session: Session, *operations: Operation) -> Outcome:
    return session.perform(Multi(operations))


def nodes_of(session: Session, path: str = "/", point: int | None = None) -> dict[str, Node]:
    outcome = session.perform(ReadTree(path), point)
    assert isinstance(outcome, Tree)
    return outcome.nodes


# What a multi does.


def test_nodes_are_created_written_and_deleted_with_versions(session: Session) -> None:
    assert change(session, Create("/a", b"1"), Create("/a/b", b"2")) == Done()
    assert change(session, Write("/a", b"3", 0), Write("/a", b"4", 1), Delete("/a/b", 0)) == Done()
    assert nodes_of(session) == {"/a": Node(b"4", 2)}


def test_a_node_made_again_begins_at_version_0(session: Session) -> None:
    change(session, Create("/a", b"1"), Write("/a", b"2"))
    assert change(session, Delete("/a", 1), Create("/a", b"3")) == Done()
    assert nodes_of(session) == {"/a": Node(b"3", 0)}


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (Create("/a", b""), "/a exists"),
        (Write("/a", b"", 7), "version 0"),
        (Write("/none", b""), "does not exist"),
        (Delete("/a", 1), "version 0"),
        (Delete("/none"), "does not exist"),
        (Check("/a", 3), "version 0"),
        (Check("/none"), "does not exist"),
        (Check("/gone", 0), "does not exist"),
    ],
)
def test_a_refused_operation_undoes_the_whole_multi(
    tree: SharedTree, session: Session, operation: Operation, words: str
) -> None:
    change(session, Create("/a", b"1"), Create("/gone", b""))
    before, point = nodes_of(session), tree.newest
    session.watch("/a")
    outcome = change(session, Create("/b", b""), Delete("/gone"), operation, Write("/a", b"2"))
    assert isinstance(outcome, Refused) and outcome.place == 2 and words in outcome.reason
    assert (nodes_of(session), tree.newest, session.take_changes()) == (before, point, [])


def test_a_check_of_any_version_asks_only_whether_the_node_exists(session: Session) -> None:
    change(session, Create("/a", b""), Write("/a", b""), Write("/a", b""))
    assert change(session, Check("/a"), Check("/a", 2)) == Done()


def test_numbers_are_given_once_in_each_folder(session: Session) -> None:
    numbered = [Create("/f/", b"", is_sequential=True), Create("/g/n-", b"", is_sequential=True)]
    assert change(session, *numbered, *numbered[:1]) == Done()
    assert list(nodes_of(session)) == ["/f/0000000000", "/f/0000000001", "/g/n-0000000000"]
    change(session, *(Delete(path) for path in nodes_of(session)))
    assert isinstance(change(session, *numbered, Check("/none")), Refused)
    change(session, *numbered)
    assert list(nodes_of(session)) == ["/f/0000000002", "/g/n-0000000001"]


def test_a_reading_has_the_path_and_what_is_below_it_but_not_its_namesakes(session: Session) -> None:
    change(session, *(Create(path, b"") for path in ("/u", "/t_1", "/topics", "/t/1/0", "/t/1", "/t")))
    assert list(nodes_of(session, "/t")) == ["/t", "/t/1", "/t/1/0"]
    assert len(nodes_of(session)) == 6
    assert session.perform(ReadNodes(("/u", "/none", "/t", "/u"))) == Tree(
        {"/t": Node(b"", 0), "/u": Node(b"", 0)}
    )


def test_what_was_read_does_not_change_afterwards(session: Session) -> None:
    change(session, Create("/a", b"1"))
    read = nodes_of(session)
    change(session, Write("/a", b"2"), Create("/b", b""))
    assert read == {"/a": Node(b"1", 0)}


# Sessions.


def test_ephemeral_nodes_go_with_their_session_and_others_see_it(tree: SharedTree, session: Session) -> None:
    other = tree.open_session()
    change(other, Create("/e/1", b"", is_ephemeral=True), Create("/stays", b""))
    change(session, Create("/e/2", b"", is_ephemeral=True), Write("/e/1", b"written by another"))
    session.watch("/e")
    tree.end_session(other)
    session.see()
    assert session.take_changes() == [Changed("/e")]
    assert list(nodes_of(session)) == ["/e/2", "/stays"]


def test_an_ephemeral_node_that_another_deleted_and_made_again_belongs_to_that_one(
    tree: SharedTree, session: Session
) -> None:
    other = tree.open_session()
    change(other, Create("/e", b"1", is_ephemeral=True))
    change(session, Delete("/e"), Create("/e", b"2", is_ephemeral=True))
    tree.end_session(other)
    assert nodes_of(session) == {"/e": Node(b"2", 0)}


# Watches and old readings.


@pytest.mark.parametrize("path", ["/w", "/w/1"])
@pytest.mark.parametrize("kind", [Create, Write, Delete])
def test_a_watch_reports_the_path_and_what_is_right_below_it(
    tree: SharedTree, session: Session, path: str, kind: type[Any]
) -> None:
    if kind is not Create:
        change(session, Create(path, b""))
    operation: Operation = Delete(path) if kind is Delete else kind(path, b"")
    other = tree.open_session()
    other.watch("/w")
    change(session, operation)
    other.see()
    assert other.take_changes() == [Changed("/w")]


def test_a_watch_says_nothing_of_what_is_further_below_or_beside_it(session: Session) -> None:
    session.watch("/w")
    change(session, Create("/w/1/2", b""), Create("/w2", b""), Create("/", b""))
    assert session.take_changes() == []


def test_the_root_can_be_watched(session: Session) -> None:
    session.watch("/")
    change(session, Create("/a", b""))
    assert session.take_changes() == [Changed("/")]


def test_a_watch_reports_once(session: Session) -> None:
    session.watch("/w")
    change(session, Create("/w", b""), Write("/w", b""))
    change(session, Write("/w", b""))
    assert session.take_changes() == [Changed("/w")]
    change(session, Write("/w", b""))
    assert session.take_changes() == []


def test_reports_that_were_not_taken_become_one(session: Session) -> None:
    for data in (b"1", b"2"):
        session.watch("/w")
        change(session, Create(f"/w/{data!r}", data))
    assert session.take_changes() == [Changed("/w")]


def test_a_watch_set_on_an_old_view_reports_what_the_view_has_not_seen(
    tree: SharedTree, session: Session
) -> None:
    late = tree.open_session()
    change(session, Create("/w", b""))
    late.watch("/w")
    assert (nodes_of(late, point=late.seen), late.take_changes()) == ({}, [])
    assert list(nodes_of(late)) == ["/w"]
    assert late.take_changes() == [Changed("/w")]


def test_a_session_reads_any_point_on_its_way_but_never_goes_back(tree: SharedTree, session: Session) -> None:
    late = tree.open_session()
    change(session, Create("/a", b"0"), Create("/b", b""))
    change(session, Write("/a", b"1"), Delete("/b"))
    change(session, Delete("/a"))
    assert nodes_of(late, point=0) == {}
    assert nodes_of(late, point=1) == {"/a": Node(b"0", 0), "/b": Node(b"", 0)}
    assert nodes_of(late, point=2) == {"/a": Node(b"1", 1)}
    with pytest.raises(AssertionError):
        nodes_of(late, point=1)
    assert nodes_of(late) == {}
    with pytest.raises(AssertionError):
        nodes_of(late, point=4)


@pytest.mark.parametrize(
    "action",
    [Multi((Create("/b", b""),)), Multi((Check("/none"),)), ReadTree("/", True), ReadNodes((), True)],
)
def test_own_changes_and_synced_readings_bring_a_session_to_the_newest(
    tree: SharedTree, session: Session, action: Action
) -> None:
    late = tree.open_session()
    change(session, Create("/a", b""))
    late.perform(action, late.seen)
    assert late.seen == tree.newest
    assert "/a" in nodes_of(late, point=late.seen)


def test_what_every_session_has_seen_is_not_kept(tree: SharedTree, session: Session) -> None:
    late = tree.open_session()
    for number in range(100):
        change(session, Create(f"/{number}", b""))
    assert len(tree._history) == 100
    late.see(40)
    assert len(tree._history) == 60
    tree.end_session(late)
    assert (len(tree._history), tree.newest, len(nodes_of(session))) == (0, 100, 100)
    tree.end_session(session)
    assert len(nodes_of(tree.open_session())) == 100


# All of it at random.

PATHS = ("/a", "/a/b", "/a/b/c", "/d", "/d/e", "/dd")
FOLDERS = ("/", "/a", "/a/b", "/d")
paths = strategies.sampled_from(PATHS)
datas = strategies.binary(max_size=1)
versions = strategies.sampled_from((ANY_VERSION, ANY_VERSION, 0, 1, 2))
operations = strategies.one_of(
    strategies.builds(Create, paths, datas, strategies.booleans(), strategies.just(False)),
    strategies.builds(Create, strategies.just("/d/"), datas, strategies.booleans(), strategies.just(True)),
    strategies.builds(Write, paths, datas, versions),
    strategies.builds(Delete, paths, versions),
    strategies.builds(Check, paths, versions),
)
readings = strategies.one_of(
    strategies.builds(ReadTree, strategies.sampled_from(FOLDERS), strategies.booleans()),
    strategies.builds(ReadNodes, strategies.lists(paths, max_size=3).map(tuple), strategies.booleans()),
)
shares = strategies.none() | strategies.floats(0, 1)

Copy = dict[str, tuple[Node, int | None]]  # the whole tree, each node with its owner


class Modelled:
    """What is to be known of a session: the point it has seen, what it watches, what it will hear of."""

    def __init__(self, session: Session, number: int, seen: int) -> None:
        self.session, self.number, self.seen = session, number, seen
        self.watched: set[str] = set()
        self.fired: set[str] = set()


class TreeBesideItsModel(RuleBasedStateMachine):
    sessions = Bundle("sessions")

    def __init__(self) -> None:
        super().__init__()
        self.tree = SharedTree()
        self.copies: list[Copy] = [{}]
        self.touched: list[set[str]] = [set()]
        self.numbers_given = 0
        self.alive: list[Modelled] = []
        self.session_count = 0

    @initialize(target=sessions)
    def begin(self) -> Modelled:
        return self.opened()

    @rule(target=sessions)
    def open(self) -> Modelled:
        return self.opened()

    def opened(self) -> Modelled:
        self.session_count += 1
        modelled = Modelled(self.tree.open_session(), self.session_count, len(self.copies) - 1)
        self.alive.append(modelled)
        return modelled

    @rule(modelled=consumes(sessions))
    def end(self, modelled: Modelled) -> None:
        self.tree.end_session(modelled.session)
        self.alive.remove(modelled)
        newest = self.copies[-1]
        own = {path for path, (_, owner) in newest.items() if owner == modelled.number}
        if own:
            self.commit({path: held for path, held in newest.items() if path not in own}, own)

    @rule(modelled=sessions, path=strategies.sampled_from(FOLDERS))
    def watch(self, modelled: Modelled, path: str) -> None:
        modelled.session.watch(path)
        modelled.watched.add(path)

    @rule(modelled=sessions, multi=strategies.lists(operations, max_size=4))
    def change(self, modelled: Modelled, multi: list[Operation]) -> None:
        outcome = modelled.session.perform(Multi(tuple(multi)))
        copy, touched, given = dict(self.copies[-1]), set[str](), self.numbers_given
        refused: int | None = None
        for place, operation in enumerate(multi):
            path = operation.path
            if isinstance(operation, Create) and operation.is_sequential:
                path, given = f"{path}{given:010d}", given + 1
            if not self.is_fit(copy, path, operation):
                refused = place
                break
            if not isinstance(operation, Check):
                touched.add(path)
                self.apply(copy, path, operation, modelled.number)
        assert (outcome.place if isinstance(outcome, Refused) else None) == refused
        if refused is None:
            self.numbers_given = given
            if touched:
                self.commit(copy, touched)
        self.go_on(modelled, len(self.copies) - 1)

    def is_fit(self, copy: Copy, path: str, operation: Operation) -> bool:
        if isinstance(operation, Create):
            return path not in copy
        return path in copy and operation.version in (ANY_VERSION, copy[path][0].version)

    def apply(self, copy: Copy, path: str, operation: Operation, number: int) -> None:
        if isinstance(operation, Create):
            copy[path] = Node(operation.data, 0), number if operation.is_ephemeral else None
        elif isinstance(operation, Write):
            copy[path] = Node(operation.data, copy[path][0].version + 1), copy[path][1]
        else:
            del copy[path]

    def commit(self, copy: Copy, touched: set[str]) -> None:
        self.copies.append(copy)
        self.touched.append(touched)

    def go_on(self, modelled: Modelled, point: int) -> None:
        for touched in self.touched[modelled.seen + 1 : point + 1]:
            near = touched | {path.rpartition("/")[0] or "/" for path in touched}
            modelled.fired |= modelled.watched & near
            modelled.watched -= near
        modelled.seen = point

    @rule(modelled=sessions, reading=readings, share=shares, takes=strategies.booleans())
    def read(
        self, modelled: Modelled, reading: ReadTree | ReadNodes, share: float | None, takes: bool
    ) -> None:
        newest = len(self.copies) - 1
        point = None if share is None else modelled.seen + round(share * (newest - modelled.seen))
        outcome = modelled.session.perform(reading, point)
        self.go_on(modelled, newest if reading.is_synced or point is None else point)
        copy = self.copies[modelled.seen]
        if isinstance(reading, ReadNodes):
            wanted = [path for path in copy if path in reading.paths]
        else:
            wanted = [path for path in copy if f"{path}/".startswith(reading.path.rstrip("/") + "/")]
        assert outcome == Tree({path: copy[path][0] for path in wanted})
        if takes:
            self.take(modelled)

    @rule(modelled=sessions)
    def take(self, modelled: Modelled) -> None:
        taken = modelled.session.take_changes()
        assert sorted(taken) == sorted(Changed(path) for path in modelled.fired)
        modelled.fired.clear()

    @invariant()
    def nothing_is_kept_that_everybody_has_seen(self) -> None:
        newest = len(self.copies) - 1
        assert self.tree.newest == newest
        least = min((modelled.seen for modelled in self.alive), default=newest)
        assert len(self.tree._history) <= newest - least
        assert [modelled.session.seen for modelled in self.alive] == [
            modelled.seen for modelled in self.alive
        ]


TestTheTreeDoesWhatItsModelDoes = TreeBesideItsModel.TestCase
TestTheTreeDoesWhatItsModelDoes.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
