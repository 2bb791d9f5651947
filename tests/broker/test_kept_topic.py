"""A topic that keeps names: asked for once, whoever waits for it and however it ends."""

from __future__ import annotations

import pytest

from tests.broker.parts import make_kernel, make_topic, told
from tidelog.broker.data_plane.kept_topic import KeptTopic
from tidelog.broker.store_desk import OnOutcome
from tidelog.cluster.image import Image
from tidelog.cluster.store import Done, Outcome, Unknown

NAME = "__names"
Asked = tuple[str, dict[str, str], int, int]


class Keeping:
    def __init__(self) -> None:
        self.kernel = make_kernel(offsets_topic_num_partitions="7", offsets_topic_segment_bytes="5000")
        self.image = Image()
        self.asked: list[Asked] = []
        self.ends: list[OnOutcome] = []
        self.heard = 0
        self.topic = KeptTopic(
            NAME,
            "offsets.topic",
            {"cleanup.policy": "compact"},
            self.kernel.settings,
            self.image,
            self.kernel.outbox,
            self._create,
        )

    def _create(
        self, name: str, config: dict[str, str], partition_count: int, replica_count: int, then: OnOutcome
    ) -> None:
        self.asked.append((name, config, partition_count, replica_count))
        self.ends.append(then)

    def hear(self) -> None:
        self.heard += 1


def test_it_is_created_as_the_settings_say() -> None:
    keeping = Keeping()
    keeping.topic.create(keeping.hear)
    config = {"cleanup.policy": "compact", "segment.bytes": "5000"}
    assert keeping.asked == [(NAME, config, 7, 3)]


@pytest.mark.parametrize(
    "outcome, events", [(Done(), []), (Unknown("lost"), ["internal topic creation failed"])]
)
def test_all_who_wait_hear_of_one_creation(outcome: Outcome, events: list[str]) -> None:
    keeping = Keeping()
    for _ in range(3):
        keeping.topic.create(keeping.hear)
    assert len(keeping.asked) == 1 and keeping.heard == 0
    keeping.ends.pop()(outcome)
    assert keeping.heard == 3 and told(keeping.kernel.outbox) == events


def test_after_a_failure_it_is_asked_for_again() -> None:
    keeping = Keeping()
    for _ in range(2):
        keeping.topic.create(keeping.hear)
        keeping.ends.pop()(Unknown("lost"))
    assert len(keeping.asked) == 2 and keeping.heard == 2


def test_its_facts_are_those_of_the_image() -> None:
    keeping = Keeping()
    assert keeping.topic.facts is None
    keeping.image.topics[NAME] = topic = make_topic(NAME)
    assert keeping.topic.facts is topic
