"""Keeping the image in step with a store that others write to as well.

A notice under `/changes` names the nodes that the multi it came with has written; those are read. Brokers and
the controller come and go with their sessions, without a notice, so these two places are watched as well.

| seen                                  | then                                              |
|---------------------------------------|---------------------------------------------------|
| a watched place has changed           | watch it again, then read it                      |
| a notice after the last one known     | read the nodes that it names                      |
| the last one known is gone            | more has happened than is kept: read the tree     |
| a reading was lost                    | read again, with the next tick                    |
| this broker's own session has ended   | the next reading is synced; others are gone if    |
|                                       | they are so a while later                         |

A store that was away ends the sessions of all brokers at once. They serve on, and come back as this one does;
the first one must not take over from the others meanwhile.

**Invariant:** a change is read after it was announced, so that none is missed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tidelog.base.limits import NOTICES_KEPT, RETURN_WAIT_MS
from tidelog.broker.kernel import Kernel
from tidelog.broker.standing import Standing
from tidelog.broker.store_desk import UNANSWERED, OnOutcome, StoreDesk
from tidelog.cluster.changes import Change
from tidelog.cluster.facts import NOWHERE
from tidelog.cluster.paths import BROKERS, CHANGES, CONTROLLER, CONTROLLER_EPOCH
from tidelog.cluster.store import Node, Outcome, ReadNodes, ReadTree, Tree, Watch
from tidelog.log.trust import StorePosition

_BROKERS_TREE = BROKERS.rsplit("/", 1)[0]  # with their epochs
NUMBER_LENGTH = 10  # of what a store adds to the name of a notice


class Following:
    def __init__(self, kernel: Kernel, standing: Standing, desk: StoreDesk) -> None:
        self._node_id = kernel.node_id
        self._clock = kernel.clock
        self._outbox = kernel.outbox
        self._standing = standing
        self._desk = desk
        self._image = desk.image
        self._last_notice = ""
        self._unread: dict[str, None] = {}  # nodes that have changed
        self._is_tree_unread = False
        self._unread_places: dict[str, None] = {}
        self._reading_count = 0
        self._is_session_new = False  # nothing was read in it: a reading may be older than what is known
        self._expected_ms = 0  # until when others are; 0 for not at all
        self.old_notices: list[str] = []  # that the controller may delete

    def begin(self) -> None:
        """Watch; what is read from here on misses nothing."""
        for path in (CHANGES, BROKERS, CONTROLLER):
            self._outbox.effects.append(Watch(path))

    def on_session_ended(self) -> None:
        """What the next session shows first may be older than what was seen in this one, unless it is synced:
        topics that are not there yet would be taken for deleted."""
        self._is_session_new = True

    def expect_others(self) -> None:
        """This broker's session has ended, and those of others may have with it."""
        self._expected_ms = self._clock.uptime_ms + RETURN_WAIT_MS

    @property
    def position(self) -> StorePosition:
        """The last change of the store that was announced here."""
        number = int(self._last_notice[-NUMBER_LENGTH:]) if self._last_notice else NOWHERE
        return StorePosition(self._image.generation, number)

    def take_tree(self, nodes: dict[str, Node]) -> list[Change]:
        """The whole tree was read; what differs from what was known."""
        self._last_notice = max((path for path in nodes if path.startswith(f"{CHANGES}/")), default="")
        self._unread = {}
        self._is_tree_unread = False
        return self._take(self._image.versions, nodes)

    def _take(self, known: Iterable[str], nodes: dict[str, Node]) -> list[Change]:
        """Take what was read; of what was known and is not there, all but brokers that are expected."""
        looked_at = [path for path in known if not self._is_expected(path)]
        return self._image.take([*looked_at, *nodes], nodes)

    def _is_expected(self, path: str) -> bool:
        is_broker = path.startswith(f"{BROKERS}/") and path != f"{BROKERS}/{self._node_id}"
        return is_broker and self._expected_ms > 0

    def on_changed(self, path: str) -> None:
        self._outbox.effects.append(Watch(path))
        self._unread_places[path] = None
        self._read()

    def tick(self) -> None:
        if 0 < self._expected_ms <= self._clock.uptime_ms:
            self._expected_ms = 0
            self._unread_places[BROKERS] = None
        self._read()

    def _read(self) -> None:
        """Ask for all that is unread, unless readings are under way: those that follow them see it too."""
        if self._reading_count:
            return
        if self._is_tree_unread:
            self._is_tree_unread = False
            self._ask(ReadTree("/"), self._on_tree)
            return
        places, self._unread_places = self._unread_places, {}
        for path in places:
            if path == CHANGES:
                self._ask(ReadTree(CHANGES), self._on_notices)
            elif path == BROKERS:
                self._ask(ReadTree(_BROKERS_TREE), self._on_brokers)
            else:
                self._ask(ReadNodes((CONTROLLER, CONTROLLER_EPOCH)), self._on_controller)
        if self._unread:
            paths, self._unread = tuple(self._unread), {}
            self._ask(ReadNodes(paths), lambda outcome: self._on_nodes(outcome, paths))

    def _ask(self, action: ReadTree | ReadNodes, then: OnOutcome) -> None:
        self._reading_count += 1
        if self._is_session_new:
            action = action._replace(is_synced=True)

        def on_outcome(outcome: Outcome) -> None:
            self._reading_count -= 1
            if self._is_session_new and not action.is_synced:  # asked before, and read in the new session
                outcome = UNANSWERED
            elif isinstance(outcome, Tree):
                self._is_session_new = False
            then(outcome)
            if isinstance(outcome, Tree):
                self._read()

        self._desk.submit(action, on_outcome)

    def _on_tree(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Tree):
            self._is_tree_unread = True
            return
        changed = self.take_tree(outcome.nodes)
        self._standing.store_position = self.position
        self._desk.changed.emit(changed)

    def _on_notices(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Tree):
            self._unread_places[CHANGES] = None
            return
        notices = sorted(path for path in outcome.nodes if path != CHANGES)
        self.old_notices = notices[:-NOTICES_KEPT]
        if self._last_notice and self._last_notice not in outcome.nodes:
            self._is_tree_unread = True
            return
        for path in notices:
            if path > self._last_notice:
                self._last_notice = path
                self._unread |= dict.fromkeys(json.loads(outcome.nodes[path].data)["paths"])
        self._standing.store_position = self.position

    def _on_brokers(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Tree):
            self._unread_places[BROKERS] = None
            return
        known = [path for path in self._image.versions if path.startswith(f"{BROKERS}/")]
        self._desk.changed.emit(self._take(known, outcome.nodes))

    def _on_controller(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Tree):
            self._unread_places[CONTROLLER] = None
            return
        self._desk.take((CONTROLLER, CONTROLLER_EPOCH), outcome.nodes)

    def _on_nodes(self, outcome: Outcome, paths: tuple[str, ...]) -> None:
        if not isinstance(outcome, Tree):
            self._unread |= dict.fromkeys(paths)
            return
        self._desk.take(paths, outcome.nodes)
