"""The broker's wiring: starting, topics, producer ids, ticks. (Failing disks: tests/sim.)"""

from __future__ import annotations

import errno

import pytest

from tests.log.making import make_batch
from tests.sim.node import BrokerOnDisk
from tidelog.base.schedule import Interval
from tidelog.broker.broker import StoreFailed
from tidelog.cluster.facts import LOST_STAMP
from tidelog.cluster.store import Outcome, Refused, StoreReply, StoreRequest, Unknown
from tidelog.protocol.errors import ErrorCode


def test_an_interval_is_over_once_each_time_it_has_passed() -> None:
    interval = Interval(100)
    assert [interval.maybe_restart(ms) for ms in (5, 104, 105, 106, 204, 300)] == [
        False,
        False,
        True,
        False,
        False,
        True,
    ]


def test_a_start_without_a_store_fails_with_a_reason() -> None:
    node = BrokerOnDisk()
    node.broker.start("127.0.0.1", 1)
    request = node.broker.outbox.effects.pop()
    assert isinstance(request, StoreRequest)
    with pytest.raises(StoreFailed, match="lost"):
        node.broker.on_store_event(StoreReply(request.ticket, Unknown("lost")))


def test_a_topic_is_found_by_name_and_by_id_or_not_at_all() -> None:
    node = BrokerOnDisk()
    node.create_topic(partition_count=3)
    topic = node.broker.image.topics["t"]
    by_name = node.broker.partitions.of("t")
    assert by_name is not None and by_name is node.broker.partitions.of(topic.topic_id)
    assert [partition and partition.index for partition in by_name] == [0, 1, 2]
    node.delete_topic()
    assert node.broker.partitions.of("t") is None
    assert node.broker.partitions.of(topic.topic_id) is None


def test_a_refused_topic_is_not_opened() -> None:
    node = BrokerOnDisk()
    outcomes: list[Outcome] = []
    node.broker.topics.create("t", {}, [[1]], outcomes.append)
    request = node.broker.outbox.effects.pop()
    assert isinstance(request, StoreRequest)
    node.broker.on_store_event(StoreReply(request.ticket, Refused(1, "exists")))
    node.settle()
    assert outcomes == [Refused(0, "exists")]
    assert node.broker.partitions.of("t") is None and "t" not in node.broker.image.topics


def test_a_deleted_topic_is_renamed_at_once_and_removed_later() -> None:
    node = BrokerOnDisk(file_delete_delay_ms=5_000)
    node.create_topic()
    logs = node.disk.root.folder("logs")
    node.delete_topic()
    (removal,) = node.removals
    assert removal.due_ms == 5_000 and removal.names[0].endswith("-delete")
    assert not logs.exists("t-0") and logs.exists(removal.names[0])


def test_producer_ids_are_given_once_and_survive_a_restart_unused() -> None:
    node = BrokerOnDisk()
    taken: list[int | None] = []
    for _ in range(3):
        node.broker.producer_ids.ask(taken.append)
    assert taken == []
    node.settle()
    node.broker.producer_ids.ask(taken.append)
    assert taken == [0, 1, 2, 3]
    node.stop()
    node.start()
    node.broker.producer_ids.ask(taken.append)
    node.settle()
    assert taken[-1] == 1_000


def test_those_who_wait_for_producer_ids_are_told_when_there_are_none() -> None:
    node = BrokerOnDisk()
    taken: list[int | None] = []
    node.broker.producer_ids.ask(taken.append)
    node.broker.producer_ids.ask(taken.append)
    (request,) = node.broker.outbox.effects
    assert isinstance(request, StoreRequest)
    node.broker.outbox.effects.clear()
    node.broker.on_store_event(StoreReply(request.ticket, Unknown("lost")))
    assert taken == [None, None]


def test_what_is_expired_is_removed_once_what_must_outlast_it_is_flushed() -> None:
    node = BrokerOnDisk(retention_ms=1_000)
    node.create_topic()
    node.produce(make_batch())
    node.tick(1)
    node.disk.synced_names.clear()
    node.tick(400_000)
    node.tick(100)
    assert not [name for name in node.disk.synced_names if "checkpoint" not in name and name != "sim/logs"]
    assert node.partition().log.start_offset == 0 and not node.removals
    assert node.end_flushes() == 1
    assert node.partition().log.start_offset == 1
    assert any(name.endswith(".deleted") for removal in node.removals for name in removal.names)


def test_the_tick_forgets_idle_producers() -> None:
    node = BrokerOnDisk()
    node.create_topic()
    node.produce(make_batch(producer_id=7))
    node.tick(1)
    assert len(node.partition().log.producers) == 1
    for hours in (23, 2, 24):
        assert len(node.partition().log.producers) == 1
        node.tick(hours * 3_600_000)
    assert len(node.partition().log.producers) == 0


def test_the_tick_writes_the_checkpoints() -> None:
    node = BrokerOnDisk(flush_messages=1)
    node.create_topic()
    node.produce()
    node.end_flushes()
    node.tick(1)
    node.tick(60_000)
    content = node.disk.root.folder("logs").read_whole("recovery-point-offset-checkpoint")
    assert content == b"0\n1\nt 0 1\n"


def test_new_partitions_go_where_there_are_fewest() -> None:
    node = BrokerOnDisk()
    node.stop()
    node.start(("logs", "more"))
    node.create_topic(partition_count=4)
    homes = [node.partition(index).directory.path for index in range(4)]
    assert sorted(homes) == ["sim/logs", "sim/logs", "sim/more", "sim/more"]
    node.stop()
    node.start(("more", "logs"))
    assert [node.partition(index).directory.path for index in range(4)] == homes


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_do_not_take_a_directory_offline(code: int) -> None:
    node = BrokerOnDisk()
    node.create_topic()
    (directory,) = node.directories
    node.broker.disks.fail(directory, OSError(code, "Too many open files"))
    assert directory.failure is None and not node.broker.has_failed
    assert [event.name for event in node.broker.outbox.events][-1] == "file open failed"
    number = node.produce()
    assert node.take_answers()[number].error_code == 0


def test_a_disk_error_takes_a_directory_offline() -> None:
    node = BrokerOnDisk()
    node.create_topic()
    (directory,) = node.directories
    node.broker.disks.fail(directory, OSError(errno.EIO, "Input/output error"))
    assert directory.failure is not None and not node.broker.has_failed  # the store does not know yet
    number = node.produce()
    assert node.take_answers()[number].error_code == ErrorCode.kafka_storage_error
    node.settle_store()
    assert node.broker.has_failed
    assert node.broker.image.topics["t"].partitions[0].members == {1: LOST_STAMP}


def test_no_id_begins_with_a_dash() -> None:
    broker = BrokerOnDisk().broker
    given = iter([b"\xf8" + bytes(15), b"\xfb" + bytes(15), b"\x01" * 16])
    broker.kernel.entropy = lambda size: next(given)
    assert broker.kernel.new_id() == b"\x01" * 16
