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
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.base.events import info, warning
from tidelog.base.forms import PLAINTEXT
from tidelog.cluster import controller
from tidelog.cluster.elections import recovered_alone
from tidelog.cluster.features import SUPPORTED, unknown_level
from tidelog.cluster.image import BROKER_EPOCHS, BROKERS, FEATURES, BrokerFacts
from tidelog.cluster.store import Check, Done, Operation, Outcome, ReadTree, Tree, Unknown, Write
from tidelog.log.trust import Kept, Life

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

RENEWED_TOGETHER = 1_000
LOSSES_TOLD_MAX = 20  # one by one
NEVER_A_VERSION = 1 << 30


class StoreFailed(Exception):
    """The store does not have, or did not do, what this broker cannot go on without."""


class Registration:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        features = {each.name: (each.oldest_level, each.newest_level) for each in SUPPORTED}
        rack = broker.settings.text("broker.rack")
        self._facts = BrokerFacts(broker.node_id, "", 0, rack, 0, features=features)
        self._fence_epoch = 0  # that this process raised before it opened its logs; 0: not yet
        self._are_directories_claimed = False
        self._was_clean = False
        self.vouched_epoch = -1  # up to which nothing is lost; the store may not have got so far
        self.are_logs_open = False
        self.has_registered = False  # at least once: from then on it is known what may be led
        self.is_registered = False
        self.is_stopping = False

    @property
    def epoch(self) -> int:
        return self._facts.epoch

    @property
    def check(self) -> Check:
        """What every change of this broker's partitions must pass: no later process has begun. If the image
        has another epoch than this broker's, nothing passes."""
        path, image = f"{BROKER_EPOCHS}/{self._broker.node_id}", self._broker.image
        is_own = image.broker_epochs[self._broker.node_id].epoch == self.epoch
        return Check(path, image.versions[path] if is_own else NEVER_A_VERSION)

    def start(self, host: str, port: int, listeners: dict[str, tuple[str, int]] | None = None) -> None:
        """At that address for other brokers; for clients at that of the listener they come in by."""
        facts = self._facts
        facts.host, facts.port, facts.listeners = host, port, listeners or {PLAINTEXT: (host, port)}
        self._read()

    def on_session_ended(self) -> None:
        """The store has given this broker up. It goes on serving; nobody can join an ISR or be elected by
        what it was, and it comes back under a new epoch. It has lost nothing."""
        broker = self._broker
        if not self.are_logs_open or self.is_stopping:
            return
        self.is_registered = False
        broker.control.resign()
        broker.following.expect_others()
        broker.events.append(warning("session ended"))
        self._read()

    def _read(self) -> None:
        broker = self._broker
        if broker.is_sharing:
            broker.following.begin()
        broker.submit(ReadTree("/", is_synced=True), self._on_tree)

    def _retry(self, outcome: Outcome, what: str) -> None:
        if not self._broker.is_sharing:
            raise StoreFailed(f"{what}: {outcome}")
        if isinstance(outcome, Unknown):  # else another broker was faster
            self._broker.events.append(warning("store asked in vain", what=what, reason=outcome.reason))
        self._read()

    def _on_tree(self, outcome: Outcome) -> None:
        broker = self._broker
        if not isinstance(outcome, Tree):
            self._retry(outcome, "the store cannot be read")
            return
        changed = broker.following.take_tree(outcome.nodes)
        self.check_levels()
        if self.are_logs_open:
            if self.has_registered:
                self._check_place()  # before it takes what the other one leads for its own
            broker.follow(changed)
            self._state()
            return
        broker.use_broker_settings()
        if self._fence_epoch:
            self._open_logs()
            return
        operations = controller.decide_first_start(broker.image, broker.new_id(), not broker.is_sharing)
        if operations:
            broker.change(operations, self._on_first_start)
        else:
            self._fence()

    def check_levels(self) -> None:
        """Nobody may go on whose software does not know what the others have come to use."""
        unknown = unknown_level(self._broker.image)
        if unknown is not None:
            raise StoreFailed(unknown)

    def _on_first_start(self, outcome: Outcome) -> None:
        if isinstance(outcome, Done):
            self._fence()
        else:
            self._retry(outcome, "the store cannot be written")

    def _fence(self) -> None:
        """Let nothing count that the last process of this broker still has under way."""
        broker, partitions = self._broker, self._broker.partitions
        last = broker.image.broker_epochs.get(broker.node_id)
        if not self._are_directories_claimed:
            life = Life(last.registered, bool(last.directories)) if last is not None else Life()
            cluster_id = broker.image.cluster_id
            self._was_clean = partitions.claim_directories(cluster_id, broker.entropy, broker.boot_id, life)
            self._are_directories_claimed = True
        self._facts.directory = partitions.directories[0].directory_id
        self._check_other()
        epoch = last.epoch + 1 if last is not None else 1
        self._vouch(epoch)

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self._fence_epoch = epoch
                self._read()
            else:
                self._retry(outcome, "the epoch of this broker cannot be raised")

        broker.change(controller.decide_fence(broker.image, broker.node_id), on_outcome)

    def _open_logs(self) -> None:
        broker, partitions = self._broker, self._broker.partitions
        own = broker.image.broker_epochs[broker.node_id]
        if own.epoch != self._fence_epoch:
            raise StoreFailed(
                f"node.id {broker.node_id}: another process starts under it; give one of them another node.id"
            )
        partitions.expect(own.directories, own.epoch, own.registered)
        broker.topics.open_known()
        broker.checkpoints.forget(partitions.unknown_names())
        self.are_logs_open = True
        lost = [each for each in partitions.all() if each.kept >= Kept.TORN]
        broker.events.append(
            info(
                "logs opened",
                topics=len(broker.image.topics),
                partitions=sum(1 for _ in partitions.all()),
                after_clean_stop=self._was_clean,
                scanned_bytes=partitions.scanned_size,
                cut_bytes=partitions.cut_size,
            )
        )
        for partition in lost[:LOSSES_TOLD_MAX]:
            name = f"{partition.topic}-{partition.index}"
            broker.events.append(
                warning("replica not trusted", partition=name, found=partition.kept.name.lower())
            )
        if len(lost) > LOSSES_TOLD_MAX:
            broker.events.append(warning("replicas not trusted", partitions=len(lost)))
        self._state()

    def _state(self) -> None:
        """Say what logs have lost, some at a time, before anybody can count on them."""
        broker = self._broker
        writes = broker.statements.first()
        if not writes:
            self._register()
            return

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self._state()
            else:
                self._retry(outcome, "what logs have lost cannot be written")

        path = f"{BROKER_EPOCHS}/{broker.node_id}"
        broker.change([Check(path, broker.image.versions[path]), *writes], on_outcome)

    def _check_place(self) -> None:
        """Nobody else may have come under this one's number while it had no session: what the store says of
        that number would be said of the other one's directory, also when that one is gone again. Who is not
        trusted yet may have come with a new disk: then the store has the old one's directory, rightly."""
        node_id = self._broker.node_id
        last = self._broker.image.broker_epochs.get(node_id)
        self._check_other()
        if last is not None and last.directory != self._facts.directory:
            raise StoreFailed(
                f"node.id {node_id} was registered from another directory while this broker had no session; "
                "start it again if it is to come back with what it has, or give it another node.id"
            )

    def _check_other(self) -> None:
        node_id = self._broker.node_id
        other = self._broker.image.brokers.get(node_id)
        if other is not None and other.directory != self._facts.directory:
            raise StoreFailed(
                f"node.id {node_id} is registered by the broker at {other.host}:{other.port}; "
                "give this one another node.id, or stop that one"
            )

    def _register(self) -> None:
        broker, partitions = self._broker, self._broker.partitions
        self._check_other()
        last = broker.image.broker_epochs[broker.node_id]
        is_first = not self.has_registered and last.registered < self._fence_epoch == last.epoch
        facts = replace(self._facts, epoch=last.epoch if is_first else last.epoch + 1)
        is_trusted = all(each.kept is not Kept.UNFLUSHED for each in partitions.directories)
        ids = [each.directory_id for each in partitions.directories]
        operations = controller.decide_registration(broker.image, facts, is_trusted, ids)
        operations += broker.control.candidacy()
        if (levels := broker.image.versions.get(FEATURES)) is not None:
            operations.append(Check(FEATURES, levels))  # known, when it was looked at
        if facts.epoch > self.vouched_epoch:  # by the time the store has done it, this process may have ended
            self._vouch(facts.epoch)

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self._facts = facts
                self._on_registered()
            else:
                self._retry(outcome, "this broker cannot be registered")

        broker.change(operations, on_outcome)

    def _on_registered(self) -> None:
        broker = self._broker
        broker.replicas.use_broker_epoch(self.epoch)
        if not self.has_registered:
            renewed = self._alone()
            try:
                broker.partitions.settle_losses()
            except OSError as failure:
                raise StoreFailed(f"what logs have lost cannot be forgotten: {failure}") from failure
            self._vouch(self.epoch)
            self._renew(renewed)
        else:
            self._serve()

    def _vouch(self, epoch: int) -> None:
        """Leave word of what each directory has kept up to that epoch, while the machine runs."""
        broker, self.vouched_epoch = self._broker, epoch
        for failed in broker.partitions.write_notes(broker.boot_id, epoch):
            broker.fail_directory(failed.directory, failed.error)

    def _alone(self) -> list[Operation]:
        """Partitions that have no other member and whose end this broker may have lost: it leads them under a
        new epoch."""
        broker, node_id = self._broker, self._broker.node_id
        operations: list[Operation] = []
        for topic in broker.image.topics.values():
            for index, facts in topic.partitions.items():
                here = broker.partitions.find(topic.topic_id, index)
                if here is None or not here.is_open or broker.image.is_trusted(facts, node_id):
                    continue
                led = recovered_alone(facts, node_id, self.epoch)
                if led is not None and here.log.settings.recovers_alone:
                    operations.append(Write(topic.path(index), led.encode(), led.version))
        if operations:
            broker.events.append(warning("unflushed records may be lost", partitions=len(operations)))
        return operations

    def _renew(self, operations: list[Operation]) -> None:
        if not operations:
            self._serve()
            return
        some, rest = operations[:RENEWED_TOGETHER], operations[RENEWED_TOGETHER:]

        def on_outcome(outcome: Outcome) -> None:
            if not isinstance(outcome, Done) and not self._broker.is_sharing:
                raise StoreFailed(f"the epochs of leaders cannot be raised: {outcome}")
            self._renew(rest)  # what could not be written is the controller's to elect

        self._broker.change(some, on_outcome)

    def _serve(self) -> None:
        broker = self._broker
        self.is_registered = self.has_registered = True
        broker.topics.assign_all()
        broker.replicas.note_brokers()
        broker.control.note_brokers()
        broker.control.look()
        broker.is_serving = True

    # Stopping.

    def announce_stop(self) -> None:
        """Tell the others that this broker is about to go, so that its partitions get other leaders."""
        broker = self._broker
        if not broker.is_sharing or not self.is_registered or self.is_stopping:
            return
        self.is_stopping = self._facts.is_stopping = True
        path = f"{BROKERS}/{broker.node_id}"
        broker.change([Write(path, self._facts.encode())], lambda outcome: None)
