"""Topics as the controller writes them: what is asked of the store, and when the one who asked hears."""

from __future__ import annotations

import pytest

from tests.broker.parts import Controlled, told
from tidelog.broker.control_plane.topics import Topics
from tidelog.broker.peers import PeerSend
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.store import Done, Outcome, Refused


class Making:
    def __init__(self, is_sharing: bool = True, node_ids: tuple[int, ...] = (1, 2, 3)) -> None:
        self.plane = Controlled(is_sharing, node_ids)
        self.opening: list[OnOutcome] = []  # who waits for partitions to be open
        numbers = iter(range(1, 100))
        self.plane.kernel.entropy = lambda size: next(numbers).to_bytes(size, "big")
        plane = self.plane
        self.topics = Topics(
            plane.kernel,
            plane.image,
            plane.control,
            plane.forwarding,
            plane.in_force,
            lambda topic_id, then: self.opening.append(then),
        )
        self.heard: list[Outcome] = []

    def have_created(self, replica_count: int = 3, **config: str) -> None:
        settings = {name.replace("_", "."): text for name, text in config.items()}
        self.topics.have_created("t", settings, 2, replica_count, self.heard.append)
        self.plane.stored.settle()


@pytest.fixture
def making() -> Making:
    made = Making()
    made.plane.stand()
    made.plane.kernel.outbox.take_events()
    return made


def test_a_topic_is_in_the_store_before_and_open_when_it_is_told(making: Making) -> None:
    making.have_created()
    assert [len(each.replicas) for each in making.plane.image.topics["t"].partitions.values()] == [3, 3]
    assert making.heard == [] and told(making.plane.kernel.outbox) == ["topic created"]
    making.opening.pop()(Done())
    assert making.heard == [Done()]


def test_too_few_brokers_make_no_topic_in_a_cluster(making: Making) -> None:
    making.have_created(replica_count=4)
    (outcome,) = making.heard
    assert isinstance(outcome, Refused) and "larger than the number of brokers (3)" in outcome.reason
    assert making.plane.image.topics == {}


def test_a_broker_alone_makes_it_with_the_replicas_that_there_can_be() -> None:
    making = Making(is_sharing=False, node_ids=(1,))
    making.plane.stand()
    making.have_created(replica_count=3)
    assert making.plane.image.topics["t"].partitions[0].replicas == [1]


def test_a_name_that_is_taken_is_refused(making: Making) -> None:
    making.have_created()
    making.have_created()
    assert [type(each) for each in making.heard] == [Refused] and len(making.opening) == 1


def test_who_is_not_the_controller_asks_it_and_waits_until_the_topic_is_known() -> None:
    making = Making()
    making.plane.elect_other(2)
    making.have_created()
    (sent,) = making.plane.stored.others
    assert isinstance(sent, PeerSend) and sent.node_id == 2 and b"t" in sent.frame
    making.plane.forwarding.asking.on_frame(2, memoryview(bytes(sent.frame[8:12]) + bytes(20)))
    assert making.heard == []
    making.plane.image.topics["t"] = None  # type: ignore[assignment]  # that it is there is enough
    making.plane.forwarding.tick()
    assert making.heard == [Done()]


def test_topics_grow_and_go_through_the_store(making: Making) -> None:
    making.have_created()
    making.opening.pop()(Done())
    making.topics.grow(making.plane.image.topics["t"], [[3, 1]], making.heard.append)
    making.plane.stored.settle()
    making.opening.pop()(Done())
    topic = making.plane.image.topics["t"]
    assert topic.partitions[2].replicas == [3, 1]
    making.topics.delete(topic, making.heard.append)
    making.plane.stored.settle()
    assert making.plane.image.topics == {} and making.heard == [Done()] * 3
    assert told(making.plane.kernel.outbox) == ["topic created", "partitions added", "topic deleted"]
