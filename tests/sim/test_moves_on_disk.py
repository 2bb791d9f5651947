"""A partition changes directory while it is written, and the power goes at any moment: what was acknowledged
as durable is there afterwards, once, in one of the two directories (AlterReplicaLogDirs)."""

from __future__ import annotations

from random import Random

import pytest

from tests.log.making import make_batch, read_log, split
from tests.sim.node import BrokerOnDisk
from tests.sim.test_log_on_disk import PART_COUNT, seeds
from tidelog.protocol.records import read_records

FOLDERS = ("logs", "more")


def moving(seed: int) -> BrokerOnDisk:
    node = BrokerOnDisk(seed, flush_messages=1, segment_bytes=2_000)
    node.stop()
    node.start(FOLDERS)
    node.create_topic()
    return node


def take_steps(node: BrokerOnDisk, random: Random) -> dict[int, bytes]:
    """Produce, flush, copy and tick at random; the values that were acknowledged, by offset."""
    acknowledged: dict[int, bytes] = {}
    sent: dict[int, bytes] = {}
    for number in range(random.randrange(5, 60)):
        match random.randrange(6):
            case 0 | 1:
                value = b"%d-%d" % (number, random.randrange(1 << 30))
                sent[node.produce(make_batch(value=value))] = value
            case 2 | 3:
                node.end_flushes()
            case 4:
                node.run_copies()
            case _:
                node.tick(100)
                partition = node.partition()
                target = node.directories[random.randrange(2)]
                if not partition.error_code and target.failure is None and random.randrange(2):
                    node.broker.relocation.move(partition, target)
                    node.settle()
        for answered, outcome in node.take_answers().items():
            if not outcome.error_code:
                acknowledged[outcome.base_offset] = sent[answered]
    return acknowledged


def live(seed: int) -> None:
    random = Random(seed)
    node = moving(seed)
    if random.randrange(2):
        fault = random.choice([node.disk.fail_sync, node.disk.fail_write])
        fault(random.randrange(40))
    acknowledged = take_steps(node, random)
    node.crash()
    node.start(FOLDERS)
    found = {
        record.offset: record.value
        for _, batch in split(read_log(node.partition().log))
        for record in read_records(batch)
    }
    assert {offset: found.get(offset) for offset in acknowledged} == acknowledged
    homes = [name for name in FOLDERS if node.disk.root.folder(name).exists("t-0")]
    assert len(homes) == 1, homes


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PART_COUNT))
def test_nothing_acknowledged_is_lost_by_a_crash_in_a_move(part: int) -> None:
    for seed in seeds(part):
        try:
            live(seed)
        except Exception as failure:
            failure.add_note(f"TIDELOG_SEED={seed}")
            raise


def test_the_steps_do_move_partitions() -> None:
    moved = 0
    for seed in range(20):
        node = moving(seed)
        before = node.partition().directory
        take_steps(node, Random(seed))
        moved += node.partition().directory is not before
    assert moved >= 3
