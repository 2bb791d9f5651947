"""A broker that starts on a damaged directory serves everything before the damage, and goes on (L9).

The log's own damage costs what lies behind it, to the batch. Damage to what can be computed again from
the log (indexes, snapshots, checkpoints) costs nothing. A broker starts on many damages at once: each has a
partition of its own, or a log directory where the damaged files are a directory's.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.chaos.files import Batch, active_segment, batches_of, segments
from tests.chaos.reading import ANSWER_TIMEOUT_S, elect_unclean, open_reader, read_all
from tests.chaos.workload import IDEMPOTENT, QUICK, content, create_topic
from tests.compat.client import eventually
from tidelog.testing.process import BrokerProcess

RECORDS = 1_500  # in each partition: three segments and more
SMALL_BATCHES = IDEMPOTENT | {"batch.num.messages": 20}
SETTINGS = {"log.segment.bytes": str(64 * 1024), "log.index.interval.bytes": "1024"}
TOPIC = "damaged"
STEP_MS = 10  # between the timestamps of two records
SEEK_COUNT = 4
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


def test_a_damaged_log_is_served_up_to_the_damage_once_that_is_allowed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        begin(broker, len(LOG_DAMAGES))
        broker.kill()
        survivors = []
        for partition, damage in enumerate(LOG_DAMAGES):
            segment = active_segment(tmp_path / "data" / f"{TOPIC}-{partition}")
            data = bytearray(segment.read_bytes())
            survivors.append(damage(data, batches_of(segment)))
            segment.write_bytes(data)
        broker.start()
        elect_unclean(broker.bootstrap_servers, TOPIC, len(LOG_DAMAGES))
        assert_holds(broker.bootstrap_servers, survivors, [damage.__name__ for damage in LOG_DAMAGES])
        # A producer that was told of what is now cut off is another matter: this one begins anew.
        Series(broker.bootstrap_servers, survivors).write(100)
        broker.kill()
        broker.start()
        more = [count + 100 for count in survivors]
        assert_holds(broker.bootstrap_servers, more, [damage.__name__ for damage in LOG_DAMAGES])


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
def test_damage_beside_the_log_costs_nothing(tmp_path: Path, end: str) -> None:
    cases = list(itertools.product(PARTITION_FILES, FILE_DAMAGES))
    names = [f"{damage.__name__} {suffix}" for suffix, damage in cases]
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        series = begin(broker, len(cases))
        broker.kill() if end == "kill" else broker.stop()
        for partition, (suffix, damage) in enumerate(cases):
            targets = segments(tmp_path / "data" / f"{TOPIC}-{partition}", suffix)
            assert targets, f"no {suffix} to damage"
            for target in targets:
                damage(target)
        broker.start()
        goes_on(broker, series, names)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_damaged_checkpoints_cost_nothing(tmp_path: Path, end: str) -> None:
    folders = [tmp_path / damage.__name__ for damage in FILE_DAMAGES]
    settings = SETTINGS | {
        "log.dirs": ",".join(map(str, folders)),
        "log.flush.offset.checkpoint.interval.ms": "50",
    }
    with BrokerProcess(tmp_path, settings) as broker:
        series = begin(broker, len(folders))
        eventually(lambda: all(checkpoints(folder) for folder in folders), "checkpoints are written")
        broker.kill() if end == "kill" else broker.stop()
        names = []
        for folder, damage in zip(folders, FILE_DAMAGES, strict=True):
            (held,) = folder.glob(f"{TOPIC}-*")
            names.append((held.name, damage.__name__))
            for target in checkpoints(folder):
                damage(target)
        broker.start()
        goes_on(broker, series, [name for _, name in sorted(names)])


def checkpoints(folder: Path) -> list[Path]:
    return [folder / name for name in DIRECTORY_FILES if (folder / name).exists()]


def begin(broker: BrokerProcess, partitions: int) -> Series:
    create_topic(broker.bootstrap_servers, TOPIC, partitions)
    series = Series(broker.bootstrap_servers, [0] * partitions)
    series.write(RECORDS)
    return series


def goes_on(broker: BrokerProcess, series: Series, names: list[str]) -> None:
    """Everything is there, and the same producer goes on: its sequences must still be known."""
    assert_holds(broker.bootstrap_servers, [RECORDS] * len(names), names)
    series.write(100)
    assert_holds(broker.bootstrap_servers, [RECORDS + 100] * len(names), names)


class Series:
    """One idempotent producer that writes numbered records, each at the offset of its number."""

    def __init__(self, bootstrap_servers: str, firsts: list[int]) -> None:
        self._next = list(firsts)
        self._wrong: list[str] = []
        common = {"bootstrap.servers": bootstrap_servers, "log_level": 0, "linger.ms": 1}
        self._producer = Producer(common | QUICK | SMALL_BATCHES)

    def write(self, count: int) -> None:
        """So many to each partition."""
        for partition, first in enumerate(self._next):
            for number in range(first, first + count):
                self._produce(partition, number)
            self._producer.poll(0)
        assert self._producer.flush(30) == 0, "not everything was answered"
        assert self._wrong == []
        self._next = [first + count for first in self._next]

    def _produce(self, partition: int, number: int) -> None:
        value, when = content("w", partition, number), FIRST_TIMESTAMP + number * STEP_MS
        self._producer.produce(
            TOPIC, value, partition=partition, timestamp=when, on_delivery=self._on_delivery
        )

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._wrong.append(f"{message.partition()}: {error}")
        elif message.value() != content("w", message.partition() or 0, message.offset() or 0):
            self._wrong.append(f"{(message.value() or b'')[:20]!r} got offset {message.offset()}")


def assert_holds(bootstrap_servers: str, counts: list[int], names: list[str]) -> None:
    """Of each partition its first records and no more, in sequence and by look-up."""
    reader = open_reader(bootstrap_servers)
    try:
        for partition, (count, name) in enumerate(zip(counts, names, strict=True)):
            held = [(one.offset(), one.value()) for one in read_all(bootstrap_servers, TOPIC, partition)]
            assert held == [(number, content("w", partition, number)) for number in range(count)], name
            check_look_ups(reader, partition, count, name)
    finally:
        reader.close()


def check_look_ups(reader: Consumer, partition: int, count: int, name: str) -> None:
    chance = random.Random(count)
    for number in [chance.randrange(count) for _ in range(SEEK_COUNT)]:
        wanted = TopicPartition(TOPIC, partition, FIRST_TIMESTAMP + number * STEP_MS)
        (found,) = reader.offsets_for_times([wanted], timeout=ANSWER_TIMEOUT_S)
        assert found.offset == number, f"{name}: a look-up by timestamp missed"
        reader.assign([TopicPartition(TOPIC, partition, number)])
        message = reader.poll(ANSWER_TIMEOUT_S)
        assert message is not None and message.offset() == number, f"{name}: a look-up by offset missed"
