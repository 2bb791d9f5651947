"""Topics as they come, grow, move and go: written by the controller, opened and closed by every broker that
has a part.

Whatever the way a change became known (this broker wrote it, or read it), what follows is the same: `follow`
compares what is open here with what the image has.

**Invariant:** the folder of a partition is made only when no checkpoint has offsets of an older one of its
name. A log is given up only when the image says that it belongs to others: the image never goes back, and
nobody comes into an ISR who has not seen that it is a replica again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from tidelog.base.events import info, warning
from tidelog.broker.homes import DirectoryFailed
from tidelog.cluster import controller
from tidelog.cluster.features import GROUPS_TOPIC
from tidelog.cluster.image import TopicFacts
from tidelog.cluster.placement import place, racks_of
from tidelog.cluster.store import Done, Outcome, Refused, Unknown
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import encode_request, request_types
from tidelog.protocol.produce import forget_topic
from tidelog.replication.partition import Partition

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker, OnOutcome

CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 7
CREATE_TIMEOUT = timedelta(seconds=30)


class Topics:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiters: dict[bytes, list[OnOutcome]] = {}  # by topic: who waits until it is open here
        self._uncompacted: dict[str, None] = {}  # topics that nothing compacts, as the operator has heard
        self._opening: dict[bytes, None] = {}  # topics whose folders wait for a checkpoint

    # What the controller writes.

    def create(self, name: str, config: dict[str, str], assignment: list[list[int]], then: OnOutcome) -> None:
        broker = self._broker
        topic_id = broker.new_id()
        is_flushed = self._is_flushed(TopicFacts(topic_id, name, config, 0))
        operations = controller.decide_topic(broker.image, name, topic_id, config, assignment, is_flushed)

        def on_created(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                broker.events.append(info("topic created", topic=name, partitions=len(assignment)))
                self.note_policy(name, config)
                self._when_open(topic_id, then)
            else:
                then(outcome)

        broker.control.write(operations, on_created)

    def note_policy(self, name: str, config: dict[str, str]) -> None:
        """Tools want compacted topics, and get them; that nothing compacts yet the operator hears once of
        each. What groups keep is kept short by their coordinators."""
        is_compacted = "compact" in config.get("cleanup.policy", "")
        if is_compacted and name != GROUPS_TOPIC and name not in self._uncompacted:
            self._uncompacted[name] = None
            reason = "cleanup.policy=compact is kept, but nothing compacts yet; watch the size of the topic"
            self._broker.events.append(warning("topic not compacted", topic=name, reason=reason))

    def have_created(
        self, name: str, config: dict[str, str], partition_count: int, replica_count: int, then: OnOutcome
    ) -> None:
        """Have a topic made that this broker needs, by whoever is the controller. In a cluster only if there
        are enough brokers: it would have too few replicas for good."""
        broker = self._broker
        racks = racks_of(broker.image.brokers)
        if not broker.is_sharing:
            replica_count = min(replica_count, len(racks))
        if not 0 < replica_count <= len(racks):
            then(Refused(0, f"{replica_count} replicas need as many brokers; {len(racks)} are registered"))
            return
        assignment = place(partition_count, replica_count, racks, broker.node_id)
        if not broker.is_sharing or broker.control.is_controller:
            self.create(name, config, assignment, then)
        else:
            self._ask_controller(name, config, assignment, then)

    def _ask_controller(
        self, name: str, config: dict[str, str], assignment: list[list[int]], then: OnOutcome
    ) -> None:
        """Told when the topic is known here."""
        part = request_types(CREATE_TOPICS, CREATE_TOPICS_VERSION)
        topic = part.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=tuple(
                part.CreatableReplicaAssignment(partition_index=index, broker_ids=tuple(replicas))
                for index, replicas in enumerate(assignment)
            ),
            configs=tuple(part.CreatableTopicConfig(name=key, value=text) for key, text in config.items()),
        )
        request = part.CreateTopicsRequest(topics=(topic,), timeout=CREATE_TIMEOUT, validate_only=False)
        forwarding, image = self._broker.forwarding, self._broker.image

        def on_known() -> None:
            then(Done() if name in image.topics else Unknown("the controller has not made the topic"))

        def on_answer(answer: memoryview | None) -> None:
            if answer is None:
                on_known()
            else:
                forwarding.when_known(name, on_known)

        frame = encode_request(CREATE_TOPICS, CREATE_TOPICS_VERSION, "tidelog", request)

        def serve() -> None:
            if name in image.topics:
                then(Done())
            else:
                self.have_created(name, config, len(assignment), len(assignment[0]), then)

        forwarding.send(frame, on_answer, serve)

    def grow(self, topic: TopicFacts, added: list[list[int]], then: OnOutcome) -> None:
        """Add partitions to a topic, with those replicas."""
        broker = self._broker

        def on_grown(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                broker.events.append(info("topic grown", topic=topic.name, added=len(added)))
                self._when_open(topic.topic_id, then)
            else:
                then(outcome)

        operations = controller.decide_growth(broker.image, topic, added, self._is_flushed(topic))
        broker.control.write(operations, on_grown)

    def _is_flushed(self, topic: TopicFacts) -> bool:
        return self._broker.partitions.resolve(topic).flush_messages == 1

    def delete(self, topic: TopicFacts, then: OnOutcome) -> None:
        broker = self._broker

        def on_deleted(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                broker.events.append(info("topic deleted", topic=topic.name))
            then(outcome)

        broker.control.write(controller.decide_deletion(topic), on_deleted)

    def _when_open(self, topic_id: bytes, then: OnOutcome) -> None:
        """Tell when the partitions of a topic that are this broker's are open, or cannot be."""
        if topic_id in self._opening:
            self._waiters.setdefault(topic_id, []).append(then)
        else:
            then(self._outcome(topic_id))

    def _outcome(self, topic_id: bytes) -> Outcome:
        topic = self._broker.image.topics_by_id.get(topic_id)
        if topic is None:
            return Unknown("the topic was deleted as soon as it was made")
        here = self._broker.partitions.of(topic_id) or ()
        if any(partition is not None and not partition.is_open for partition in here):
            return Unknown(f"the folders of topic {topic.name} could not be made")
        return Done()

    # What follows from the image.

    def follow(self, topic_ids: Iterable[bytes]) -> None:
        for topic_id in topic_ids:
            topic = self._broker.image.topics_by_id.get(topic_id)
            if topic is None:
                self._close(topic_id)
                continue
            self._give_up_moved(topic)
            if self._broker.partitions.lacks(topic):
                self._open_when_fresh(topic)
            else:
                self._assign(topic)

    def open_known(self) -> None:
        """At the start, by an image that was just read and synced: every topic that was there before. What
        was moved away while this broker was down is given up now, what belongs to no topic set aside."""
        broker = self._broker
        for topic in broker.image.topics.values():
            self._open(topic, is_new=False)
        failures = broker.partitions.set_strays_aside(broker.image.topics_by_id, broker.is_sharing)
        self._note_opened(failures)

    def assign_all(self) -> None:
        for topic in list(self._broker.image.topics.values()):
            self._assign(topic)

    def _open_when_fresh(self, topic: TopicFacts) -> None:
        """Make the folders that a topic lacks, once no checkpoint has the offsets of one of its name."""
        broker, topic_id = self._broker, topic.topic_id
        if not broker.checkpoints.is_stale(topic.name):
            self._open_now(topic_id)
        elif topic_id not in self._opening:
            self._opening[topic_id] = None
            broker.checkpoints.wait_for_name(topic.name, lambda: self._open_now(topic_id))
            broker.write_urgent_checkpoints()

    def _open_now(self, topic_id: bytes) -> None:
        self._opening.pop(topic_id, None)
        topic = self._broker.image.topics_by_id.get(topic_id)
        if topic is not None:
            self._open(topic, is_new=True)
            self._assign(topic)
        for then in self._waiters.pop(topic_id, []):
            then(self._outcome(topic_id))

    def _open(self, topic: TopicFacts, is_new: bool) -> None:
        """Open what of a topic is this broker's; a directory that fails is offline from here on."""
        broker = self._broker
        self._note_opened(broker.partitions.open_topic(topic, broker.now_ms, is_new))

    def _note_opened(self, failures: list[DirectoryFailed]) -> None:
        broker = self._broker
        broker.events += broker.partitions.take_events()
        for failed in failures:
            broker.fail_directory(failed.directory, failed.error)
        for directory, name in broker.partitions.homes.take_strays():
            broker.remove_later(directory, name, 0)

    def _assign(self, topic: TopicFacts) -> None:
        """Let the partitions that are open here have their roles."""
        broker = self._broker
        if not broker.registration.has_registered:
            return
        for partition in broker.partitions.of(topic.topic_id) or ():
            if partition is None or partition.index not in topic.partitions:
                continue
            try:
                broker.replicas.assign(partition, topic.partitions[partition.index])
            except OSError as error:
                broker.fail_directory(partition.directory, error)

    def _close(self, topic_id: bytes) -> None:
        broker = self._broker
        here = broker.partitions.of(topic_id)
        if here is None:
            return
        name = broker.partitions.name_of(topic_id)
        for partition in here:
            if partition is not None:
                self._retire(partition)
        broker.partitions.forget(topic_id)
        broker.checkpoints.forget([name])
        broker.coordinators.on_topic_deleted(name, topic_id)
        forget_topic(name, topic_id)
        self._uncompacted.pop(name, None)

    def _give_up_moved(self, topic: TopicFacts) -> None:
        """Close what has been moved to other brokers."""
        broker = self._broker
        for partition in broker.partitions.moved_away(topic):
            self._retire(partition)
            partition.error_code = int(ErrorCode.not_leader_or_follower)  # to whoever still waits here
            broker.partitions.forget_one(partition)
            broker.checkpoints.forget([topic.name])
            name = f"{topic.name}-{partition.index}"
            broker.events.append(info("replica moved away", partition=name))

    def _retire(self, partition: Partition) -> None:
        broker = self._broker
        broker.relocation.cancel(partition)
        broker.replicas.drop(partition)
        broker.retention.drop(partition)
        broker.statements.forget(partition)
        try:
            directory, folder = broker.partitions.retire(partition, broker.entropy(16))
            broker.remove_later(directory, folder, partition.log.settings.file_delete_delay_ms)
        except OSError as error:
            broker.fail_directory(partition.directory, error)
        broker.waiting.on_moved(partition)
        broker.coordinators.resign(partition)
