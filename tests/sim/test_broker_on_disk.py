"""The broker on a disk that fails: what it could not make durable it never acknowledges (L6, L10)."""

from __future__ import annotations

import errno
import os
from random import Random

import pytest

from tests.log.making import make_batch, read_log, split
from tests.sim.node import BrokerOnDisk
from tidelog.base.limits import SCAN_CHUNK_SIZE
from tidelog.cluster.facts import NOBODY
from tidelog.log.scan import Scan
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Role

STORAGE = int(ErrorCode.kafka_storage_error)


def made(**config: int | str) -> BrokerOnDisk:
    node = BrokerOnDisk(0, **config)
    node.create_topic()
    return node


def codes(node: BrokerOnDisk) -> dict[int, int]:
    return {number: answer.error_code for number, answer in node.take_answers().items()}


def test_a_produce_without_flushing_is_answered_at_once() -> None:
    node = made()
    syncs = node.disk.sync_count
    assert codes(node) == {} and node.produce() in codes(node)
    assert node.disk.sync_count == syncs


@pytest.mark.parametrize("acks", [1, -1])
def test_with_flush_messages_1_the_answer_waits_for_the_fsync(acks: int) -> None:
    node = made(flush_messages=1)
    number = node.produce(acks=acks)
    assert codes(node) == {}
    assert node.partition().high_watermark == 0
    assert node.end_flushes() == 1
    assert codes(node) == {number: 0}
    assert node.partition().high_watermark == 1


def test_one_fsync_serves_all_that_wait_for_it() -> None:
    node = made(flush_messages=1)
    first = node.produce()
    assert node.run_flushes() == 1
    others = [node.produce() for _ in range(50)]
    assert node.run_flushes() == 0, "a second fsync began while one was under way"
    assert node.end_flushes() == 1
    assert codes(node) == {first: 0}
    assert node.end_flushes() == 1
    assert codes(node) == dict.fromkeys(others, 0)
    assert node.end_flushes() == 0


def test_a_batch_that_comes_during_an_fsync_is_not_covered_by_it() -> None:
    node = made(flush_messages=1)
    node.produce()
    node.run_flushes()
    late = node.produce()
    node.end_flushes()
    assert late not in codes(node)
    assert node.partition().high_watermark == 1


def test_with_flush_messages_3_every_third_record_waits() -> None:
    node = made(flush_messages=3)
    first, second = node.produce(), node.produce()
    assert codes(node) == {first: 0, second: 0}
    third = node.produce()
    assert codes(node) == {}
    node.end_flushes()
    assert codes(node) == {third: 0}


def test_with_flush_ms_the_tick_flushes_what_is_old() -> None:
    node = made(flush_ms=1_000)
    node.produce()
    node.tick(999)
    assert node.run_flushes() == 0
    node.tick(1)
    assert node.end_flushes() == 1
    assert node.partition().log.recovery_point == 1
    node.tick(5_000)
    assert node.run_flushes() == 0, "nothing is new, nothing is to be flushed"


def log_syncs(node: BrokerOnDisk, before: int) -> list[str]:
    """What was synced since, but for the directory itself: that its note is gone must be durable."""
    return [name for name in node.disk.synced_names[before:] if name != node.directories[0].path]


def test_a_full_disk_that_then_fails_an_fsync_has_lost_something() -> None:
    """Delayed allocation gives just this order. The note must not vouch."""
    node = BrokerOnDisk(flush_messages=1)
    node.create_topic()
    node.produce()
    directory = node.partition().directory
    node.broker.disks.fail(directory, OSError(errno.ENOSPC, "No space left on device"))
    node.broker.disks.fail(directory, OSError(directory.failure))  # as of a log that cannot be opened there
    assert not directory.is_lost
    (flush,) = node.flushes
    flush.on_done(OSError(errno.EIO, "Input/output error"))
    assert directory.is_lost and not directory.directory.exists(".tidelog-running")


def test_a_full_segment_is_flushed_without_being_asked() -> None:
    node = made(segment_bytes=1_024)
    while len(node.partition().log.segments) == 1:
        node.produce()
    assert node.end_flushes() == 1
    assert node.partition().log.recovery_point == node.partition().log.end_offset


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("partial", [0.0, 0.5])
def test_a_failed_write_takes_the_directory_offline_and_is_not_acknowledged(
    code: int, partial: float
) -> None:
    node = made()
    node.produce()
    node.take_answers()
    node.disk.fail_write(0, code, partial)
    number = node.produce()
    assert codes(node) == {number: STORAGE}
    assert node.directories[0].failure is not None
    assert os.strerror(code) in node.directories[0].failure
    assert any(event.name == "directory offline" for event in node.broker.outbox.events)
    node.settle_store()
    assert node.broker.has_failed


def test_after_a_failed_write_nothing_is_tried_again() -> None:
    node = made()
    node.disk.fail_write(0, errno.ENOSPC)
    node.produce()
    writes, syncs = node.disk.write_count, len(node.disk.synced_names)
    number = node.produce()
    assert codes(node)[number] == STORAGE
    node.tick(10**9)
    node.stop()
    assert (node.disk.write_count, log_syncs(node, syncs)) == (writes, [])


def test_a_failed_fsync_fails_everyone_who_waits_for_it_and_is_never_repeated() -> None:
    node = made(flush_messages=1)
    first = node.produce()
    node.disk.fail_sync()
    node.run_flushes()
    second = node.produce()
    syncs = len(node.disk.synced_names)
    node.end_flushes()
    assert codes(node) == {first: STORAGE, second: STORAGE}
    assert node.partition().high_watermark == 0
    third = node.produce()
    assert codes(node) == {third: STORAGE}
    node.tick(10**9)
    node.end_flushes()
    node.stop()
    assert log_syncs(node, syncs) == []


def test_a_failed_fsync_takes_the_other_partitions_of_the_directory_along() -> None:
    node = BrokerOnDisk(flush_messages=1)
    node.create_topic(partition_count=2)
    node.produce(index=0)
    node.run_flushes()
    waiting = node.produce(index=1)
    node.disk.fail_sync()
    node.run_flushes()
    more = node.produce(index=0)
    syncs = len(node.disk.synced_names)
    node.pending.reverse()  # the broker hears of the failure first
    node.end_flushes()
    assert codes(node)[waiting] == STORAGE and node.produce(index=0) > more
    node.end_flushes()
    assert set(codes(node).values()) == {STORAGE}
    assert log_syncs(node, syncs) == [], "an fsync was tried on a directory that had failed"


def test_the_other_directory_goes_on_when_one_fails() -> None:
    node = BrokerOnDisk(flush_messages=1)
    node.stop()
    node.start(("logs", "more"))
    node.create_topic(partition_count=2)
    homes = [node.partition(index).directory for index in (0, 1)]
    assert homes[0] is not homes[1]
    node.disk.fail_sync()
    failed = node.produce(index=0)
    node.end_flushes()
    alive = node.produce(index=1)
    node.end_flushes()
    assert codes(node) == {failed: STORAGE, alive: 0}
    assert not node.broker.has_failed


def test_a_repeated_batch_is_not_acknowledged_before_the_fsync_of_the_first() -> None:
    node = made(flush_messages=1)
    first = node.produce(make_batch(producer_id=7, sequence=0))
    second = node.produce(make_batch(producer_id=7, sequence=0))
    assert codes(node) == {}
    node.end_flushes()
    answers = node.take_answers()
    assert [answers[number].base_offset for number in (first, second)] == [0, 0]


def test_after_a_crash_flushed_records_are_visible_without_a_new_produce() -> None:
    node = made(flush_messages=1)
    node.produce()
    node.end_flushes()
    node.crash()
    node.start()
    node.end_flushes()
    assert node.partition().high_watermark == 1


def test_a_topic_made_again_after_a_crash_does_not_show_the_old_one_s_records() -> None:
    node = made(flush_messages=1)
    node.produce()
    node.end_flushes()
    topic = node.broker.image.topics["t"]
    for path in [path for path in node.store.nodes if topic.topic_id.hex() in path or path == "/names/t"]:
        node.store.delete(path)  # the deletion was committed; the broker died before it renamed the folder
    node.disk.root.folder("logs").folder("t-0").sync()
    node.crash()
    node.start()
    node.create_topic()
    assert node.partition().log.end_offset == 0


def test_a_topic_made_again_begins_at_offset_0() -> None:
    node = made()
    for _ in range(3):
        node.produce()
    node.partition().log.advance_start(2)
    node.stop()
    node.start()
    assert node.partition().log.start_offset == 2
    node.delete_topic()
    node.create_topic()
    assert (node.partition().log.start_offset, node.partition().log.end_offset) == (0, 0)


def test_a_clean_stop_leaves_nothing_to_scan_or_to_flush() -> None:
    node = made()
    for _ in range(10):
        node.produce()
    node.stop()
    node.crash()
    node.start()
    assert node.partition().log.recovery_point == node.partition().log.end_offset == 10
    assert node.partition().leader_epoch == 0
    assert node.end_flushes() == 0


def test_a_crash_begins_a_new_leader_epoch() -> None:
    node = made(flush_messages=1)
    node.produce()
    node.end_flushes()
    node.crash()
    node.start()
    assert node.partition().leader_epoch == 1


def live(seed: int) -> None:
    """Produce, crash, fail and restart at random; compare with what was acknowledged as flushed."""
    random = Random(seed)
    node = BrokerOnDisk(seed, flush_messages=1, segment_bytes=random.choice((1_024, 4_000, SCAN_CHUNK_SIZE)))
    node.create_topic(partition_count=2)
    sent: dict[int, tuple[int, bytes]] = {}
    acknowledged: list[dict[int, bytes]] = [{}, {}]
    for _ in range(120):
        chance = random.random()
        if chance < 0.7:
            value = random.randbytes(random.choice((10, 200)))
            index = random.randrange(2)
            sent[node.produce(make_batch(value=value), index=index)] = (index, value)
        elif chance < 0.9:
            node.end_flushes()
        elif chance < 0.93:
            node.tick(60_000)
        elif chance < 0.95:
            node.disk.fail_sync(random.randrange(4))
        elif chance < 0.96:
            node.disk.fail_write(random.randrange(10), errno.ENOSPC, random.random())
        else:
            node.crash()
            node.start()
            node.end_flushes()
            sent.clear()
            check(node, acknowledged)
        for number, answer in node.take_answers().items():
            index, value = sent.pop(number)
            if answer.error_code == 0:
                acknowledged[index][answer.base_offset] = value
    node.crash()
    node.start()
    check(node, acknowledged)


def check(node: BrokerOnDisk, acknowledged: list[dict[int, bytes]]) -> None:
    for index, expected in enumerate(acknowledged):
        found = {header.base_offset: batch for header, batch in split(read_log(node.partition(index).log))}
        for offset, value in expected.items():
            assert value in found[offset], f"partition {index} offset {offset}"


@pytest.mark.parametrize("seed", range(40))
def test_what_was_acknowledged_as_flushed_survives_whatever_the_disk_does(seed: int) -> None:
    live(seed)


def test_what_an_fsync_dropped_is_written_again_after_a_restart() -> None:
    """The kernel calls it clean after the failure; only a power cut shows that it never reached the disk."""
    node = BrokerOnDisk(flush_messages=1_000)
    node.create_topic()
    for _ in range(20):
        node.produce()
    node.partition().want_flush()
    node.broker.flushing.maybe_begin(node.partition())
    node.disk.fail_sync()
    node.end_flushes()
    assert node.partition().role is Role.OFFLINE
    node.disk.repair()
    node.start()  # the process, not the machine
    assert node.partition().log.end_offset == 20
    assert node.partition().leader_id == NOBODY  # what the disk dropped is not known
    node.elect_unclean()
    node.end_flushes()
    assert node.partition().log.recovery_point == 20
    node.stop()
    node.crash()
    node.start()
    log = node.partition().log
    found = log.read(0, log.end_offset, 1 << 20)
    assert found is not None and log.end_offset == 20
    batches = list(Scan(found.file, 0, found.size, 0).batches())
    assert len(batches) == 20
