"""A broker that starts on a damaged directory serves everything before the damage, and goes on (L9).

The log's own damage costs what lies behind it, to the batch. Damage to what can be computed again from
the log (indexes, snapshots, checkpoints) costs nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition

from tests.chaos.files import Batch, active_segment, batches_of, segments
from tests.chaos.reading import ANSWER_TIMEOUT_S, open_reader, read_all
from tests.chaos.workload import IDEMPOTENT, QUICK, content, create_topic
from tests.compat.client import eventually
from tidelog.testing.process import BrokerProcess

RECORDS = 3_000
SMALL_BATCHES = IDEMPOTENT | {"batch.num.messages": 20}
SETTINGS = {"log.segment.bytes": str(64 * 1024), "log.index.interval.bytes": "1024"}
TOPIC = "damaged"
STEP_MS = 10  # between the timestamps of two records
SEEK_COUNT = 12
FIRST_TIMESTAMP = time.time_ns() // 1_000_000 - 3_600_000

LogDamage = Callable[[bytearray, list[Batch]], int]
FileDamage = Callable[[Path], None]


def cut_in_the_last_body(data: bytearray, batches: list[Batch]) -> int:
    del data[-7:]
    return batches[-1].base_offset


def cut_in_the_last_header(data: bytearray, batches: list[Batch]) -> int:
    del data[batches[-1].position + 20 :]
    return batches[-1].base_offset


def cut_in_the_last_length(data: bytearray, batches: list[Batch]) -> int:
    del data[batches[-1].position + 9 :]
    return batches[-1].base_offset


def cut_all(data: bytearray, batches: list[Batch]) -> int:
    data.clear()
    return batches[0].base_offset


def flip_in_the_last_body(data: bytearray, batches: list[Batch]) -> int:
    data[-3] ^= 0x04
    return batches[-1].base_offset


def flip_in_the_middle(data: bytearray, batches: list[Batch]) -> int:
    hit = batches[len(batches) // 2]
    data[hit.end_position - 5] ^= 0x80
    return hit.base_offset


def flip_in_a_checksum(data: bytearray, batches: list[Batch]) -> int:
    hit = batches[len(batches) // 2]
    data[hit.position + 18] ^= 0x01
    return hit.base_offset


def announce_too_much(data: bytearray, batches: list[Batch]) -> int:
    data[batches[-1].position + 8 : batches[-1].position + 12] = b"\x7f\xff\xff\xff"
    return batches[-1].base_offset


def announce_less_than_nothing(data: bytearray, batches: list[Batch]) -> int:
    data[batches[-1].position + 8 : batches[-1].position + 12] = b"\xff\xff\xff\xf0"
    return batches[-1].base_offset


def zero_the_last(data: bytearray, batches: list[Batch]) -> int:
    start, end, base_offset = batches[-1]
    data[start:end] = bytes(end - start)
    return base_offset


def add_zeros(data: bytearray, _batches: list[Batch]) -> int:
    data += bytes(8_192)
    return RECORDS


def add_noise(data: bytearray, _batches: list[Batch]) -> int:
    data += random.Random(1).randbytes(5_000)
    return RECORDS


def repeat_the_last(data: bytearray, batches: list[Batch]) -> int:
    """A whole batch, but its offsets were there before."""
    data += data[batches[-1].position : batches[-1].end_position]
    return RECORDS


LOG_DAMAGES: list[LogDamage] = [
    cut_in_the_last_body,
    cut_in_the_last_header,
    cut_in_the_last_length,
    cut_all,
    flip_in_the_last_body,
    flip_in_the_middle,
    flip_in_a_checksum,
    announce_too_much,
    announce_less_than_nothing,
    zero_the_last,
    add_zeros,
    add_noise,
    repeat_the_last,
]


@pytest.mark.parametrize("damage", LOG_DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_log_is_served_up_to_the_damage(tmp_path: Path, damage: LogDamage) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        create_topic(broker.bootstrap_servers, TOPIC, 1)
        Series(broker.bootstrap_servers).write(RECORDS)
        broker.kill()
        segment = active_segment(tmp_path / "data" / f"{TOPIC}-0")
        data = bytearray(segment.read_bytes())
        survivors = damage(data, batches_of(segment))
        segment.write_bytes(data)
        broker.start()
        assert_holds(broker.bootstrap_servers, survivors)
        # A producer that was told of what is now cut off is another matter: this one begins anew.
        Series(broker.bootstrap_servers, survivors).write(100)
        broker.kill()
        broker.start()
        assert_holds(broker.bootstrap_servers, survivors + 100)


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def shorten(path: Path) -> None:
    """To half and three bytes: in the middle of an entry."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 + 3])


def scramble(path: Path) -> None:
    path.write_bytes(random.Random(2).randbytes(path.stat().st_size or 64))


def fill_with_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size or 64))


FILE_DAMAGES: list[FileDamage] = [remove, empty, shorten, scramble, fill_with_zeros]
PARTITION_FILES = [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"]
DIRECTORY_FILES = [
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
]


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("damage", FILE_DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("suffix", PARTITION_FILES)
def test_damage_beside_the_log_costs_nothing(
    tmp_path: Path, suffix: str, damage: FileDamage, end: str
) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        series = begin(broker)
        broker.kill() if end == "kill" else broker.stop()
        targets = segments(tmp_path / "data" / f"{TOPIC}-0", suffix)
        assert targets, f"no {suffix} to damage"
        for target in targets:
            damage(target)
        broker.start()
        assert_holds(broker.bootstrap_servers, RECORDS)
        series.write(100)  # the same producer: its sequence must still be known
        assert_holds(broker.bootstrap_servers, RECORDS + 100)


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("damage", FILE_DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_checkpoints_cost_nothing(tmp_path: Path, damage: FileDamage, end: str) -> None:
    settings = SETTINGS | {"log.flush.offset.checkpoint.interval.ms": "50"}
    with BrokerProcess(tmp_path, settings) as broker:
        series = begin(broker)
        files = [tmp_path / "data" / name for name in DIRECTORY_FILES]
        eventually(lambda: any(file.exists() for file in files), "a checkpoint is written")
        broker.kill() if end == "kill" else broker.stop()
        targets = [file for file in files if file.exists()]
        for target in targets:
            damage(target)
        broker.start()
        assert_holds(broker.bootstrap_servers, RECORDS)
        series.write(100)  # the same producer: its sequence must still be known
        assert_holds(broker.bootstrap_servers, RECORDS + 100)


def begin(broker: BrokerProcess) -> Series:
    create_topic(broker.bootstrap_servers, TOPIC, 1)
    series = Series(broker.bootstrap_servers)
    series.write(RECORDS)
    return series


class Series:
    """One idempotent producer that writes numbered records, each at the offset of its number."""

    def __init__(self, bootstrap_servers: str, first: int = 0) -> None:
        self._next = first
        self._wrong: list[str] = []
        common = {"bootstrap.servers": bootstrap_servers, "log_level": 0, "linger.ms": 1}
        self._producer = Producer(common | QUICK | SMALL_BATCHES)

    def write(self, count: int) -> None:
        for number in range(self._next, self._next + count):
            value = content("w", 0, number)
            when = FIRST_TIMESTAMP + number * STEP_MS
            self._producer.produce(TOPIC, value, partition=0, timestamp=when, on_delivery=self._on_delivery)
        assert self._producer.flush(30) == 0, "not everything was answered"
        assert self._wrong == []
        self._next += count

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._wrong.append(str(error))
        elif message.value() != content("w", 0, message.offset() or 0):
            self._wrong.append(f"{(message.value() or b'')[:20]!r} got offset {message.offset()}")


def assert_holds(bootstrap_servers: str, count: int) -> None:
    """The first `count` records and no more, in sequence and by look-up."""
    held = [(message.offset(), message.value()) for message in read_all(bootstrap_servers, TOPIC, 0)]
    assert held == [(number, content("w", 0, number)) for number in range(count)]
    chance = random.Random(count)
    reader = open_reader(bootstrap_servers)
    try:
        for number in [chance.randrange(count) for _ in range(SEEK_COUNT)]:
            wanted = TopicPartition(TOPIC, 0, FIRST_TIMESTAMP + number * STEP_MS)
            (found,) = reader.offsets_for_times([wanted], timeout=ANSWER_TIMEOUT_S)
            assert found.offset == number, "a look-up by timestamp missed"
            reader.assign([TopicPartition(TOPIC, 0, number)])
            message = reader.poll(ANSWER_TIMEOUT_S)
            assert message is not None and message.offset() == number, "a look-up by offset missed"
    finally:
        reader.close()
