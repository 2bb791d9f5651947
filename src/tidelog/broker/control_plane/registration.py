"""A broker's place in its cluster: fence its last process, open the logs, state what they have lost,
register; and register again when a session has ended.

| step                | and if it fails                                                                     |
|---------------------|-------------------------------------------------------------------------------------|
| read the tree       | with a store of its own: the start fails; in a cluster: once more                   |
| make what is missing| another broker was faster: read again                                               |
| note the next epoch | a directory may be offline; the broker starts without it                            |
| raise the epoch     | read again                                                                          |
| read the tree, open | another process raised the epoch too: the start fails                               |
| the logs            |                                                                                     |
| state losses        | a partition has changed meanwhile: read again                                       |
| register            | the epoch was raised meanwhile, or nobody knows: read again; another broker has its |
|                     | place: the start fails, or the broker ends                                          |

**Invariant:** what opening the logs found is in the store before the broker can be seen (R16). A directory's
note has the epoch before the store has it; until the broker is registered the note says what may be lost.
While partitions are served, notes are written off the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from tidelog.base.events import warning
from tidelog.base.forms import PLAINTEXT
from tidelog.base.limits import RENEWED_TOGETHER
from tidelog.broker.control_plane.control import Control
from tidelog.broker.control_plane.following import Following
from tidelog.broker.kernel import Kernel
from tidelog.broker.standing import Standing
from tidelog.broker.store_desk import StoreDesk
from tidelog.broker.topic_settings import SettingsInForce
from tidelog.cluster import controller
from tidelog.cluster.changes import QuotasChanged
from tidelog.cluster.facts import BrokerEpoch, BrokerFacts
from tidelog.cluster.features import SUPPORTED, unknown_level
from tidelog.cluster.paths import BROKER_EPOCHS, BROKERS, FEATURES
from tidelog.cluster.store import Check, Done, Operation, Outcome, ReadTree, Tree, Unknown, Write, reason_of
from tidelog.log.directory import LogDirectory
from tidelog.log.trust import Kept, Life, StorePosition


class StoreFailed(Exception):
    """The store does not have, or did not do, what this broker cannot go on without."""


class Logs(Protocol):
    """The logs of this broker, as far as its registration goes by them (`data_plane.logs`)."""

    @property
    def directories(self) -> Sequence[LogDirectory]: ...

    def claim(self, cluster_id: str, life: Life) -> None:
        """Check that the directories are ours, and what they have kept."""

    def vouch(self, epoch: int) -> None:
        """Leave word of what each directory has kept up to that epoch."""

    def vouch_later(self, epoch: int, then: Callable[[], None]) -> None:
        """The same off the loop; `then` is called when it is durable."""

    def open(self, own: BrokerEpoch) -> None:
        """Open what the image says is here."""

    def first_losses(self) -> list[Write]:
        """Some of what must be stated before this broker registers."""

    def led_alone(self) -> list[Operation]:
        """What raises the epochs of partitions that this broker leads alone and may have lost the end of."""

    def settle_losses(self) -> None:
        """The store knows what was lost. Raises OSError."""

    def use_broker_epoch(self) -> None:
        """This broker has registered: it fetches under that epoch from now on."""

    def serve(self) -> None:
        """Let partitions have the roles that the image says."""


class Registration:
    def __init__(
        self,
        kernel: Kernel,
        desk: StoreDesk,
        standing: Standing,
        following: Following,
        control: Control,
        settings_in_force: SettingsInForce,
        logs: Logs,
    ) -> None:
        self._kernel = kernel
        self._clock = kernel.clock
        self._outbox = kernel.outbox
        self._desk = desk
        self._image = desk.image
        self._standing = standing
        self._following = following
        self._control = control
        self._settings_in_force = settings_in_force
        self._logs = logs
        features = {each.name: (each.oldest_level, each.newest_level) for each in SUPPORTED}
        rack = kernel.settings.text("broker.rack")
        self._facts = BrokerFacts(kernel.node_id, "", 0, rack, 0, features=features)
        self._fence_epoch = 0  # that this process raised before it opened its logs; 0: not yet
        self._are_directories_claimed = False
        self._is_vouching = False  # before the tree is read again
        self.is_stopping = False

    def start(self, host: str, port: int, listeners: dict[str, tuple[str, int]] | None = None) -> None:
        """At that address for other brokers; for clients at that of the listener they come in by."""
        facts = self._facts
        facts.host, facts.port, facts.listeners = host, port, listeners or {PLAINTEXT: (host, port)}
        self._read()

    def on_session_ended(self) -> None:
        """The store has given this broker up. It goes on serving; nobody can join an ISR or be elected by
        what it was, and it comes back under a new epoch. It has lost nothing."""
        self._following.on_session_ended()
        if not self._standing.are_logs_open or self.is_stopping:
            return
        self._standing.is_registered = False
        self._control.resign()
        self._following.expect_others()
        self._outbox.tell(warning("session ended"))
        self._vouch_and_read()

    def _vouch_and_read(self) -> None:
        """By the epoch that the store has, as far as is known here: no note may be further ahead than one."""
        if self._is_vouching:
            return  # and reads then
        last = self._image.broker_epochs[self._kernel.node_id]
        if not self._standing.has_registered or last.epoch < self._standing.vouched_epoch:
            self._read()
            return
        self._is_vouching = True
        self._logs.vouch_later(last.epoch + 1, self._on_vouched)

    def _on_vouched(self) -> None:
        self._is_vouching = False
        self._read()

    def _read(self) -> None:
        if self._kernel.is_sharing:
            self._following.begin()
        self._desk.submit(ReadTree("/", is_synced=True), self._on_tree)

    def _retry(self, outcome: Outcome, what: str) -> None:
        if not self._kernel.is_sharing:
            raise StoreFailed(f"{what}: {reason_of(outcome)}")
        if isinstance(outcome, Unknown):  # else another broker was faster
            self._outbox.tell(warning("store request failed", what=what, reason=outcome.reason))
        self._read()

    def _on_tree(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Tree):
            self._retry(outcome, "the store cannot be read")
            return
        changed = self._following.take_tree(outcome.nodes)
        self._check_position()
        self.check_levels()
        if self._standing.are_logs_open:
            if self._standing.has_registered:
                self._check_place()  # before it takes what the other one leads for its own
            self._desk.changed.emit(changed)
            self._state()
            return
        self._settings_in_force.use_stored()
        self._desk.changed.emit([change for change in changed if isinstance(change, QuotasChanged)])
        if self._fence_epoch:
            self._open_logs()
            return
        operations = controller.decide_first_start(
            self._image, self._kernel.new_id(), not self._kernel.is_sharing
        )
        if operations:
            self._desk.change(operations, self._on_first_start)
        else:
            self._fence()

    def _check_position(self) -> None:
        """Nobody may go on with a store that was restored from a backup unless an operator says so: the store
        has forgotten who fell out of an ISR since then."""
        standing, found = self._standing, self._following.position
        if found < standing.store_position:
            raise StoreFailed(_restored("this broker", standing.store_position, found))
        standing.store_position = found

    def _check_directories(self, epoch: int) -> None:
        """The same by what the directories have seen. A note is at most one epoch ahead of the store."""
        found = self._following.position
        for directory in self._logs.directories:
            seen = directory.store_position
            if found < seen:
                raise StoreFailed(_restored(directory.path, seen, found))
            if found.generation == seen.generation and directory.noted_epoch > epoch + 1:
                raise StoreFailed(_older(directory.path, f"broker epoch {directory.noted_epoch}", str(epoch)))
            directory.is_ahead = found.generation > max(seen.generation, 0)

    def check_levels(self) -> None:
        """Nobody may go on whose software does not know what the others have come to use."""
        unknown = unknown_level(self._image)
        if unknown is not None:
            raise StoreFailed(unknown)

    def _on_first_start(self, outcome: Outcome) -> None:
        if isinstance(outcome, Done):
            self._fence()
        else:
            self._retry(outcome, "the store cannot be written")

    def _fence(self) -> None:
        """Let nothing count that the last process of this broker still has under way."""
        logs, node_id = self._logs, self._kernel.node_id
        last = self._image.broker_epochs.get(node_id)
        if not self._are_directories_claimed:
            logs.claim(
                self._image.cluster_id, Life(last.registered, last.notes) if last is not None else Life()
            )
            self._are_directories_claimed = True
            self._check_directories(last.epoch if last is not None else 0)
        self._facts.directory = logs.directories[0].directory_id
        self._check_other()
        epoch = last.epoch + 1 if last is not None else 1
        logs.vouch(epoch)

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self._fence_epoch = epoch
                self._read()
            else:
                self._retry(outcome, "the epoch of this broker cannot be raised")

        self._desk.change(controller.decide_fence(self._image, self._kernel.node_id), on_outcome)

    def _open_logs(self) -> None:
        own = self._image.broker_epochs[self._kernel.node_id]
        if own.epoch != self._fence_epoch:
            raise StoreFailed(
                f"node.id {self._kernel.node_id}: another process starts under it; "
                "give one of them another node.id"
            )
        self._logs.open(own)
        self._state()

    def _state(self) -> None:
        """Say what logs have lost, some at a time, before anybody can count on them."""
        writes = self._logs.first_losses()
        if not writes:
            self._register()
            return

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self._state()
            else:
                self._retry(outcome, "what logs have lost cannot be written")

        path = f"{BROKER_EPOCHS}/{self._kernel.node_id}"
        self._desk.change([Check(path, self._image.versions[path]), *writes], on_outcome)

    def _check_place(self) -> None:
        """Nobody else may have come under this one's number while it had no session: what the store says of
        that number would be said of the other one's directory, also when that one is gone again. Who is not
        trusted yet may have come with a new disk: then the store has the old one's directory, rightly."""
        node_id = self._kernel.node_id
        last = self._image.broker_epochs.get(node_id)
        self._check_other()
        if last is not None and last.directory != self._facts.directory:
            raise StoreFailed(
                f"node.id {node_id} was registered from another directory while this broker had no session; "
                "start it again if it is to come back with what it has, or give it another node.id"
            )

    def _check_other(self) -> None:
        node_id = self._kernel.node_id
        other = self._image.brokers.get(node_id)
        if other is not None and other.directory != self._facts.directory:
            raise StoreFailed(
                f"node.id {node_id} is registered by the broker at {other.host}:{other.port}; "
                "give this one another node.id, or stop that one"
            )

    def _register(self) -> None:
        if self._is_vouching:
            return
        directories = self._logs.directories
        self._check_other()
        last = self._image.broker_epochs[self._kernel.node_id]
        is_first = not self._standing.has_registered and last.registered < self._fence_epoch == last.epoch
        facts = replace(self._facts, epoch=last.epoch if is_first else last.epoch + 1)
        is_trusted = all(each.kept is not Kept.UNFLUSHED for each in directories)
        # By the time the store has registered the broker, this process may have ended.
        if facts.epoch > self._standing.vouched_epoch:
            if self._standing.has_registered:
                self._vouch_and_read()
                return
            self._logs.vouch(facts.epoch)
        notes = {each.directory_id: each.epoch_to_vouch(facts.epoch) for each in directories}
        operations = controller.decide_registration(self._image, facts, is_trusted, notes)
        operations += self._control.candidacy()
        if (levels := self._image.versions.get(FEATURES)) is not None:
            operations.append(Check(FEATURES, levels))  # known, when it was looked at

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self._facts, self._standing.epoch = facts, facts.epoch
                self._on_registered()
            else:
                self._retry(outcome, "this broker cannot be registered")

        self._desk.change(operations, on_outcome)

    def _on_registered(self) -> None:
        logs, standing = self._logs, self._standing
        logs.use_broker_epoch()
        if standing.has_registered:
            self._serve()
            return
        renewed = logs.led_alone()
        try:
            logs.settle_losses()
        except OSError as failure:
            raise StoreFailed(f"what logs have lost cannot be forgotten: {failure}") from failure
        logs.vouch(standing.epoch)
        self._renew(renewed)

    def _renew(self, operations: list[Operation]) -> None:
        if not operations:
            self._serve()
            return
        some, rest = operations[:RENEWED_TOGETHER], operations[RENEWED_TOGETHER:]

        def on_outcome(outcome: Outcome) -> None:
            if not isinstance(outcome, Done) and not self._kernel.is_sharing:
                raise StoreFailed(f"the epochs of leaders cannot be raised: {reason_of(outcome)}")
            self._renew(rest)  # what could not be written is the controller's to elect

        self._desk.change(some, on_outcome)

    def _serve(self) -> None:
        standing = self._standing
        standing.is_registered = standing.has_registered = True
        self._logs.serve()
        self._control.note_brokers()
        self._control.look()
        standing.is_serving = True

    # Stopping.

    def announce_stop(self) -> None:
        """Tell the others that this broker is about to go, so that its partitions get other leaders. Written
        late, it must not hide a process that has started since."""
        if not self._kernel.is_sharing or not self._standing.is_registered or self.is_stopping:
            return
        self.is_stopping = self._facts.is_stopping = True
        write = Write(f"{BROKERS}/{self._kernel.node_id}", self._facts.encode())
        self._desk.change([self._standing.check(self._image), write], lambda outcome: None)


def _restored(who: str, seen: StorePosition, found: StorePosition) -> str:
    if seen.generation > found.generation:
        return _older(who, f"restoration {seen.generation}", str(found.generation))
    return _older(who, f"change {seen.change}", str(found.change))


def _older(who: str, seen: str, found: str) -> str:
    return (
        f"the coordination store is older than before: {who} has seen {seen}, the store is at {found}; if it "
        "was restored from a backup, stop all brokers, run 'tidelog cluster restored' with the settings of "
        "one of them, and start them again"
    )
