"""The controller's part of a broker: becoming it, and writing what it decides (C2, C3).

Every broker that sees no controller tries to become it; the store takes one. What the controller writes is
refused unless its epoch is still the last one: who was paused and wakes up can change nothing.

| write           | what it was meant to do, on an unknown or refused answer                             |
|-----------------|--------------------------------------------------------------------------------------|
| a candidacy     | look who is controller, by a synced reading                                          |
| elections, moves| read the partitions, and decide again from what they are                             |
| topics, settings| read what was to be written: it is there, or it did not happen                       |

**Invariant:** of what it elects by itself one write is under way at most, decided from the image as it is
then.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from tidelog.base.events import info, warning
from tidelog.base.limits import ELECTIONS_TOGETHER, NOTICES_DELETED_TOGETHER, UNCLEAN_WAIT_MS_MAX
from tidelog.base.schedule import Interval
from tidelog.broker.control_plane.following import Following
from tidelog.broker.kernel import Kernel
from tidelog.broker.standing import Standing
from tidelog.broker.store_desk import UNANSWERED, Nodes, OnOutcome, StoreDesk
from tidelog.broker.topic_settings import SettingsInForce
from tidelog.cluster import controller
from tidelog.cluster.elections import decide_preferred
from tidelog.cluster.facts import NOBODY, PartitionChange
from tidelog.cluster.paths import BROKER_EPOCHS, CONTROLLER, CONTROLLER_EPOCH
from tidelog.cluster.reassignments import decide_due
from tidelog.cluster.store import (
    NOWHERE,
    Check,
    Create,
    Delete,
    Done,
    Multi,
    Operation,
    Outcome,
    Refused,
    Unknown,
    Write,
)


class Awaited(NamedTuple):
    """Unclean elections that somebody waits for."""

    asked: list[PartitionChange]
    then: OnOutcome
    until_ms: int


class Control:
    def __init__(
        self,
        kernel: Kernel,
        standing: Standing,
        desk: StoreDesk,
        following: Following,
        settings_in_force: SettingsInForce,
    ) -> None:
        self._node_id = kernel.node_id
        self._settings = kernel.settings
        self._clock = kernel.clock
        self._outbox = kernel.outbox
        self._standing = standing
        self._desk = desk
        self._image = desk.image
        self._following = following
        self._settings_in_force = settings_in_force
        self._seen_epoch = NOBODY  # of the last controller that was noticed
        self._has_resigned = False  # who is controller was last seen in a session that has ended
        self._is_candidate = False  # a candidacy is under way
        self._is_all_due = False  # any partition may lack a leader
        self._due: dict[bytes, None] = {}  # the topics that have changed
        self._is_writing = False
        seconds = kernel.settings.number("leader.imbalance.check.interval.seconds")
        self._imbalance = Interval(seconds * 1_000)
        self._is_imbalanced = False  # leaders may not be the preferred ones, and it is time to see to it
        self._unclean: list[Awaited] = []
        self.election_count = 0
        self.move_count = 0  # of partitions whose replicas have got to where they were to be

    @property
    def deciding_id(self) -> int:
        """The controller, or nobody if that is this broker and it cannot write what it decides. Whether
        another one can is for that one to say: requests go to it as long as it is there."""
        is_cut_off = self.is_controller and not self._standing.is_store_reached
        return NOBODY if is_cut_off else self.controller_id

    @property
    def controller_id(self) -> int:
        """The controller, as seen in this broker's session."""
        return NOBODY if self._has_resigned else self._image.controller_id

    @property
    def is_controller(self) -> bool:
        """Whether the store has this broker as the controller, as last seen; however it came to that, for an
        answer may have been lost. If another one is by now, the store refuses what this one writes."""
        image = self._image
        return self.controller_id == self._node_id and image.controller_own_epoch == image.controller_epoch

    @property
    def check(self) -> Check:
        """What every write of this controller must pass."""
        return Check(CONTROLLER_EPOCH, self._image.versions[CONTROLLER_EPOCH])

    # Becoming the controller.

    def candidacy(self) -> list[Operation]:
        """What makes this broker the controller, if there is none."""
        image = self._image
        if self.controller_id != NOBODY or CONTROLLER_EPOCH not in image.versions:
            return []
        return controller.decide_candidacy(image, self._node_id)

    def stand(self) -> None:
        """Try to become the controller."""
        operations = self.candidacy()
        if self._is_candidate or not operations or not self._standing.is_registered:
            return
        self._is_candidate = True

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self._is_candidate = False
            else:
                self._see_who_won()

        self._desk.change(operations, on_outcome)

    def _see_who_won(self) -> None:
        def on_nodes(nodes: Nodes | None) -> None:
            self._is_candidate = False

        self._desk.read((CONTROLLER, CONTROLLER_EPOCH), on_nodes)

    def note_controller(self) -> None:
        """The store has another controller, or none, or this broker."""
        image, self._has_resigned = self._image, False
        if self.is_controller and self._seen_epoch != image.controller_epoch:
            self._outbox.tell(info("controller elected", epoch=image.controller_epoch))
        self._seen_epoch = image.controller_epoch
        self.note_brokers()
        self.look()

    def resign(self) -> None:
        """The session that it may have been controller in has ended; the image has what was last seen."""
        self._has_resigned = True

    # What the controller sees to by itself.

    def note_brokers(self) -> None:
        """Brokers have changed, or what counts for all topics: any partition may lack a leader, or the
        replicas of any may have moved."""
        self._is_all_due = True

    def note_topics(self, topic_ids: Iterable[bytes]) -> None:
        """Topics have changed: the same of their partitions."""
        if self.is_controller:  # a new controller checks all of them
            self._due |= dict.fromkeys(topic_ids)

    def tick(self) -> None:
        if self.controller_id == NOBODY:
            self.stand()
        if not self.is_controller:
            return
        if self._imbalance.maybe_restart(self._clock.uptime_ms):
            self._is_imbalanced = self._settings.flag("auto.leader.rebalance.enable")
        self.look()
        if self._unclean:
            self._end_unclean()
        if self._is_imbalanced and not self._is_writing:
            self._restore_preferred()
        old = self._following.old_notices[:NOTICES_DELETED_TOGETHER]
        if len(old) >= NOTICES_DELETED_TOGETHER:
            self._following.old_notices = []
            deletions: list[Operation] = [Delete(path) for path in old]
            self._desk.submit(Multi((self.check, *deletions)), lambda outcome: None)

    def look(self) -> None:
        """Elect where a leader is missing and end what has moved, some partitions at a time."""
        if not (self._is_all_due or self._due) or self._is_writing:
            return
        if not self.is_controller or not self._standing.is_registered:
            return
        topics = self._image.topics_by_id
        due = list(topics if self._is_all_due else self._due)
        self._is_all_due = False
        self._due.clear()
        looked_at = [topic for topic_id in due if (topic := topics.get(topic_id)) is not None]
        decided = decide_due(self._image, looked_at, self._settings_in_force.resolve)
        changes = list(islice(decided, ELECTIONS_TOGETHER))
        if len(changes) == ELECTIONS_TOGETHER:
            self.note_topics(due[due.index(changes[-1].topic.topic_id) :])
        if changes:
            self._write_decided(changes)

    def _restore_preferred(self) -> None:
        """Some of them; the rest, and what was refused, when these are written."""
        image = self._image
        found = (
            PartitionChange(topic, index, facts)
            for topic in image.topics.values()
            for index, known in topic.partitions.items()
            if (facts := decide_preferred(image, known)) is not None
        )
        changes = list(islice(found, ELECTIONS_TOGETHER))
        if changes:
            self._write_decided(changes)
        else:
            self._is_imbalanced = False

    def _write_decided(self, changes: list[PartitionChange]) -> None:
        self._is_writing = True
        moved_count = sum(
            each.topic.partitions[each.index].is_moving and not each.facts.is_moving for each in changes
        )

        def on_outcome(outcome: Outcome) -> None:
            self._is_writing = False
            if isinstance(outcome, Done):
                self._note_written(len(changes) - moved_count, moved_count)
                self.look()
            else:
                # With the next tick: a store that is down says so again and again.
                self.note_topics(each.topic.topic_id for each in changes)

        self.write_partitions(changes, on_outcome)

    def _note_written(self, election_count: int, moved_count: int) -> None:
        self.election_count += election_count
        self.move_count += moved_count
        if election_count:
            self._outbox.tell(info("leaders elected", partitions=election_count))
        if moved_count:
            self._outbox.tell(info("replicas moved", partitions=moved_count))

    def elect(self, changes: list[PartitionChange], then: OnOutcome) -> None:
        """Write leaders that an administrator has asked for."""

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self._note_written(len(changes), 0)
            then(outcome)

        self.write_partitions(changes, on_outcome)

    def elect_unclean(self, asked: list[PartitionChange], then: OnOutcome) -> None:
        """Have replicas say where their logs end, and let the longest lead. `then` hears when all of these
        have a leader, if that is soon."""

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                until_ms = self._clock.uptime_ms + UNCLEAN_WAIT_MS_MAX
                self._unclean.append(Awaited(asked, then, until_ms))
            else:
                then(outcome)

        self.write_partitions(asked, on_outcome)

    def _end_unclean(self) -> None:
        topics, uptime_ms = self._image.topics_by_id, self._clock.uptime_ms
        waiting, self._unclean = self._unclean, []
        for each in waiting:
            known = [(topics.get(topic.topic_id), index) for topic, index, _ in each.asked]
            if all(topic is None or topic.partitions[index].leader != NOBODY for topic, index in known):
                each.then(Done())
            elif uptime_ms < each.until_ms:
                self._unclean.append(each)

    # Writing.

    def write_partitions(self, wanted: list[PartitionChange], then: OnOutcome) -> None:
        """Have partitions be like that, all or none, if they still are as they were read, and no broker that
        is elected, or whose answer decided that, has begun again since."""
        operations: list[Operation] = []
        deciding: dict[int, None] = {}
        for topic, index, facts in wanted:
            known = topic.partitions[index]
            operations.append(Write(topic.path(index), facts.encode(), facts.version))
            if facts.leader not in (NOBODY, known.leader):
                deciding |= dict.fromkeys((facts.leader, *known.answers))
        versions = self._image.versions
        for node_id in deciding:
            path = f"{BROKER_EPOCHS}/{node_id}"
            operations.append(Check(path, versions[path]))
        self.write(operations, then)

    def write(self, operations: list[Operation], then: OnOutcome) -> None:
        """Ask the store for a change that is the controller's. `then` hears `Done`; `Refused` if something is
        not as the operations say, which the image has by then, or if they are too many; `Unknown` if it
        should be tried again: this broker is not the controller, or the store did not take it, or does not
        say."""
        if not self.is_controller:
            then(Unknown("this broker is not the controller"))
            return

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, Done) or (isinstance(outcome, Refused) and outcome.place == NOWHERE):
                then(outcome)
            else:
                paths = [operation.path for operation in operations]
                everything = (*paths, CONTROLLER, CONTROLLER_EPOCH)
                self._desk.read(everything, lambda nodes: then(self._read_back(operations, outcome, nodes)))

        self._desk.change([self.check, *operations], on_outcome)

    def _read_back(self, operations: list[Operation], outcome: Outcome, nodes: Nodes | None) -> Outcome:
        """What became of a write that the store has not confirmed."""
        if nodes is None:
            return UNANSWERED
        if isinstance(outcome, Refused):
            if outcome.place:
                return Refused(outcome.place - 1, outcome.reason)
            return Unknown("this broker is no longer the controller")
        if _is_applied(operations, nodes):
            return Done()
        self._outbox.tell(warning("store response lost", what="the change was not made"))
        return Unknown("the request was lost on its way to the store")


def _is_applied(operations: list[Operation], nodes: Nodes) -> bool:
    for operation in operations:
        found = nodes.get(operation.path)
        if isinstance(operation, Create | Write) and (found is None or found.data != operation.data):
            return False
        if isinstance(operation, Delete) and found is not None:
            return False
    return True
