"""A broker's place in its cluster: read the tree, open the logs, register; and again when a session has
ended.

| step                | and if it fails                                                                     |
|---------------------|-------------------------------------------------------------------------------------|
| read the tree       | with a store of its own: the start fails; in a cluster: once more                   |
| make what is missing| another broker was faster: read again                                               |
| open the logs       | a directory may be offline; the broker starts without it                            |
| register            | the epoch was raised meanwhile, or nobody knows: read again; another broker has its |
|                     | place: the start fails, or the broker ends                                          |

**Invariant:** logs are open before the broker is registered: who is elected can lead at once. If it
may have lost something since its last epoch, it is trusted from its new one on only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.base.events import info, warning
from tidelog.base.forms import PLAINTEXT
from tidelog.cluster import controller
from tidelog.cluster.features import SUPPORTED, unknown_level
from tidelog.cluster.image import BROKERS, FEATURES, BrokerFacts
from tidelog.cluster.store import Check, Done, Operation, Outcome, ReadTree, Tree, Unknown, Write

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

RENEWED_TOGETHER = 1_000


class StoreFailed(Exception):
    """The store does not have, or did not do, what this broker cannot go on without."""


class Registration:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        features = {each.name: (each.oldest_level, each.newest_level) for each in SUPPORTED}
        rack = broker.settings.text("broker.rack")
        self._facts = BrokerFacts(broker.node_id, "", 0, rack, 0, features=features)
        self._is_trusted = False
        self.vouched_epoch = -1  # up to which nothing is lost; the store may not have got so far
        self.are_logs_open = False
        self.has_registered = False  # at least once: from then on it is known what may be led
        self.is_registered = False
        self.is_stopping = False

    @property
    def epoch(self) -> int:
        return self._facts.epoch

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
            if self._is_trusted:
                self._check_place()  # before it takes what the other one leads for its own
            broker.follow(changed)
            self._register()
            return
        broker.use_broker_settings()
        operations = controller.decide_first_start(broker.image, broker.new_id(), not broker.is_sharing)
        if operations:
            broker.change(operations, self._on_first_start)
        else:
            self._open_logs()

    def check_levels(self) -> None:
        """Nobody may go on whose software does not know what the others have come to use."""
        unknown = unknown_level(self._broker.image)
        if unknown is not None:
            raise StoreFailed(unknown)

    def _on_first_start(self, outcome: Outcome) -> None:
        if isinstance(outcome, Done):
            self._open_logs()
        else:
            self._retry(outcome, "the store cannot be written")

    def _open_logs(self) -> None:
        broker = self._broker
        last = broker.image.broker_epochs.get(broker.node_id)
        partitions = broker.partitions
        is_clean = partitions.claim_directories(broker.image.cluster_id, broker.entropy, broker.boot_id)
        self._facts.directory = partitions.directories[0].directory_id
        if last is not None and last.directory == self._facts.directory:
            self._is_trusted = partitions.have_kept_all(broker.boot_id, last.epoch)
        broker.topics.open_known()
        broker.checkpoints.forget(partitions.unknown_names())
        self.are_logs_open = True
        broker.events.append(
            info(
                "logs opened",
                topics=len(broker.image.topics),
                partitions=sum(1 for _ in partitions.all()),
                after_clean_stop=is_clean,
                scanned_bytes=partitions.scanned_size,
                cut_bytes=partitions.cut_size,
            )
        )
        self._register()

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
        broker = self._broker
        self._check_other()
        facts = replace(self._facts)
        operations = controller.decide_registration(broker.image, facts, self._is_trusted)
        operations += broker.control.candidacy()
        if (levels := broker.image.versions.get(FEATURES)) is not None:
            operations.append(Check(FEATURES, levels))  # known, when it was looked at
        if self._is_trusted:  # by the time the store has done it, this process may have ended
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
        self._is_trusted = True  # from here on, until the process ends
        broker.replicas.use_broker_epoch(self.epoch)
        self._vouch(self.epoch)
        self._renew(self._unrenewed())

    def _vouch(self, epoch: int) -> None:
        """Leave word that nothing is lost of what the broker had up to that epoch, while the machine runs."""
        broker, self.vouched_epoch = self._broker, epoch
        for directory in broker.partitions.directories:
            try:
                if directory.failure is None:
                    directory.mark_running(broker.boot_id, epoch)
            except OSError as failure:
                broker.fail_directory(directory, failure)

    def _unrenewed(self) -> list[Operation]:
        """Partitions that nobody else has, and that were led by this broker before it was stopped uncleanly.
        It may have lost their unsynced ends, and will give the same offsets again: an epoch tells the two
        apart."""
        broker, node_id = self._broker, self._broker.node_id
        operations: list[Operation] = []
        for topic in broker.image.topics.values():
            for index, facts in topic.partitions.items():
                is_own = facts.replicas == [node_id] and facts.leader == node_id
                if is_own and not broker.image.is_trusted(facts, node_id):
                    epoch = facts.leader_epoch + 1
                    raised = replace(facts, leader_epoch=epoch, eligible=[], members={node_id: self.epoch})
                    operations.append(Write(topic.path(index), raised.encode(), facts.version))
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
