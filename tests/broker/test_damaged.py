"""Records that cannot be read: which error a reader gets, and how often the operator hears."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.broker.parts import TOPIC_ID, make_disks, make_kernel, make_partitions, make_topic, told
from tests.replication.leading import image_of
from tidelog.broker.data_plane import damaged as module
from tidelog.broker.data_plane.damaged import Damaged
from tidelog.broker.data_plane.statements import Statements
from tidelog.broker.kernel import Kernel
from tidelog.broker.standing import Standing
from tidelog.broker.store_desk import StoreDesk
from tidelog.cluster.facts import PartitionFacts
from tidelog.log.scan import Damage
from tidelog.log.trust import Kept
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition

HOLE = Damage("00000000000000000000.log", 512, "a wrong checksum")
OTHER_HOLE = Damage(HOLE.file, 1_024, "a wrong checksum")
MEMBERS = [1, 2]


class Read(NamedTuple):
    kernel: Kernel
    damaged: Damaged
    statements: Statements
    partition: Partition


@pytest.fixture
def read() -> Read:
    """A partition that broker 1 leads, with broker 2 in sync."""
    kernel = make_kernel()
    topic = make_topic()
    partitions = make_partitions(kernel, make_disks(kernel), topic)
    (partition,) = partitions.all()
    image = image_of(*MEMBERS)
    image.topics_by_id[TOPIC_ID] = topic
    topic.partitions[0] = PartitionFacts(1, 0, MEMBERS, MEMBERS, 0, [], dict.fromkeys(MEMBERS, 1))
    desk = StoreDesk(image, kernel.outbox, is_sharing=True)
    statements = Statements(kernel.node_id, Standing(kernel.node_id), desk, partitions)
    return Read(kernel, Damaged(kernel.outbox, statements), statements, partition)


def test_a_leader_s_reader_stops_and_a_follower_s_goes_back_to_the_leader(read: Read) -> None:
    assert read.damaged.note(read.partition, HOLE) == ErrorCode.corrupt_message
    assert read.partition.facts is not None
    read.partition.become_follower(read.partition.facts)
    assert read.damaged.note(read.partition, HOLE) == ErrorCode.kafka_storage_error


def test_the_operator_hears_of_each_place_once(read: Read) -> None:
    for _ in range(3):
        read.damaged.note(read.partition, HOLE)
        read.damaged.note(read.partition, OTHER_HOLE)
    assert told(read.kernel.outbox) == ["log damaged"] * 2


def test_places_that_were_reported_are_bounded(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DAMAGE_TOLD_MAX", 1)
    for hole in (HOLE, OTHER_HOLE, HOLE):
        read.damaged.note(read.partition, hole)
    assert told(read.kernel.outbox) == ["log damaged"] * 3


def test_a_leader_gives_up_for_a_member_that_has_all_of_it_once_for_each_place(read: Read) -> None:
    read.damaged.note(read.partition, HOLE)
    assert read.statements.is_due and read.partition.kept is Kept.LOST
    read.partition.kept = Kept.WHOLE
    read.damaged.note(read.partition, HOLE)
    assert read.partition.kept is Kept.WHOLE


def test_a_follower_s_damage_makes_nobody_give_up(read: Read) -> None:
    assert read.partition.facts is not None
    read.partition.become_follower(read.partition.facts)
    read.damaged.note(read.partition, HOLE)
    assert not read.statements.is_due
