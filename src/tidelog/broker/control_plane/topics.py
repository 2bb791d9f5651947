"""Topics as the controller writes them: made, grown and deleted.

A broker that needs a topic itself asks the controller for it. Whatever the way a change became known, what
follows here is the data plane's (`hosting`).

**Invariant:** a topic that was made is told when its partitions are open on this broker, or cannot be.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from tidelog.base.events import info
from tidelog.broker.control_plane.control import Control
from tidelog.broker.control_plane.forwarding import Forwarding
from tidelog.broker.kernel import Kernel
from tidelog.broker.store_desk import OnOutcome
from tidelog.broker.topic_settings import SettingsInForce
from tidelog.cluster import controller
from tidelog.cluster.facts import TopicFacts
from tidelog.cluster.image import Image
from tidelog.cluster.placement import place, racks_of
from tidelog.cluster.store import Done, Outcome, Refused, Unknown
from tidelog.protocol.apis import CREATE_TOPICS
from tidelog.protocol.envelope import seal
from tidelog.protocol.messages import encode_request, request_types

CREATE_TOPICS_VERSION = 7
CREATE_TIMEOUT = timedelta(seconds=30)


class Topics:
    def __init__(
        self,
        kernel: Kernel,
        image: Image,
        control: Control,
        forwarding: Forwarding,
        settings_in_force: SettingsInForce,
        when_open: Callable[[bytes, OnOutcome], None],
    ) -> None:
        """`when_open` tells when what is this broker's of a topic is open, or cannot be."""
        self._kernel = kernel
        self._outbox = kernel.outbox
        self._image = image
        self._control = control
        self._forwarding = forwarding
        self._settings_in_force = settings_in_force
        self._when_open = when_open

    def create(self, name: str, config: dict[str, str], assignment: list[list[int]], then: OnOutcome) -> None:
        topic_id = self._kernel.new_id()
        is_flushed = self._is_flushed(TopicFacts(topic_id, name, config, 0))
        operations = controller.decide_topic(self._image, name, topic_id, config, assignment, is_flushed)

        def on_created(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self._outbox.tell(info("topic created", topic=name, partitions=len(assignment)))
                self._when_open(topic_id, then)
            else:
                then(outcome)

        self._control.write(operations, on_created)

    def have_created(
        self, name: str, config: dict[str, str], partition_count: int, replica_count: int, then: OnOutcome
    ) -> None:
        """Have the controller create a topic that this broker needs. In a cluster only if there
        are enough brokers: it would have too few replicas for good."""
        racks = racks_of(self._image.brokers)
        if not self._kernel.is_sharing:
            replica_count = min(replica_count, len(racks))
        if not 0 < replica_count <= len(racks):
            then(
                Refused(
                    0,
                    f"replication factor {replica_count} is larger than the number of brokers ({len(racks)})",
                )
            )
            return
        assignment = place(partition_count, replica_count, racks, self._kernel.node_id)
        if not self._kernel.is_sharing or self._control.is_controller:
            self.create(name, config, assignment, then)
        else:
            self._ask_controller(name, config, assignment, then)

    def _ask_controller(
        self, name: str, config: dict[str, str], assignment: list[list[int]], then: OnOutcome
    ) -> None:
        """Told when the topic is known here."""
        part = request_types(CREATE_TOPICS.key, CREATE_TOPICS_VERSION)
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
        image = self._image

        def on_known() -> None:
            then(Done() if name in image.topics else Unknown("the controller has not created the topic"))

        def on_answer(answer: memoryview | None) -> None:
            if answer is None:
                on_known()
            else:
                self._forwarding.when_known(name, on_known)

        frame = encode_request(CREATE_TOPICS.key, CREATE_TOPICS_VERSION, "tidelog", request)

        def serve() -> None:
            if name in image.topics:
                then(Done())
            else:
                self.have_created(name, config, len(assignment), len(assignment[0]), then)

        self._forwarding.send(seal(frame), on_answer, serve)

    def grow(self, topic: TopicFacts, added: list[list[int]], then: OnOutcome) -> None:
        """Add partitions to a topic, with those replicas."""

        def on_grown(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self._outbox.tell(info("partitions added", topic=topic.name, added=len(added)))
                self._when_open(topic.topic_id, then)
            else:
                then(outcome)

        operations = controller.decide_growth(self._image, topic, added, self._is_flushed(topic))
        self._control.write(operations, on_grown)

    def _is_flushed(self, topic: TopicFacts) -> bool:
        return self._settings_in_force.resolve(topic).flush_messages == 1

    def delete(self, topic: TopicFacts, then: OnOutcome) -> None:

        def on_deleted(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self._outbox.tell(info("topic deleted", topic=topic.name))
            then(outcome)

        self._control.write(controller.decide_deletion(topic), on_deleted)
